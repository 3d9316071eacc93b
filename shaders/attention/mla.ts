import type { KernelPlan, ParamTypes } from '../../src/gpu/kernel.js';
import type { DeviceTraits } from '../../src/gpu/device.js';
import { CHUNK_TOKENS, checkStride } from '../cache/kv_cache.js';
import { type LatentShape, latentConstants, latentWgsl, latentWidth } from '../cache/latent_cache.js';
import mlaAttend from '../lib/mla_attend.wgsl?raw';
import mlaAttendRow from '../lib/mla_attend_row.wgsl?raw';
import shareSource from '../lib/share.wgsl?raw';
import partialLayoutSource from '../lib/partial_layout.wgsl?raw';
import softmaxState from '../lib/softmax_state.wgsl?raw';
import stepsSource from '../lib/steps.wgsl?raw';
import { PIECE_PARAMS, piecesPlan, piecesWgsl, type QueryPieces, widestPiece } from './query_pieces.js';
import {
  LAYOUT_PARAMS,
  layoutParams,
  type PartialLayout,
  type Share,
  SHARE_PARAMS,
  sharePlan,
  WHOLE,
} from './share.js';

/** What the attention kernels over the latent cache have in common (lib/mla_attend.wgsl). */
export const MLA_BINDINGS = {
  q_abs: 'read',
  latent_cache: 'read',
  row_info: 'read',
  block_table: 'read',
  chunk_offsets: 'read',
  partial_o: 'read_write',
  partial_ml: 'read_write',
} as const;

export const MLA_PARAMS = {
  rows: 'u32',
  heads: 'u32',
  q_units: 'u32',
  ...PIECE_PARAMS,
  key_units: 'u32',
  rank_units: 'u32',
  ...LAYOUT_PARAMS,
  table_stride: 'u32',
  ...SHARE_PARAMS,
  vectors: 'u32',
  scale: 'f32',
} as const satisfies ParamTypes;

/** Query vectors that share each read of the latent: a quad of a workgroup on a GPU, of an invocation on a software adapter. */
export const MLA_VECTORS = 4;

/** Of workgroup memory, for a quad and besides (mla_attend.wgsl). */
const QUAD_BYTES = (CHUNK_TOKENS + 2 * 16) * 16;
const SHARED_BYTES = 256 * 16 + (CHUNK_TOKENS / 16) * 4;
const MOST_QUADS = 4;

/** Quads that a workgroup has room for, at least one. */
export const roomyQuads = ({ limits }: DeviceTraits): number =>
  Math.max(1, Math.min(MOST_QUADS, Math.floor((limits.maxComputeWorkgroupStorageSize - SHARED_BYTES) / QUAD_BYTES)));

interface MlaProblem extends LatentShape, QueryPieces {
  readonly rows: number;
  readonly heads: number;
  readonly tableStride: number;
  readonly qStride: number;
  readonly scale: number;
  readonly share?: Share;
}

/**
 * The plan of a kernel, all but its grid, from its own file: `source`, for `quads` of vectors, or `rowSource` with `threads` invocations
 * per workgroup. `lanes`: that partials have room for.
 */
export function mlaPlan(
  kernel: string,
  problem: MlaProblem,
  partials: { readonly layout: PartialLayout; readonly lanes: number },
  file: { readonly source: string; readonly quads: number } | { readonly rowSource: string; readonly threads: number },
): Omit<KernelPlan<typeof MLA_PARAMS>, 'grid'> {
  const rankUnits = problem.kvLoraRank / 4;
  const { rows, heads, qStride } = problem;
  const pieces = piecesPlan(kernel, problem, qStride);
  checkStride(kernel, 'qStride', qStride, widestPiece(problem) * latentWidth(problem));
  const shared = sharePlan(kernel, problem.share ?? WHOLE);
  const params = {
    rows,
    heads,
    q_units: qStride / 4,
    ...pieces.params,
    key_units: latentWidth(problem) / 4,
    rank_units: rankUnits,
    ...layoutParams(kernel, partials.layout, { rows, heads, lanes: partials.lanes }),
    table_stride: problem.tableStride,
    ...shared.params,
    scale: problem.scale,
  };
  const fragments = [...latentWgsl(problem.kvType), softmaxState, shareSource, ...piecesWgsl, partialLayoutSource];
  const constants = { ...latentConstants(problem), ...shared.constants, ...pieces.constants };
  // The order of sums follows from the rank and the kind of adapter alone.
  if ('rowSource' in file) {
    return {
      wgsl: [...fragments, mlaAttendRow, file.rowSource],
      constants: { ...constants, THREADS: file.threads },
      params: { ...params, vectors: file.threads },
    };
  }
  // Neighbouring threads take neighbouring tokens of one unit.
  const lanes = Math.min(64, rankUnits);
  return {
    wgsl: [...fragments, stepsSource, mlaAttend, file.source],
    constants: { ...constants, QUADS: file.quads, LANES: lanes, SLICES: Math.min(16, Math.floor(256 / lanes)) },
    params: { ...params, vectors: MLA_VECTORS },
  };
}
