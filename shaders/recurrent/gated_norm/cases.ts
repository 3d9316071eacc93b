import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { gatedNorm, type GatedNormProblem } from './index.js';
import { gatedNormReference } from './reference.js';

function normCase(
  name: string,
  [rows, heads, width]: readonly [number, number, number],
  more: Partial<KernelCase<GatedNormProblem>> = {},
): KernelCase<GatedNormProblem> {
  const stride = alignUp(heads * width, 32);
  return {
    name,
    problem: { rows, heads, width, stride, gateStride: stride + 64, gateOffset: 40, eps: 1e-6 },
    seed: 43,
    step: { rows, chunks: 1 },
    flops: rows * heads * width * 9,
    bytes: rows * heads * width * 12,
    tolerance: { absolute: 1e-6, relative: 4e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof gatedNorm.bindings, typeof gatedNorm.params, GatedNormProblem> = {
  kernel: gatedNorm,
  cases: [
    normCase('control', [2, 3, 20], { races: true }),
    normCase('one head of 4', [1, 1, 4]),
    normCase('heads of 260', [3, 2, 260]),
    normCase('decode 32 heads of 128', [1, 32, 128]),
    normCase('prompt 128', [128, 16, 128]),
  ],
  inputs: ({ rows, width, stride, gateStride }, random) => ({
    gate: random.normals(rows * gateStride, 3),
    weight: random.normals(width),
    x: random.normals(rows * stride, 0.01),
  }),
  outputs: () => ({}),
  reference: gatedNormReference,
};
