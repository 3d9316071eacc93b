import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { PLACES, rowInfoOf, SLOTS } from '../fixture.js';
import { deltaStep, type DeltaStepProblem } from './index.js';
import { deltaStepReference } from './reference.js';

function stepCase(
  name: string,
  [rows, taps]: readonly [number, number],
  [keyHeads, ratio, keyDim, valueDim]: readonly [number, number, number, number],
  more: Partial<KernelCase<DeltaStepProblem>> = {},
): KernelCase<DeltaStepProblem> {
  const valueHeads = keyHeads * ratio;
  const [channels, values] = [2 * keyHeads * keyDim + valueHeads * valueDim, valueHeads * valueDim];
  const xStride = alignUp(channels + values + 2 * valueHeads, 32);
  const shape = { keyHeads, ratio, keyDim, valueDim };
  return {
    name,
    problem: { rows, ...shape, taps, xStride, outStride: alignUp(values, 32), eps: 1e-6 },
    seed: 47,
    step: { rows, chunks: 1 },
    flops: rows * (values * keyDim * 7 + channels * (2 * taps + 5)),
    bytes: rows * (values * keyDim * 8 + (channels * 3 * taps + values * 2) * 4),
    tolerance: { absolute: 1e-5, relative: 1e-5 },
    ...more,
  };
}

export const suite: KernelSuite<typeof deltaStep.bindings, typeof deltaStep.params, DeltaStepProblem> = {
  kernel: deltaStep,
  cases: [
    stepCase('control', [5, 4], [2, 2, 8, 12], { races: true }),
    stepCase('one key head, one value head, two taps', [1, 2], [1, 1, 4, 4]),
    stepCase('runs of several slots', [13, 4], [3, 1, 24, 20]),
    stepCase('columns in turns, the last one short', [2, 8], [2, 3, 16, 200]),
    stepCase('widest heads', [2, 4], [1, 1, 256, 256]),
    stepCase('decode 16 heads of 128', [1, 4], [16, 1, 128, 128]),
    stepCase('decode 16 x 2 heads of 128', [1, 4], [16, 2, 128, 128]),
    stepCase('batch of 8, 4 heads of 128', [8, 4], [4, 1, 128, 128]),
  ],
  inputs: ({ rows, keyHeads, ratio, keyDim, valueDim, taps, xStride, outStride }, random) => {
    const valueHeads = keyHeads * ratio;
    const channels = 2 * keyHeads * keyDim + valueHeads * valueDim;
    return {
      x: random.normals(rows * xStride),
      taps: random.normals(channels * taps, 0.5),
      row_info: rowInfoOf(rows, false).rowInfo,
      places: PLACES,
      rates: Float32Array.from({ length: valueHeads }, () => 16 * random.next()),
      dt_bias: random.normals(valueHeads),
      norm: random.normals(valueDim),
      conv_state: random.normals(SLOTS * (taps - 1) * channels),
      memory: random.normals(SLOTS * valueHeads * keyDim * valueDim, 0.3),
      out: random.normals(rows * outStride),
    };
  },
  outputs: () => ({}),
  reference: deltaStepReference,
};
