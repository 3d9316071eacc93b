import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { PLACES, rowInfoOf, SLOTS } from '../fixture.js';
import { causalConv, type CausalConvProblem } from './index.js';
import { causalConvReference } from './reference.js';

function convCase(
  name: string,
  [rows, width, taps]: readonly [number, number, number],
  { oneRun = false, gated = false, bias = false }: Partial<CausalConvProblem> = {},
  more: Partial<KernelCase<CausalConvProblem>> = {},
): KernelCase<CausalConvProblem> {
  const xStride = alignUp((gated ? 3 : 1) * width, 32);
  return {
    name,
    problem: { rows, oneRun, width, taps, gated, bias, xStride, outStride: alignUp(width, 32) },
    seed: 31,
    step: { rows, chunks: 1 },
    flops: rows * width * (2 * taps + (gated ? 2 : 5)),
    bytes: rows * width * (gated ? 16 : 8),
    tolerance: { absolute: 1e-6, relative: 3e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof causalConv.bindings, typeof causalConv.params, CausalConvProblem> = {
  kernel: causalConv,
  cases: [
    convCase('control', [6, 40, 4], {}, { races: true }),
    convCase('control, gated', [6, 40, 3], { gated: true }, { races: true }),
    convCase('control, biased', [6, 40, 4], { bias: true }, { races: true }),
    convCase('one channel, two taps', [1, 1, 2]),
    convCase('fewer rows than taps', [2, 33, 8], { gated: true }),
    convCase('runs of several slots', [13, 100, 4]),
    convCase('prompt that goes on', [17, 72, 4], { oneRun: true }),
    convCase('prompt from its beginning, gated', [16, 72, 3], { oneRun: true, gated: true }),
    convCase('prompt that goes on, biased', [17, 72, 4], { oneRun: true, bias: true }),
    convCase('prompt of fewer rows than taps', [5, 40, 8], { oneRun: true }),
    convCase('decode 6144', [1, 6144, 4]),
    convCase('prompt 128 x 2048', [128, 2048, 3], { oneRun: true, gated: true }),
  ],
  inputs: ({ rows, oneRun, width, taps, xStride, outStride }, random) => ({
    x: random.normals(rows * xStride),
    weight: random.normals(width * taps, 0.5),
    bias: random.normals(width),
    row_info: rowInfoOf(rows, oneRun).rowInfo,
    places: PLACES,
    state: random.normals(SLOTS * (taps - 1) * width),
    out: random.normals(rows * outStride),
  }),
  outputs: () => ({}),
  reference: causalConvReference,
};
