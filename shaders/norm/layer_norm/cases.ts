import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { layerNorm, type LayerNormProblem } from './index.js';
import { layerNormReference } from './reference.js';

function normCase(
  name: string,
  problem: Partial<LayerNormProblem>,
  more: Partial<KernelCase<LayerNormProblem>> = {},
): KernelCase<LayerNormProblem> {
  const { rows = 1, width = 64, eps = 1e-5, residual = false, bias = true, ofSum = false } = problem;
  return {
    name,
    problem: { rows, width, stride: problem.stride ?? alignUp(width, 32), eps, residual, bias, ofSum },
    seed: 29,
    step: { rows, chunks: 1 },
    flops: rows * width * (residual ? 9 : 8),
    bytes: rows * width * (residual ? 12 : 8),
    tolerance: { absolute: 3e-6, relative: 6e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof layerNorm.bindings, typeof layerNorm.params, LayerNormProblem> = {
  kernel: layerNorm,
  cases: [
    normCase('control', { rows: 2, width: 288 }, { races: true }),
    normCase('without bias', { rows: 2, width: 288, bias: false }, { races: true }),
    normCase('with residual', { rows: 2, width: 300, residual: true }, { races: true }),
    normCase('of a sum', { rows: 3, width: 300, ofSum: true }, { races: true }),
    normCase('one element', { width: 1, residual: true }),
    normCase('width of no multiple of 4, wide stride', { rows: 5, width: 259, stride: 320, bias: false }),
    normCase('large eps', { rows: 3, width: 96, eps: 0.5 }),
    normCase('decode 3072', { width: 3072, residual: true }),
    normCase('widest', { rows: 2, width: 16384, bias: false }),
    normCase('prompt 128 x 2048', { rows: 128, width: 2048 }),
  ],
  inputs: ({ rows, width, stride, residual, bias, ofSum }, random) => {
    const padded = (scale: number, mean = 0): Float32Array => {
      const array = random.normals(rows * stride, scale).map((value) => value + mean);
      for (let r = 0; r < rows; r++) array.fill(0, r * stride + width, (r + 1) * stride);
      return array;
    };
    // A mean that isn't small beside the deviation: a variance by the squares' mean alone shows.
    const x = padded(1, 3);
    for (let r = 0; r < rows; r++) for (let i = 0; i < width; i++) x[r * stride + i]! *= 10 ** ((r % 5) - 2);
    const vector = (): Float32Array => {
      const padding = new Float32Array(alignUp(width, 4));
      padding.set(random.normals(width));
      return padding;
    };
    return { x, weight: vector(), ...(bias && { bias: vector() }), ...((residual || ofSum) && { out: padded(0.5) }) };
  },
  outputs: ({ rows, stride, residual, ofSum }) =>
    residual || ofSum ? {} : { out: { type: 'f32', length: rows * stride } },
  reference: layerNormReference,
};
