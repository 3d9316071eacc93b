import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { clip, type ClipProblem } from './index.js';
import { clipReference } from './reference.js';

function clipCase(
  name: string,
  [rows, width]: readonly [number, number],
  gated = false,
  more: Partial<KernelCase<ClipProblem>> = {},
): KernelCase<ClipProblem> {
  const problem = { rows, width, xStride: 2 * width + 7, xOffset: 3, outStride: width + 9, outOffset: 5, boundsAt: 2 };
  return {
    name,
    problem: { ...problem, ...(gated && { up: { offset: width + 4, boundsAt: 4 } }) },
    seed: 53,
    step: { rows, chunks: 1 },
    flops: rows * width * (gated ? 12 : 2),
    bytes: rows * width * (gated ? 12 : 8),
    tolerance: gated ? { absolute: 2e-6, relative: 4e-6 } : { absolute: 0, relative: 0 },
    ...more,
  };
}

export const suite: KernelSuite<typeof clip.bindings, typeof clip.params, ClipProblem> = {
  kernel: clip,
  cases: [
    clipCase('control', [2, 70], true, { races: true }),
    clipCase('one element', [1, 1]),
    clipCase('uneven tail', [5, 333]),
    clipCase('a gate, uneven tail', [5, 333], true),
    clipCase('prompt 128 x 2048', [128, 2048]),
  ],
  inputs: ({ rows, xStride }, random) => {
    return { x: random.normals(rows * xStride, 2), bounds: Float32Array.of(7, 7, -1.5, 2.25, -3, 0.5) };
  },
  outputs: ({ rows, outStride }) => ({ out: { type: 'f32', length: rows * outStride } }),
  reference: clipReference,
};
