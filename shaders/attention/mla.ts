import type { DeviceTraits } from '../../src/gpu/device.js';
import type { KernelPlan, ParamTypes } from '../../src/gpu/kernel.js';
import { type LatentShape, latentConstants, latentWgsl, latentWidth } from '../cache/latent_cache.js';
import mlaAttend from '../lib/mla_attend.wgsl?raw';
import softmaxState from '../lib/softmax_state.wgsl?raw';

/** What the attention kernels over the latent cache have in common (lib/mla_attend.wgsl). */
export const MLA_BINDINGS = {
  q_abs: 'read',
  latent_cache: 'read',
  row_info: 'read',
  block_table: 'read',
  partial_o: 'read_write',
  partial_ml: 'read_write',
} as const;

export const MLA_PARAMS = {
  rows: 'u32',
  heads: 'u32',
  q_units: 'u32',
  key_units: 'u32',
  rank_units: 'u32',
  partials: 'u32',
  table_stride: 'u32',
  vectors: 'u32',
  stats: 'u32',
  lanes: 'u32',
  slices: 'u32',
  scale: 'f32',
} as const satisfies ParamTypes;

/** Query vectors of a workgroup: they share each read of the latent. */
export const MLA_VECTORS = 4;

interface MlaProblem extends LatentShape {
  readonly rows: number;
  readonly heads: number;
  readonly tableStride: number;
  readonly qStride: number;
  readonly scale: number;
}

/** The plan of a kernel whose own file is `source`, all but its grid. */
export function mlaPlan(
  problem: MlaProblem,
  traits: DeviceTraits,
  partials: number,
  source: string,
): Omit<KernelPlan<typeof MLA_PARAMS>, 'grid'> {
  const rankUnits = problem.kvLoraRank / 4;
  // The order of sums follows from the rank and the traits alone. On a GPU, neighbouring threads take neighbouring tokens of
  // one unit; a software adapter reads no faster for it, and saves the barriers of adding slices up.
  const lanes = traits.software ? 8 : Math.min(64, rankUnits);
  const slices = traits.software ? 1 : Math.min(16, Math.floor(256 / lanes));
  return {
    wgsl: [...latentWgsl(problem.kvType), softmaxState, mlaAttend, source],
    constants: { ...latentConstants(problem), THREADS: traits.software ? 8 : 256, SLICED: traits.software ? 0 : 1 },
    params: {
      rows: problem.rows,
      heads: problem.heads,
      q_units: problem.qStride / 4,
      key_units: latentWidth(problem) / 4,
      rank_units: rankUnits,
      partials,
      table_stride: problem.tableStride,
      vectors: MLA_VECTORS,
      stats: traits.software ? 8 : 16,
      lanes,
      slices,
      scale: problem.scale,
    },
  };
}
