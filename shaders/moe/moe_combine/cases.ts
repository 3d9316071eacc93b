import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { UNTOUCHED } from '../fixture.js';
import { moeCombine, type MoeCombineProblem } from './index.js';
import { combineReference } from './reference.js';

function combineCase(
  rows: number,
  topK: number,
  width: number,
  more: Partial<KernelCase<MoeCombineProblem>> = {},
): KernelCase<MoeCombineProblem> {
  const stride = alignUp(width, 32);
  return {
    name: `${rows} rows of ${width}, ${topK} experts`,
    problem: { rows, topK, width, inStride: stride, stride },
    seed: 8,
    step: { rows, chunks: 1 },
    flops: 2 * rows * topK * width,
    bytes: 4 * rows * width * (topK + 2),
    tolerance: { absolute: 2e-6, relative: 2e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof moeCombine.bindings, typeof moeCombine.params, MoeCombineProblem> = {
  kernel: moeCombine,
  cases: [
    combineCase(1, 1, 24, { races: true }),
    combineCase(3, 2, 33, { races: true }),
    combineCase(33, 6, 128),
    combineCase(1, 8, 2048),
    combineCase(3, 6, 300, {
      name: 'strides of their own',
      problem: { rows: 3, topK: 6, width: 300, inStride: 300, stride: 352 },
    }),
  ],
  inputs: ({ rows, topK, width, inStride, stride }, random) => {
    const x = new Float32Array(rows * stride).fill(UNTOUCHED);
    for (let row = 0; row < rows; row++) x.set(random.normals(width), row * stride);
    return { expert_out: random.normals(rows * topK * inStride), expert_weights: random.normals(rows * topK), x };
  },
  outputs: () => ({}),
  reference: (problem, inputs) => ({ x: combineReference(problem, problem.rows, inputs) }),
};
