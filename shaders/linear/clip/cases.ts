import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { clip, type ClipProblem } from './index.js';
import { clipReference } from './reference.js';

function clipCase(
  name: string,
  [rows, width]: readonly [number, number],
  { gated = false, ...also }: { readonly gated?: boolean } & Pick<ClipProblem, 'silu' | 'adds'> = {},
  more: Partial<KernelCase<ClipProblem>> = {},
): KernelCase<ClipProblem> {
  const problem = { rows, width, xStride: 2 * width + 7, xOffset: 3, outStride: width + 9, outOffset: 5, boundsAt: 2 };
  return {
    name,
    problem: { ...problem, ...also, ...(gated && { up: { offset: width + 4, boundsAt: 4 } }) },
    seed: 53,
    step: { rows, chunks: 1 },
    flops: rows * width * (gated ? 12 : 2),
    bytes: rows * width * (gated ? 12 : 8),
    tolerance: gated || also.silu || also.adds ? { absolute: 2e-6, relative: 4e-6 } : { absolute: 0, relative: 0 },
    ...more,
  };
}

export const suite: KernelSuite<typeof clip.bindings, typeof clip.params, ClipProblem> = {
  kernel: clip,
  cases: [
    clipCase('control', [2, 70], { gated: true }, { races: true }),
    clipCase('one element', [1, 1]),
    clipCase('uneven tail', [5, 333]),
    clipCase('a gate, uneven tail', [5, 333], { gated: true }),
    clipCase('SiLU', [5, 333], { silu: true }),
    clipCase('added to', [5, 333], { adds: true }),
    clipCase('prompt 128 x 2048', [128, 2048]),
  ],
  inputs: ({ rows, xStride, outStride, adds }, random) => ({
    x: random.normals(rows * xStride, 2),
    bounds: Float32Array.of(7, 7, -1.5, 2.25, -3, 0.5),
    ...(adds && { out: random.normals(rows * outStride) }),
  }),
  outputs: ({ rows, outStride, adds }) => (adds ? {} : { out: { type: 'f32', length: rows * outStride } }),
  reference: clipReference,
};
