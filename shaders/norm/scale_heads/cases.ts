import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { scaleHeads, type ScaleHeadsProblem } from './index.js';
import { scaleHeadsReference } from './reference.js';

function scaleCase(
  name: string,
  [rows, segments, q, k]: readonly [number, number, number, number],
  more: Partial<KernelCase<ScaleHeadsProblem>> = {},
): KernelCase<ScaleHeadsProblem> {
  return {
    name,
    problem: {
      rows,
      segments,
      squaresStride: 64,
      width: q + k,
      kStart: q,
      stride: alignUp(q + 2 * k, 32),
      qTotal: 2 * q,
      kTotal: 2 * k,
      eps: 1e-6,
    },
    seed: 67,
    step: { rows, chunks: 1 },
    flops: 2 * rows * (q + k),
    bytes: 8 * rows * (q + k),
    tolerance: { absolute: 1e-6, relative: 3e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof scaleHeads.bindings, typeof scaleHeads.params, ScaleHeadsProblem> = {
  kernel: scaleHeads,
  cases: [
    scaleCase('control', [2, 3, 48, 24], { races: true }),
    scaleCase('one segment', [1, 1, 8, 8]),
    scaleCase('uneven tail', [5, 4, 536, 268]),
    scaleCase('decode 2048', [1, 16, 2048, 2048]),
    scaleCase('prompt 128 x 4096', [128, 8, 4096, 1024]),
  ],
  inputs: ({ rows, segments, squaresStride, width, stride }, random) => ({
    squares: random.normals(segments * rows * squaresStride, 30).map(Math.abs),
    weight: random.normals(width),
    x: random.normals(rows * stride),
  }),
  outputs: () => ({}),
  reference: scaleHeadsReference,
};
