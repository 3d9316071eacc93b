import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { reduceSegments, type ReduceSegmentsProblem } from './index.js';
import { reference } from './reference.js';

function reduceCase(
  name: string,
  rows: number,
  segmentCount: number,
  outFeatures: number,
  rest: Partial<ReduceSegmentsProblem> = {},
  races = false,
): KernelCase<ReduceSegmentsProblem> {
  const stride = alignUp(outFeatures, 32);
  return {
    name,
    problem: {
      rows,
      segmentCount,
      outFeatures,
      inStride: stride,
      outStride: stride,
      bias: false,
      epilogue: 'none',
      ...rest,
    },
    seed: 3,
    flops: rows * segmentCount * outFeatures,
    bytes: 4 * rows * outFeatures * (segmentCount + 1),
    step: { rows, chunks: 1 },
    races,
  };
}

export const suite: KernelSuite<typeof reduceSegments.bindings, typeof reduceSegments.params, ReduceSegmentsProblem> = {
  kernel: reduceSegments,
  cases: [
    reduceCase('one segment, one output', 1, 1, 1),
    reduceCase('8 segments', 3, 8, 33, {}, true),
    reduceCase('residual and bias', 17, 8, 576, { bias: true, epilogue: 'residual' }),
    reduceCase('a shard of the outputs', 2, 3, 40, { outOffset: 24, outStride: 96 }),
    reduceCase('sums of subtrees', 3, 7, 33, { begins: [0, 4, 6] }),
    reduceCase('a subtree of many, and what is left', 2, 70, 33, { begins: [0, 64, 65, 66, 68] }),
    reduceCase('8 segments of 256 x 2048', 256, 8, 2048, { epilogue: 'residual' }),
  ],
  inputs: ({ rows, segmentCount, outFeatures, inStride, outStride, bias, epilogue }, random) => ({
    segments: random.normals(segmentCount * rows * inStride),
    ...(bias ? { bias: random.normals(outFeatures) } : {}),
    ...(epilogue === 'residual' ? { out: random.normals(rows * outStride) } : {}),
  }),
  outputs: ({ rows, outStride, epilogue }): Record<string, { type: 'f32'; length: number }> =>
    epilogue === 'residual' ? {} : { out: { type: 'f32', length: rows * outStride } },
  reference,
};
