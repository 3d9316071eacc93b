import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { suite as groupedSuite } from '../linear_grouped/cases.js';
import { partialInputs } from '../linear_merge/cases.js';
import { packedLayout, WEIGHT_TYPES } from '../pack.js';
import { linearGroupedMerge } from './index.js';
import { groupedProblem, type GroupedMergeCase, linearGroupedMergeReference } from './reference.js';
import { someKept } from '../testing/kept_tiles.js';

function groupedMergeCase(
  name: string,
  [groups, inFeatures, outFeatures]: readonly [number, number, number],
  position: number,
  rest: Partial<GroupedMergeCase> = {},
  races = false,
): KernelCase<GroupedMergeCase> {
  const problem = {
    groups,
    inFeatures,
    outFeatures,
    type: 'f16' as const,
    partials: Math.floor(position / 256) + 2,
    position,
    outGroupStride: outFeatures,
    outStride: alignUp(groups * outFeatures, 32),
    ...rest,
  };
  const layout = packedLayout(problem.type, outFeatures, inFeatures);
  return {
    name,
    problem,
    seed: 12,
    tolerance: { absolute: 4e-5, relative: 2e-5 },
    flops: 2 * groups * inFeatures * outFeatures,
    bytes: groups * (layout.weightBytes + layout.scaleBytes + 4 * outFeatures),
    step: { rows: 1, chunks: Math.floor(position / 256) + 1 },
    races,
  };
}

const cases = [
  groupedMergeCase('tiny', [2, 8, 33], 300, {}, true),
  groupedMergeCase('one partial only', [3, 32, 40], 255, { partials: 1 }),
  groupedMergeCase('four chunks, groups apart', [3, 32, 24], 1023, { outGroupStride: 40, outStride: 128 }),
  ...WEIGHT_TYPES.map((type) => groupedMergeCase(`${type}, slices cut units`, [2, 72, 33], 600, { type })),
  ...someKept('linear_grouped_merge').map((type) =>
    groupedMergeCase(`${type}, 2 heads from 512`, [2, 512, 33], 600, { type }),
  ),
  groupedMergeCase('q4, 16 heads from 512 to 128', [16, 512, 128], 700, { type: 'q4' }),
];

export const suite: KernelSuite<
  typeof linearGroupedMerge.bindings,
  typeof linearGroupedMerge.params,
  GroupedMergeCase
> = {
  kernel: linearGroupedMerge,
  cases,
  inputs: (problem, random) => {
    const { x: _x, ...matrices } = groupedSuite.inputs(groupedProblem(problem), random);
    const { groups: heads, inFeatures: headDim } = problem;
    return { ...matrices, ...partialInputs({ ...problem, heads, headDim }, random) };
  },
  outputs: ({ outStride }) => ({ out: { type: 'f32', length: outStride } }),
  reference: linearGroupedMergeReference,
};
