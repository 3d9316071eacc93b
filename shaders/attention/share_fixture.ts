import { joinsLanes } from '../../src/base/kv_units.js';
import type { HostArray, HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { headTable, tableLead, type TableLayout } from '../cache/head_tables.js';
import { type CacheHeads, CHUNK_TOKENS, MERGE_LANES, NO_BLOCK } from '../cache/kv_cache.js';
import type { RowInfo } from './fixture.js';
import { type PartialLayout, type Share, WHOLE } from './share.js';

/** How a case's rank shares the sequences with others. */
export interface Sharing {
  readonly share?: Share;
  /** Instead, with perHead: by head of the cache, the lane slots that lie here, a bit each. Others' blocks are not in its table. */
  readonly masks?: readonly number[];
  /** chunk_offsets; 0 where there is none. */
  readonly offsets?: readonly number[];
}

/** Whether a chunk (or merge lane) of a head of the cache lies here. */
export const owns = (
  { share = WHOLE, masks, offsets = [] }: Sharing,
  slot: number,
  chunk: number,
  cacheHead = 0,
): boolean => {
  const place = (chunk % MERGE_LANES) + (offsets[slot] ?? 0);
  return masks ? ((masks[cacheHead]! >> (place % MERGE_LANES)) & 1) === 1 : place % share.ranks === share.index;
};

/** The place of a chunk (or merge lane) among those that lie here; undefined where it doesn't. */
export function localIndex(sharing: Sharing, slot: number, chunk: number, cacheHead = 0): number | undefined {
  if (!owns(sharing, slot, chunk, cacheHead)) return undefined;
  let before = 0;
  for (let other = 0; other < chunk; other++) if (owns(sharing, slot, other, cacheHead)) before++;
  return before;
}

/** The place of a chunk among those that a generated row's partials have room for; undefined where it lies elsewhere. */
export const chunkIndex = (sharing: Sharing, slot: number, chunk: number, cacheHead: number): number | undefined =>
  sharing.masks && owns(sharing, slot, chunk, cacheHead) ? chunk : localIndex(sharing, slot, chunk, cacheHead);

/** Index of a partial of (row, head) and a local chunk or lane, of `count`. */
export function partialIndex(
  { rows, heads, partialLayout = 'row' }: { rows: number; heads: number; partialLayout?: PartialLayout },
  count: number,
  [row, head, local]: readonly [row: number, head: number, local: number],
): number {
  if (partialLayout === 'row') return (row * heads + head) * count + local;
  const { bundleHeads } = partialLayout;
  const bundle = Math.floor(head / bundleHeads);
  return ((bundle * count + local) * rows + row) * bundleHeads + (head % bundleHeads);
}

const NAN_HALVES = 0x7e007e00;

/**
 * The inputs as a rank that shares the sequences has them: chunk_offsets, and of the caches only its own chunks' blocks. Others' are
 * not in the block table, and NaN. `blockWords`: words of a physical block in each cache.
 */
export function ownInputs(
  problem: Sharing &
    TableLayout &
    CacheHeads & {
      readonly kvHeads?: number;
      readonly rowInfo: readonly RowInfo[];
      readonly block: number;
      readonly tableStride: number;
    },
  inputs: HostArrays,
  blockWords: Readonly<Record<string, number>>,
): HostArrays {
  const { rowInfo, block, tableStride, kvHeads = 1 } = problem;
  const lead = tableLead(problem);
  const slotWords = headTable({ ...problem, kvHeads }, 1, 0);
  const table = (inputs['block_table'] as Uint32Array).slice();
  const caches: Record<string, HostArray> = {};
  for (const name of Object.keys(blockWords)) caches[name] = inputs[name]!.slice();
  const slots = table.length / slotWords;
  const offsets = new Uint32Array(Math.max(1, slots)).fill(0xfffffff8);
  for (let slot = 0; slot < slots; slot++) {
    if (rowInfo.some((info) => info?.[1] === slot)) offsets[slot] = problem.offsets?.[slot] ?? 0;
    for (let word = 0; word < slotWords; word++) {
      const index = (word % tableStride) - lead;
      const at = slot * slotWords + word;
      const physical = table[at]!;
      const elsewhere =
        index >= 0 && !owns(problem, slot, Math.floor((index * block) / CHUNK_TOKENS), Math.floor(word / tableStride));
      if (physical === NO_BLOCK || !elsewhere) continue;
      table[at] = NO_BLOCK;
      for (const [name, words] of Object.entries(blockWords)) {
        const cache = caches[name]!;
        cache.fill(cache instanceof Float32Array ? Number.NaN : NAN_HALVES, physical * words, (physical + 1) * words);
      }
    }
  }
  return { ...inputs, ...caches, block_table: table, chunk_offsets: offsets };
}

/** Lane slots of a mask, ascending. */
export const slotsOf = (mask: number): number[] =>
  Array.from({ length: MERGE_LANES }, (_, slot) => slot).filter((slot) => ((mask >> slot) & 1) === 1);

/** By lane of a sequence with this chunk offset, which of some copies holds it, by their lane slots. */
export const copiesByLane = (copies: readonly { readonly slots: readonly number[] }[], offset = 0): number[] =>
  Array.from({ length: MERGE_LANES }, (_, lane) =>
    copies.findIndex(({ slots }) => slots.includes((lane + offset) % MERGE_LANES)),
  );

/** Most lanes that the holder of some of `of` lane slots sends of a sequence of `chunks` chunks, whatever its chunk offset. */
export function mostLanesOf(slots: readonly number[], chunks: number, of = MERGE_LANES): number {
  const lanes = Array.from({ length: Math.min(MERGE_LANES, chunks) }, (_, lane) => lane);
  const held = (offset: number): number => lanes.filter((lane) => slots.includes((lane + offset) % of)).length;
  const most = Math.max(...Array.from({ length: of }, (_, offset) => held(offset)));
  return joinsLanes(of) ? Math.min(1, most) : most;
}
