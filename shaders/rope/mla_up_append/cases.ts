import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { suite as groupedSuite } from '../../linear/linear_grouped/cases.js';
import { packedLayout, WEIGHT_TYPES } from '../../linear/pack.js';
import { linearInputs } from '../../linear/reference.js';
import { appendCase, suite as appendSuite } from '../mla_rope_append/cases.js';
import { absorbProblem } from '../mla_absorb_append/reference.js';
import { mlaUpAppend, type MlaUpAppendProblem } from './index.js';
import { absorbCaseOf, mlaUpAppendReference, type UpCase, upProblem } from './reference.js';

function upCase(
  name: string,
  matrices: Pick<MlaUpAppendProblem, 'loraRank' | 'type' | 'absorbType'>,
  ...[shape, rowInfo, more]: Parameters<typeof appendCase> extends [string, ...infer Rest] ? Rest : never
): KernelCase<UpCase> {
  const given = appendCase(`${matrices.type}, ${name}`, shape, rowInfo, more);
  const { qStride: _stride, qOffset: _offset, latents: _latents, ...token } = given.problem;
  const { heads, qkNopeHeadDim, qkRopeHeadDim, kvLoraRank, rows } = token;
  const kvOffset = alignUp(matrices.loraRank, 32) + 4;
  const problem = {
    ...token,
    ...matrices,
    kvOffset,
    kvStride: alignUp(kvOffset + kvLoraRank + qkRopeHeadDim, 32),
    latentNorm: alignUp(matrices.loraRank, 64),
  };
  const up = packedLayout(matrices.type, heads * (qkNopeHeadDim + qkRopeHeadDim), matrices.loraRank);
  const absorb = packedLayout(matrices.absorbType, kvLoraRank, qkNopeHeadDim);
  const products = heads * ((qkNopeHeadDim + qkRopeHeadDim) * matrices.loraRank + qkNopeHeadDim * kvLoraRank);
  return {
    ...given,
    problem,
    tolerance: { absolute: 1e-4, relative: 2e-5 },
    flops: given.flops + 2 * rows * products,
    bytes: given.bytes + up.weightBytes + up.scaleBytes + heads * absorb.weightBytes,
  };
}

const cases = [
  upCase(
    'tiny, heads of no whole tiles',
    { loraRank: 40, type: 'f32', absorbType: 'f32' },
    { heads: 3, qkNopeHeadDim: 16, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
    [[19, 0]],
    { races: true },
  ),
  upCase(
    'tiny, cache of q8',
    { loraRank: 24, type: 'q8', absorbType: 'f16' },
    { heads: 2, qkNopeHeadDim: 24, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'q8', block: 16 },
    [[19, 0]],
    { races: true },
  ),
  ...WEIGHT_TYPES.map((type) =>
    upCase(
      'three heads, an inactive row',
      { loraRank: 100, type, absorbType: type === 'f32' ? 'f32' : 'f16' },
      { heads: 3, qkNopeHeadDim: 48, kvLoraRank: 72, qkRopeHeadDim: 16, kvType: 'f32', block: 16 },
      [[40, 1], undefined, [3, 0]],
    ),
  ),
  upCase(
    '40 heads, 64 + 32 of 768',
    { loraRank: 768, type: 'q4', absorbType: 'f16' },
    { heads: 40, qkNopeHeadDim: 64, kvLoraRank: 256, qkRopeHeadDim: 32, kvType: 'f16', block: 64 },
    [[5, 0]],
  ),
  upCase(
    '5 heads, 128 + 64 of 1536',
    { loraRank: 1536, type: 'q4', absorbType: 'f16' },
    { heads: 5, qkNopeHeadDim: 128, kvLoraRank: 512, qkRopeHeadDim: 64, kvType: 'f16', block: 64 },
    [[5, 0]],
  ),
];

/** The cache starts as NaN; a row that isn't active is NaN. */
function inputs(problem: UpCase, random: Random): HostArrays {
  const { loraRank, kvLoraRank, kvStride, latentNorm, rows, rowInfo } = problem;
  const absorbs = absorbCaseOf(problem);
  const { q: _q, kv_a: _kvA, ...tokens } = appendSuite.inputs({ ...absorbs, latents: undefined }, random);
  const { weight: absorb } = groupedSuite.inputs(absorbProblem(absorbs), random);
  const { x: _x, ...up } = linearInputs(upProblem(problem), random);
  const norms = new Float32Array(latentNorm + alignUp(kvLoraRank, 32));
  norms.set(random.normals(loraRank));
  norms.set(random.normals(kvLoraRank), latentNorm);
  const x = new Float32Array(rows * kvStride).fill(Number.NaN);
  for (const [row, info] of rowInfo.entries()) if (info) x.set(random.normals(kvStride, 3), row * kvStride);
  return { ...tokens, ...up, absorb: absorb!, norm_weight: norms, x };
}

export const suite: KernelSuite<typeof mlaUpAppend.bindings, typeof mlaUpAppend.params, UpCase> = {
  kernel: mlaUpAppend,
  cases,
  inputs,
  outputs: ({ rows, qAbsStride }) => ({ out: { type: 'f32', length: rows * qAbsStride } }),
  reference: mlaUpAppendReference,
};
