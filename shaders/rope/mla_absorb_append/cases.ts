import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { suite as groupedSuite } from '../../linear/linear_grouped/cases.js';
import { packedLayout, WEIGHT_TYPES, type WeightType } from '../../linear/pack.js';
import { appendCase, suite as appendSuite } from '../mla_rope_append/cases.js';
import { mlaAbsorbAppend } from './index.js';
import { type AbsorbCase, absorbProblem, mlaAbsorbAppendReference } from './reference.js';

function absorbCase(type: WeightType, ...[name, ...rest]: Parameters<typeof appendCase>): KernelCase<AbsorbCase> {
  const given = appendCase(`${type}, ${name}`, ...rest);
  const { heads, qkNopeHeadDim, kvLoraRank, rows } = given.problem;
  const layout = packedLayout(type, kvLoraRank, qkNopeHeadDim);
  return {
    ...given,
    problem: { ...given.problem, type },
    // Queries have deviation 3.
    tolerance: { absolute: 5e-5, relative: 2e-5 },
    flops: given.flops + 2 * rows * heads * qkNopeHeadDim * kvLoraRank,
    bytes: given.bytes + heads * (layout.weightBytes + layout.scaleBytes),
  };
}

const cases = [
  absorbCase(
    'f32',
    'tiny',
    { heads: 3, qkNopeHeadDim: 16, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
    [
      [19, 0],
      [0, 1],
    ],
    { races: true },
  ),
  absorbCase(
    'q8',
    'tiny q8, slices cut units',
    { heads: 2, qkNopeHeadDim: 24, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'q8', block: 16 },
    [[19, 0]],
    { races: true },
  ),
  ...WEIGHT_TYPES.map((type) =>
    absorbCase(
      type,
      'three heads, an inactive row',
      { heads: 3, qkNopeHeadDim: 24, kvLoraRank: 32, qkRopeHeadDim: 16, kvType: 'f32', block: 16 },
      [[40, 1], undefined, [3, 0]],
    ),
  ),
  // So many heads, and so few tiles of outputs, that rotation takes several rows of workgroups.
  absorbCase(
    'f16',
    '40 heads, 8 + 256',
    { heads: 40, qkNopeHeadDim: 8, kvLoraRank: 8, qkRopeHeadDim: 256, kvType: 'f16', block: 16 },
    [[5, 0]],
  ),
  absorbCase(
    'q4',
    '16 heads, 512 + 64',
    { heads: 16, qkNopeHeadDim: 128, kvLoraRank: 512, qkRopeHeadDim: 64, kvType: 'f32', block: 64 },
    [[40, 0]],
  ),
];

/** The cache starts as NaN, and q around its heads. */
function inputs(problem: AbsorbCase, random: Random): HostArrays {
  const { x: _x, ...matrices } = groupedSuite.inputs(absorbProblem(problem), random);
  return { ...appendSuite.inputs(problem, random), ...matrices };
}

export const suite: KernelSuite<typeof mlaAbsorbAppend.bindings, typeof mlaAbsorbAppend.params, AbsorbCase> = {
  kernel: mlaAbsorbAppend,
  cases,
  inputs,
  outputs: ({ rows, qAbsStride }) => ({ out: { type: 'f32', length: rows * qAbsStride } }),
  reference: mlaAbsorbAppendReference,
};
