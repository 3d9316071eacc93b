import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { latentUnit, latentWidth } from '../../cache/latent_cache.js';
import type { RowInfo } from '../../attention/fixture.js';
import type { MlaRopeAppendProblem } from './index.js';

export interface MlaRopeAppendCase extends MlaRopeAppendProblem {
  readonly rowInfo: readonly RowInfo[];
  /** Slots whose tokens another rank holds. */
  readonly elsewhere?: readonly number[];
}

/** Half-split rotation of `y` by the table's row of `position`. */
function rotate(y: number[], table: ArrayLike<number>, position: number): number[] {
  const half = y.length / 2;
  const at = (i: number): [number, number] => [
    table[(position * half + i) * 2]!,
    table[(position * half + i) * 2 + 1]!,
  ];
  return y.map((value, i) => {
    const [cosine, sine] = at(i % half);
    return i < half ? value * cosine - y[i + half]! * sine : value * cosine + y[i - half]! * sine;
  });
}

/** Float64. The cache is returned for f32 only; packed ones are checked by the property test, which unpacks them. */
export function mlaRopeAppendReference(problem: MlaRopeAppendCase, inputs: HostArrays): Expected {
  const { heads, kvLoraRank, qkRopeHeadDim, qkNopeHeadDim, qStride, qOffset = 0, qAbsStride } = problem;
  const width = latentWidth(problem);
  const table = inputs['rope_table']!;
  const qAbs: number[] = new Array<number>(problem.rows * qAbsStride);
  for (const [row, info] of problem.rowInfo.entries()) {
    if (!info || problem.latents === 'ready') continue;
    if (problem.latents === 'kept') {
      for (const [i, value] of appendedLatent(problem, inputs, row).entries()) {
        qAbs[row * qAbsStride + heads * width + i] = value;
      }
    }
    for (let head = 0; head < heads; head++) {
      const from = row * qStride + qOffset + head * (qkNopeHeadDim + qkRopeHeadDim) + qkNopeHeadDim;
      const rotated = rotate(Array.from(inputs['q']!.subarray(from, from + qkRopeHeadDim)), table, info[0]);
      for (const [i, value] of rotated.entries()) qAbs[row * qAbsStride + head * width + kvLoraRank + i] = value;
    }
  }
  if (problem.kvType !== 'f32') return { q_abs: qAbs };
  const cache: number[] = new Array<number>(inputs['latent_cache']!.length);
  for (const [row, info] of problem.rowInfo.entries()) {
    if (!info || problem.elsewhere?.includes(info[1])) continue;
    const physical = inputs['block_table']![info[1] * problem.tableStride + Math.floor(info[0] / problem.block)]!;
    for (const [i, value] of appendedLatent(problem, inputs, row).entries()) {
      cache[latentUnit(problem, physical, i >> 2, info[0] % problem.block) * 4 + (i & 3)] = value;
    }
  }
  return { q_abs: qAbs, latent_cache: cache };
}

/** What a row's token must hold in the cache: the normalised latent, then the rotated key. */
export function appendedLatent(problem: MlaRopeAppendCase, inputs: HostArrays, row: number): number[] {
  const { kvLoraRank, kvStride, kvOffset = 0, eps } = problem;
  const from = row * kvStride + kvOffset;
  if (problem.latents === 'ready') return Array.from(inputs['kv_a']!.subarray(from, from + latentWidth(problem)));
  const latent = Array.from(inputs['kv_a']!.subarray(from, from + kvLoraRank));
  const mean = latent.reduce((sum, x) => sum + x * x, 0) / kvLoraRank;
  const normalised = latent.map((x, i) => (x / Math.sqrt(mean + eps)) * inputs['norm_weight']![i]!);
  const key = Array.from(inputs['kv_a']!.subarray(from + kvLoraRank, from + latentWidth(problem)));
  return [...normalised, ...rotate(key, inputs['rope_table']!, problem.rowInfo[row]![0])];
}
