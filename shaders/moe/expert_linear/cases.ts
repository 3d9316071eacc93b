import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { expertLayout } from '../experts.js';
import { expertInputs, expertProblem, oaiProblem, randomExperts } from '../fixture.js';
import { expertLinear, type ExpertLinearProblem } from './index.js';
import { expertLinearReference } from './reference.js';
import { someKept } from '../../linear/testing/kept_tiles.js';

function expertCase(name: string, problem: ExpertLinearProblem, more: Partial<KernelCase<ExpertLinearProblem>> = {}) {
  const { rows, topK, inFeatures } = problem;
  const { tiles, weightBytes, scaleBytes } = expertLayout(problem);
  return {
    name,
    problem,
    seed: 4,
    step: { rows, chunks: 1 },
    flops: 2 * rows * topK * inFeatures * tiles * 32,
    bytes: rows * topK * (weightBytes + scaleBytes),
    // f32 accumulation of up to 2048 products of unit size against float64; swiglu multiplies two of them.
    tolerance:
      problem.epilogue === 'swiglu' || problem.epilogue === 'up'
        ? { absolute: 5e-5, relative: 5e-5 }
        : { absolute: 2e-5, relative: 1e-5 },
    ...more,
  };
}

const SWIGLU = { epilogue: 'swiglu' } as const;
const DOWN = { xPerSlot: true } as const;

export const suite: KernelSuite<typeof expertLinear.bindings, typeof expertLinear.params, ExpertLinearProblem> = {
  kernel: expertLinear,
  cases: [
    expertCase('f16, one of 4, gate and up', expertProblem(1, [4, 1], 40, 24, SWIGLU), { races: true }),
    expertCase('f16, 2 of 8, gate and up', expertProblem(3, [8, 2], 72, 33, SWIGLU)),
    expertCase('f32, 6 of 64, down', expertProblem(33, [64, 6], 40, 33, { type: 'f32', ...DOWN })),
    expertCase('q4, 8 of 160, gate and up', expertProblem(3, [160, 8], 72, 24, { type: 'q4', ...SWIGLU })),
    expertCase('q8, 6 of 8, down', expertProblem(3, [8, 6], 96, 128, { type: 'q8', ...DOWN })),
    expertCase('f32, every expert', expertProblem(1, [4, 4], 72, 40, { type: 'f32' })),
    expertCase(
      'f16, experts 3 to 4 of 8',
      expertProblem(3, [8, 6], 72, 33, { ...SWIGLU, expertFirst: 3, expertCount: 2 }),
    ),
    expertCase('q8, the last expert of 8', expertProblem(3, [8, 6], 40, 33, { type: 'q8', ...DOWN, expertFirst: 7 })),
    expertCase('f32, wider strides', expertProblem(2, [4, 2], 40, 24, { type: 'f32', xStride: 68, outStride: 25 })),
    ...someKept('expert_linear').flatMap((type) => [
      expertCase(`${type}, 2 of 4, gate and up`, expertProblem(2, [4, 2], 512, 33, { type, ...SWIGLU })),
      expertCase(`${type}, 2 of 4, norm`, { ...expertProblem(1, [4, 2], 256, 40, { type, ...SWIGLU }), normEps: 1e-5 }),
    ]),
    expertCase('q4, 2048 inputs', expertProblem(1, [3, 2], 2048, 96, { type: 'q4', ...SWIGLU })),
    expertCase(
      'f32, 2 of 4, gate and up, gelu',
      expertProblem(2, [4, 2], 72, 33, { type: 'f32', activation: 'gelu_tanh', ...SWIGLU }),
    ),
    expertCase('mxfp4, 2 of 4, gate and up, biased and clamped', oaiProblem(2, [4, 2], [72, 33])),
    expertCase('mxfp4, 4 of 32, gate and up, biased and clamped, norm', {
      ...oaiProblem(1, [32, 4], [360, 96]),
      normEps: 1e-5,
    }),
    expertCase(
      'mxfp4, experts 3 to 4 of 8, down, biased',
      expertProblem(3, [8, 6], 96, 65, {
        type: 'mxfp4',
        bias: true,
        biasFirst: 1,
        ...DOWN,
        expertFirst: 3,
        expertCount: 2,
      }),
    ),
    expertCase(
      'f32, biases of rows, experts 3 to 4 of 8',
      expertProblem(3, [8, 6], 72, 33, {
        ...SWIGLU,
        type: 'f32',
        bias: true,
        rowBias: true,
        expertFirst: 3,
        expertCount: 2,
      }),
    ),
    ...(['gate', 'up'] as const).flatMap((epilogue) => [
      expertCase(`f16, ${epilogue} alone`, expertProblem(3, [4, 2], 72, 33, { epilogue })),
      expertCase(`f16, ${epilogue} alone, clamped`, oaiProblem(2, [4, 2], [72, 33], { type: 'f16', epilogue })),
      expertCase(
        `q8, ${epilogue} alone, biases of rows, gelu`,
        expertProblem(2, [4, 2], 72, 33, { type: 'q8', epilogue, activation: 'gelu_tanh', bias: true, rowBias: true }),
      ),
    ]),
    expertCase('f16, norm', { ...expertProblem(1, [4, 2], 40, 24, SWIGLU), normEps: 1e-5 }, { races: true }),
    expertCase('q8, norm, 3 rows of 100', {
      ...expertProblem(3, [8, 3], 100, 33, { type: 'q8', ...SWIGLU, expertFirst: 2, expertCount: 4 }),
      normEps: 1e-6,
    }),
  ],
  inputs: (problem, random) => ({
    ...expertInputs(problem, random),
    expert_ids: randomExperts(problem.rows, problem.topK, problem.experts, random),
    ...(problem.normEps !== undefined && { norm_weight: random.normals(alignUp(problem.inFeatures, 4)) }),
  }),
  outputs: () => ({}),
  reference: expertLinearReference,
};

/** x, ids and out of `row` alone; the weights whole. */
export function oneRow(
  problem: ExpertLinearProblem,
  inputs: ReturnType<typeof suite.inputs>,
  row: number,
): typeof inputs {
  const { topK, xStride, xPerSlot, outStride } = problem;
  const width = xStride * (xPerSlot ? topK : 1);
  return {
    ...inputs,
    x: inputs['x']!.slice(row * width, (row + 1) * width),
    expert_ids: inputs['expert_ids']!.slice(row * topK, (row + 1) * topK),
    out: inputs['out']!.slice(0, topK * outStride),
  };
}
