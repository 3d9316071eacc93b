/**
 * Room: attention over the paged cache: `attention_prefill` and `attention_split` by chunks, `attention_merge` to
 * lanes and then to outputs, `mla_*` over a latent. Here is how ranks share sequences by chunks. Read attention_split
 * next.
 */

import { usageError } from '../../src/base/errors.js';
import { heldChunks, mostLanes } from '../../src/base/kv_units.js';
import type { DeviceTraits } from '../../src/gpu/device.js';
import { MERGE_LANES } from '../cache/kv_cache.js';

/**
 * A rank's share of every sequence, where `ranks` ranks share them by chunks: a slot's merge lane l, chunks l, l + 8, ..., is of the rank
 * with index (l + chunk_offsets[slot]) mod ranks. Its own chunks, in ascending order, are its local chunks 0, 1, ...; its own merge
 * lanes are its local lanes.
 */
export interface Share {
  /** Where it divides the merge lanes, ranks have as many each; otherwise some have one more, and beyond MERGE_LANES ranks some have none. */
  readonly ranks: number;
  /** 0 .. ranks - 1. */
  readonly index: number;
}

/** The share of a rank that holds every chunk. */
export const WHOLE: Share = { ranks: 1, index: 0 };

/** Most local chunks that a sequence of `chunks` chunks has on a rank. */
export const localChunks = (chunks: number, { ranks }: Pick<Share, 'ranks'>): number => heldChunks(chunks, ranks, 0);

/** Most local merge lanes that a sequence of `chunks` chunks has on a rank. */
export const localLanes = (chunks: number, { ranks }: Pick<Share, 'ranks'>): number => mostLanes(chunks, ranks);

/** Ranks have different numbers of a sequence's merge lanes. */
const isUneven = (ranks: number): boolean => MERGE_LANES % ranks !== 0;

/** Params of a kernel that takes share.wgsl. */
export const SHARE_PARAMS = { share_ranks: 'u32', share_index: 'u32' } as const;

/** @throws SplitkvError for a share that is none. Returns the constants and params of share.wgsl. */
export function sharePlan(
  kernel: string,
  { ranks, index }: Share,
): {
  readonly constants: { readonly SHARED: boolean; readonly UNEVEN: boolean };
  readonly params: { readonly share_ranks: number; readonly share_index: number };
} {
  if (!Number.isInteger(ranks) || ranks < 1) {
    throw usageError(`${kernel}: ${ranks} ranks share a sequence; expected an integer of at least 1`);
  }
  if (!Number.isInteger(index) || index < 0 || index >= ranks) {
    throw usageError(`${kernel}: index ${index} of ${ranks} ranks that share a sequence; expected 0 to ${ranks - 1}`);
  }
  return {
    constants: { SHARED: ranks > 1, UNEVEN: isUneven(ranks) },
    params: { share_ranks: ranks, share_index: index },
  };
}

/** How attention to generated rows ends. */
export interface Finish {
  /** 256-token chunks that partials have room for: this rank's local ones. */
  readonly maxChunks: number;
  /** A step of one chunk on a software adapter: partial_o is the output, as attention_merge would write it, and maxChunks is 1. */
  readonly finishes?: boolean;
}

/** @throws SplitkvError for a number of chunks, or an end, that can't be. Returns the constants of kernels of software adapters. */
export function finishPlan(
  kernel: string,
  { maxChunks, finishes = false }: Finish,
  { software }: Pick<DeviceTraits, 'software'>,
): { readonly FINISHES?: boolean } {
  if (!Number.isInteger(maxChunks) || maxChunks < 1 || maxChunks > 65535)
    throw usageError(`${kernel}: maxChunks ${maxChunks}; expected an integer from 1 to 65535`);
  if (finishes && (!software || maxChunks > 1))
    throw usageError(`${kernel}: finishes with maxChunks ${maxChunks}; it takes one chunk, on a software adapter`);
  return software ? { FINISHES: finishes } : {};
}

/**
 * @param holes of the lanes of the share some may lie elsewhere: there need not be room for all
 * @throws SplitkvError when the share can't be, or partials of prompt rows have room for other lanes than a merge would read.
 */
export function checkLanes(
  kernel: string,
  { lanes, maxChunks, share }: { readonly lanes: number; readonly maxChunks: number; readonly share: Share },
  holes = false,
): void {
  sharePlan(kernel, share);
  const most = localLanes(maxChunks, share);
  if (Number.isInteger(lanes) && lanes >= 1 && (holes ? lanes <= most : lanes === most)) return;
  const shared = share.ranks > 1 ? ` / ${share.ranks}, rounded up` : '';
  throw usageError(
    `${kernel}: lanes ${lanes} with maxChunks ${maxChunks}; expected ${holes ? 'at most ' : ''}min(${MERGE_LANES}, maxChunks)${shared}`,
  );
}

/** Where partials travel: those of `bundleHeads` neighbouring query heads lie together, [bundle][lanes][rows][bundleHeads]. */
interface HeadBundles {
  /** Divides the heads. */
  readonly bundleHeads: number;
}

/** How partials lie: a (row, head)'s lanes side by side, [rows][heads][lanes], or in bundles. The problem's rows count. */
export type PartialLayout = 'row' | HeadBundles;

/** Params of partial_layout.wgsl. */
export const LAYOUT_PARAMS = {
  bundle_heads: 'u32',
  bundle_stride: 'u32',
  row_stride: 'u32',
  head_stride: 'u32',
  lane_stride: 'u32',
} as const;

/**
 * The params of partial_layout.wgsl; `rows` and `lanes` are the numbers there is room for.
 * @throws SplitkvError when heads don't divide into bundles
 */
export function layoutParams(
  kernel: string,
  layout: PartialLayout,
  { rows, heads, lanes }: { readonly rows: number; readonly heads: number; readonly lanes: number },
): { readonly [K in keyof typeof LAYOUT_PARAMS]: number } {
  if (layout === 'row') {
    return { bundle_heads: heads, bundle_stride: 0, row_stride: heads * lanes, head_stride: lanes, lane_stride: 1 };
  }
  const { bundleHeads } = layout;
  if (!Number.isInteger(bundleHeads) || bundleHeads < 1 || heads % bundleHeads !== 0) {
    throw usageError(`${kernel}: bundles of ${bundleHeads} heads; expected a divisor of the ${heads} query heads`);
  }
  return {
    bundle_heads: bundleHeads,
    bundle_stride: lanes * rows * bundleHeads,
    row_stride: bundleHeads,
    head_stride: 1,
    lane_stride: rows * bundleHeads,
  };
}
