import kvHoles from '../lib/kv_holes.wgsl?raw';
import kvTable from '../lib/kv_table.wgsl?raw';
import type { CacheHeads, KvShape } from './kv_cache.js';

/** How a kernel finds the entries of a head's cache (lib/kv_table.wgsl). */
export interface TableLayout {
  /**
   * Each head of a sequence has a block table of its own, [slot][cacheKvHeads][tableStride]: first how many of its entries were
   * evicted, then its physical blocks, and last, where copies of heads share lanes, who has which; a block holds BLOCK entries of one head. For compressed caches. Where left out, one table
   * serves all heads of a sequence, and a block holds all of them.
   */
  readonly perHead?: boolean;
}

/** Words before the blocks in a head's table. */
export const HEAD_TABLE_LEAD = 1;

/** Words behind the blocks in a head's table: the `laneWord`. */
export const HEAD_TABLE_TAIL = 1;

/** Which copy of a head has each of its 8 merge lanes, four bits each. @param copies by lane, its number among those of the head */
export const laneWord = (copies: readonly number[]): number =>
  copies.reduce((word, copy, lane) => (word | (copy << (4 * lane))) >>> 0, 0);

/** WGSL of a kernel that reads block tables; it declares the variants of `tableConstants`. */
export const tableWgsl: readonly string[] = [kvTable];

/** WGSL of a kernel that attends, and must know which chunks lie elsewhere; after `kvWgsl`. */
export const chunkTableWgsl: readonly string[] = [kvTable, kvHoles];

export const tableConstants = ({ perHead = false }: TableLayout): { readonly PER_HEAD: boolean } => ({
  PER_HEAD: perHead,
});

/** The layout of a cache's blocks: of all heads that it holds, or of one. */
export const blockShape = <Shape extends KvShape>(problem: Shape & CacheHeads & TableLayout): Shape => ({
  ...problem,
  kvHeads: problem.perHead ? 1 : (problem.cacheKvHeads ?? problem.kvHeads),
});

/** Words before the blocks in a table. */
export const tableLead = ({ perHead = false }: TableLayout): number => (perHead ? HEAD_TABLE_LEAD : 0);

/** First word of a head's table (of a slot's, where heads have none of their own). */
export const headTable = (
  {
    kvHeads,
    cacheKvHeads = kvHeads,
    tableStride,
    perHead,
  }: CacheHeads & TableLayout & { readonly kvHeads: number; readonly tableStride: number },
  slot: number,
  cacheHead: number,
): number => (perHead ? slot * cacheKvHeads + cacheHead : slot) * tableStride;
