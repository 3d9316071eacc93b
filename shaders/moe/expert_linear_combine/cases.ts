import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { expertLayout } from '../experts.js';
import { expertInputs, expertProblem, randomExperts, UNTOUCHED } from '../fixture.js';
import { expertLinearCombine, type ExpertCombineProblem } from './index.js';
import { downProblem, expertCombineReference } from './reference.js';

function combineCase(
  name: string,
  [rows, experts, topK]: readonly [rows: number, experts: number, topK: number],
  [inFeatures, outFeatures]: readonly [number, number],
  { races = false, ...rest }: Partial<ExpertCombineProblem> & { readonly races?: boolean } = {},
): KernelCase<ExpertCombineProblem> {
  const {
    epilogue: _e,
    clamped: _c,
    xPerSlot: _x,
    ...problem
  } = expertProblem(rows, [experts, topK], inFeatures, outFeatures, rest);
  const { weightBytes, scaleBytes } = expertLayout(downProblem(problem));
  return {
    name,
    problem,
    seed: 14,
    step: { rows, chunks: 1 },
    flops: 2 * rows * topK * (inFeatures + 1) * outFeatures,
    bytes: rows * topK * (weightBytes + scaleBytes),
    tolerance: { absolute: 5e-5, relative: 1e-5 },
    races,
  };
}

export const suite: KernelSuite<
  typeof expertLinearCombine.bindings,
  typeof expertLinearCombine.params,
  ExpertCombineProblem
> = {
  kernel: expertLinearCombine,
  cases: [
    combineCase('f16, one of 4', [1, 4, 1], [40, 24], { races: true }),
    combineCase('f16, 2 of 8, 3 rows', [3, 8, 2], [72, 33], { races: true }),
    combineCase('f32, 6 of 64, 33 rows', [33, 64, 6], [40, 33], { type: 'f32' }),
    combineCase('q8, every one of 3', [2, 3, 3], [96, 128], { type: 'q8' }),
    combineCase('q4, 14 of 16, wide strides', [2, 16, 14], [72, 40], { type: 'q4', xStride: 100, outStride: 41 }),
    combineCase('mxfp4, 4 of 32, biased', [2, 32, 4], [360, 129], { type: 'mxfp4', bias: true }),
    combineCase('q4, 6 of 16, 1408 to 512', [1, 16, 6], [1408, 512], { type: 'q4' }),
  ],
  inputs: (problem, random) => {
    const { rows, topK, experts, outFeatures, outStride } = problem;
    const out = new Float32Array(rows * outStride).fill(UNTOUCHED);
    for (let row = 0; row < rows; row++) out.set(random.normals(outFeatures), row * outStride);
    return {
      ...expertInputs(downProblem(problem), random),
      expert_ids: randomExperts(rows, topK, experts, random),
      expert_weights: random.normals(rows * topK),
      out,
    };
  },
  outputs: () => ({}),
  reference: expertCombineReference,
};
