import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { PLACES, rowInfoOf, SLOTS } from '../../recurrent/fixture.js';
import { type MatrixType, packedLayout, WEIGHT_TYPES } from '../pack.js';
import { linearInputs } from '../reference.js';
import { linearConv } from './index.js';
import { type ConvCase, linearConvReference, linearProblem } from './reference.js';
import { someKept } from '../testing/kept_tiles.js';

function convCase(
  name: string,
  [inFeatures, width, taps]: readonly [number, number, number],
  type: MatrixType,
  goesOn = true,
  more: Partial<KernelCase<ConvCase>> = {},
): KernelCase<ConvCase> {
  const layout = packedLayout(type, 3 * width, inFeatures);
  return {
    name,
    problem: { inFeatures, width, taps, type, goesOn, xStride: alignUp(inFeatures, 32), eps: 1e-5 },
    seed: 53,
    step: { rows: 1, chunks: 1 },
    flops: 6 * inFeatures * width,
    bytes: layout.weightBytes + layout.scaleBytes + width * taps * 12,
    tolerance: { absolute: 1e-4, relative: 2e-5 },
    ...more,
  };
}

export const suite: KernelSuite<typeof linearConv.bindings, typeof linearConv.params, ConvCase> = {
  kernel: linearConv,
  cases: [
    convCase('tiny', [20, 32, 3], 'f32', true, { races: true }),
    convCase('a first row, 8 taps', [72, 96, 8], 'f16', false),
    convCase('two taps', [40, 64, 2], 'q8'),
    ...WEIGHT_TYPES.map((type) => convCase(`${type}, 1024 channels`, [1024, 1024, 3], type)),
    ...someKept('linear_conv').map((type) => convCase(`${type}, 256 channels`, [512, 256, 3], type)),
    convCase('q4, 2048 channels', [2048, 2048, 3], 'q4', true, { large: true }),
  ],
  inputs: (problem, random) => {
    const { width, taps, goesOn } = problem;
    return {
      ...linearInputs(linearProblem(problem), random),
      taps: random.normals(width * taps, 0.5),
      row_info: rowInfoOf(1, goesOn).rowInfo,
      places: PLACES,
      state: random.normals(SLOTS * (taps - 1) * width),
    };
  },
  outputs: ({ width }) => ({ out: { type: 'f32', length: width } }),
  reference: linearConvReference,
};
