import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { relativeAttention, type RelativeAttentionProblem } from './index.js';
import { relativeAttentionReference } from './reference.js';

function attentionCase(
  name: string,
  [rows, heads, dim, keys]: readonly [number, number, number, number],
  { softened = false, cap = 50 }: Partial<RelativeAttentionProblem> = {},
  more: Partial<KernelCase<RelativeAttentionProblem>> = {},
): KernelCase<RelativeAttentionProblem> {
  const width = heads * dim;
  const strides = { xStride: 3 * width + 7, relativeStride: width + 5, outStride: width + 3 };
  return {
    name,
    problem: { rows, heads, dim, keys, softened, cap, ...strides },
    seed: 71,
    step: { rows, chunks: 1 },
    flops: rows * width * keys * 8,
    bytes: rows * width * 16,
    tolerance: { absolute: 2e-5, relative: 2e-5 },
    ...more,
  };
}

export const suite: KernelSuite<
  typeof relativeAttention.bindings,
  typeof relativeAttention.params,
  RelativeAttentionProblem
> = {
  kernel: relativeAttention,
  cases: [
    attentionCase('control', [4, 2, 5, 3], {}, { races: true }),
    attentionCase('one row', [1, 1, 8, 12]),
    attentionCase('fewer rows than keys, softened', [7, 3, 24, 12], { softened: true }),
    attentionCase('scores at their cap', [20, 2, 70, 12], { cap: 1.5 }),
    attentionCase('heads of 128', [30, 2, 128, 12]),
    attentionCase('30 s of 8 heads', [750, 8, 128, 12], {}, { large: true }),
  ],
  inputs: ({ rows, dim, keys, softened, xStride, relativeStride }, random) => ({
    x: random.normals(rows * xStride, 1.5),
    relative: random.normals(keys * relativeStride),
    scale: random.normals(dim, 1.5).map((value) => (softened ? Math.abs(value) : value)),
  }),
  outputs: ({ rows, outStride }) => ({ out: { type: 'f32', length: rows * outStride } }),
  reference: relativeAttentionReference,
};
