import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { rowsProblem } from '../linear/cases.js';
import { packedLayout, WEIGHT_TYPES } from '../pack.js';
import { linearInputs, outLength } from '../reference.js';
import { linearAddNorm, type LinearAddNormProblem } from './index.js';
import { linearAddNormReference } from './reference.js';

function addedCase(
  name: string,
  [inFeatures, outFeatures]: readonly [number, number],
  { rows = 1, scaled = false, ...rest }: Partial<LinearAddNormProblem> = {},
  extra: Partial<KernelCase<LinearAddNormProblem>> = {},
): KernelCase<LinearAddNormProblem> {
  const problem = { ...rowsProblem(rows, inFeatures, outFeatures, { norm: true, eps: 1e-6, ...rest }), scaled };
  const outputs = outFeatures * (problem.epilogue === 'swiglu' ? 2 : 1);
  const layout = packedLayout(problem.type, outputs, inFeatures);
  return {
    name,
    problem,
    seed: 31,
    tolerance: { absolute: 5e-5, relative: 5e-5 },
    flops: 2 * rows * inFeatures * outputs,
    bytes: layout.weightBytes + layout.scaleBytes + 4 * rows * (6 * inFeatures + outFeatures),
    step: { rows, chunks: 1 },
    ...extra,
  };
}

const small = { races: true };

const cases = [
  addedCase('tiny', [40, 33], {}, small),
  addedCase('without a second norm', [100, 33], { norm: false }, small),
  addedCase('bias and gate', [100, 40], { bias: true, epilogue: 'swiglu', activation: 'gelu_tanh' }),
  addedCase('without a second norm, gate', [96, 72], { norm: false, epilogue: 'swiglu', type: 'q8' }),
  addedCase('width of no multiple of 4', [259, 33]),
  addedCase('a scaled sum', [260, 33], { scaled: true }, small),
  addedCase('a scaled sum, width of no multiple of 4', [259, 33], { scaled: true }),
  addedCase('gelu', [1100, 40], { epilogue: 'gelu', bias: true }),
  addedCase('large eps', [96, 33], { eps: 0.5 }),
  addedCase('two rows', [40, 33], { rows: 2 }, small),
  addedCase('a tile and a row, scaled', [259, 33], { rows: 5, scaled: true }),
  addedCase('three rows without a second norm', [1100, 33], { rows: 3, norm: false }),
  ...WEIGHT_TYPES.map((type) => addedCase(`${type}, 1152 x 576`, [1152, 576], { type })),
];

const large = WEIGHT_TYPES.map((type) =>
  addedCase(`${type}, large`, [2304, 9216], { type, epilogue: 'swiglu' }, { large: true }),
);

export const suite: KernelSuite<typeof linearAddNorm.bindings, typeof linearAddNorm.params, LinearAddNormProblem> = {
  kernel: linearAddNorm,
  cases: [...cases, ...large],
  inputs: (problem, random) => {
    const { rows, inFeatures, xStride } = problem;
    const added = new Float32Array(rows * xStride);
    for (let row = 0; row < rows; row++) added.set(random.normals(inFeatures, 3), row * xStride);
    const weight = new Float32Array(alignUp(inFeatures + 1, 4));
    weight.set(random.normals(inFeatures + 1));
    return { ...linearInputs(problem, random), added, added_weight: weight };
  },
  outputs: (problem) => ({
    out: { type: 'f32', length: outLength(problem) },
    x_out: { type: 'f32', length: problem.rows * problem.xStride },
  }),
  reference: linearAddNormReference,
};
