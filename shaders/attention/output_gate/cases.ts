import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { outputGate, type OutputGateProblem } from './index.js';
import { outputGateReference } from './reference.js';

function gateCase(
  name: string,
  [rows, width]: readonly [number, number],
  more: Partial<KernelCase<OutputGateProblem>> = {},
): KernelCase<OutputGateProblem> {
  const stride = alignUp(width, 32);
  return {
    name,
    problem: { rows, width, stride, gateStride: 2 * stride + 5, gateOffset: stride + 3 },
    seed: 47,
    step: { rows, chunks: 1 },
    flops: rows * width * 4,
    bytes: rows * width * 12,
    tolerance: { absolute: 1e-6, relative: 4e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof outputGate.bindings, typeof outputGate.params, OutputGateProblem> = {
  kernel: outputGate,
  cases: [
    gateCase('control', [2, 70], { races: true }),
    gateCase('one element', [1, 1]),
    gateCase('uneven tail', [5, 333]),
    gateCase('a gate per row', [5, 333], { problem: { ...gateCase('', [5, 333]).problem, perRow: true } }),
    gateCase('without a sigmoid', [5, 333], { problem: { ...gateCase('', [5, 333]).problem, open: true } }),
    ...(['silu', 'gelu_tanh', 'gelu'] as const).map((by) =>
      gateCase(`by ${by}`, [5, 333], { problem: { ...gateCase('', [5, 333]).problem, by } }),
    ),
    gateCase('the same gates for all rows', [5, 333], {
      problem: { ...gateCase('', [5, 333]).problem, gateStride: 0, gateOffset: 0, open: true },
    }),
    gateCase('decode 4096', [1, 4096]),
    gateCase('prompt 128 x 2048', [128, 2048]),
  ],
  inputs: ({ rows, stride, gateStride }, random) => {
    const gate = random.normals(gateStride === 0 ? stride : rows * gateStride, 3);
    // Both tails: exp(-g) overflows f32 at g = -89.
    for (const [i, g] of [-200, 200].entries()) if (stride + 3 + i < gate.length) gate[stride + 3 + i] = g;
    return { gate, x: random.normals(rows * stride) };
  },
  outputs: () => ({}),
  reference: outputGateReference,
};
