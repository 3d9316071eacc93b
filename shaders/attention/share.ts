import { usageError } from '../../src/base/errors.js';
import { ceilDiv } from '../../src/base/math.js';
import { MERGE_LANES } from '../cache/kv_cache.js';

/**
 * A rank's share of every sequence, where `ranks` ranks share them by chunks: chunk c of a slot's sequence is of the rank with index
 * (c + chunk_offsets[slot]) mod ranks. Its own chunks, in ascending order, are its local chunks 0, 1, ...; its own merge lanes are
 * its local lanes.
 */
export interface Share {
  /** 1, 2, 4 or 8: a rank owns whole merge lanes. */
  readonly ranks: number;
  /** 0 .. ranks - 1. */
  readonly index: number;
}

/** The share of a rank that holds every chunk. */
export const WHOLE: Share = { ranks: 1, index: 0 };

/** Most local chunks that a sequence of `chunks` chunks has on a rank. */
export const localChunks = (chunks: number, { ranks }: Pick<Share, 'ranks'>): number => ceilDiv(chunks, ranks);

/** Most local merge lanes that a sequence of `chunks` chunks has on a rank. */
export const localLanes = (chunks: number, { ranks }: Pick<Share, 'ranks'>): number =>
  ceilDiv(Math.min(MERGE_LANES, chunks), ranks);

/** The first chunk, and the first merge lane, of a sequence that a rank owns; every `ranks`th after it is its own, too. */
export const ownBase = ({ ranks, index }: Share, offset: number): number => (index + ranks - (offset % ranks)) % ranks;

/** Params of a kernel that takes share.wgsl. */
export const SHARE_PARAMS = { share_ranks: 'u32', share_index: 'u32' } as const;

/** @throws SplitkvError when lanes can't be dealt out so. Returns the constants and params of share.wgsl. */
export function sharePlan(
  kernel: string,
  { ranks, index }: Share,
): {
  readonly constants: { readonly SHARED: boolean };
  readonly params: { readonly share_ranks: number; readonly share_index: number };
} {
  if (![1, 2, 4, 8].includes(ranks)) {
    throw usageError(`${kernel}: ${ranks} ranks share a sequence; it has ${MERGE_LANES} merge lanes: use 1, 2, 4 or 8`);
  }
  if (!Number.isInteger(index) || index < 0 || index >= ranks) {
    throw usageError(`${kernel}: index ${index} of ${ranks} ranks that share a sequence; expected 0 to ${ranks - 1}`);
  }
  return { constants: { SHARED: ranks > 1 }, params: { share_ranks: ranks, share_index: index } };
}

/** @throws SplitkvError when the share can't be, or partials of prompt rows have room for other lanes than a merge would read. */
export function checkLanes(
  kernel: string,
  { lanes, maxChunks, share }: { readonly lanes: number; readonly maxChunks: number; readonly share: Share },
): void {
  sharePlan(kernel, share);
  if (Number.isInteger(lanes) && lanes >= 1 && lanes === localLanes(maxChunks, share)) return;
  const shared = share.ranks > 1 ? ` / ${share.ranks}, rounded up` : '';
  throw usageError(
    `${kernel}: lanes ${lanes} with maxChunks ${maxChunks}; expected min(${MERGE_LANES}, maxChunks)${shared}`,
  );
}

/** How partials of prompt rows lie: a (row, head)'s lanes side by side, or a lane's (row, head)s in one run, as they travel. */
export type PartialLayout = 'row' | 'lane';

/** Params of a kernel that writes partials: partial of (row, head) item and lane at item * item_stride + lane * lane_stride. */
export const LAYOUT_PARAMS = { item_stride: 'u32', lane_stride: 'u32' } as const;

/** Strides of partials in a layout; `rows` is the number there is room for. */
export const layoutStrides = (
  layout: PartialLayout,
  { rows, heads, lanes }: { readonly rows: number; readonly heads: number; readonly lanes: number },
): { readonly item_stride: number; readonly lane_stride: number } =>
  layout === 'row' ? { item_stride: lanes, lane_stride: 1 } : { item_stride: 1, lane_stride: rows * heads };
