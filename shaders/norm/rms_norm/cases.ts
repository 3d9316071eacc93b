import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { rmsNorm, type RmsNormProblem } from './index.js';
import { rmsNormReference } from './reference.js';

function normCase(
  name: string,
  problem: Partial<RmsNormProblem>,
  more: Partial<KernelCase<RmsNormProblem>> = {},
): KernelCase<RmsNormProblem> {
  const { rows = 1, width = 64, eps = 1e-5, residual = false, apart = false, scaled = false, pieces = 1 } = problem;
  return {
    name,
    problem: { rows, width, stride: problem.stride ?? alignUp(width, 32), eps, residual, apart, scaled, pieces },
    seed: 23,
    step: { rows, chunks: 1 },
    flops: rows * width * (residual ? 5 : 4),
    bytes: rows * width * (residual ? 12 : 8),
    tolerance: { absolute: 1e-6, relative: 3e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof rmsNorm.bindings, typeof rmsNorm.params, RmsNormProblem> = {
  kernel: rmsNorm,
  cases: [
    normCase('control', { rows: 2, width: 288 }, { races: true }),
    normCase('control with residual', { rows: 2, width: 300, residual: true }, { races: true }),
    normCase('a sum apart', { rows: 2, width: 259, stride: 288, residual: true, apart: true }),
    normCase('a scaled sum', { rows: 2, width: 288, residual: true, scaled: true }, { races: true }),
    normCase('a scaled sum apart', { rows: 3, width: 259, residual: true, apart: true, scaled: true }),
    normCase('pieces of rows', { rows: 3, width: 64, stride: 64, residual: true, pieces: 5 }, { races: true }),
    normCase('one element', { width: 1, residual: true }),
    normCase('width of no multiple of 4, wide stride', { rows: 5, width: 259, stride: 320, residual: true }),
    normCase('large eps', { rows: 3, width: 96, eps: 0.5 }),
    normCase('decode 2048', { width: 2048, residual: true }),
    normCase('widest', { rows: 2, width: 16384, residual: true }),
    normCase('prompt 128 x 2048', { rows: 128, width: 2048, residual: true }),
  ],
  inputs: ({ rows: all, pieces = 1, width, stride, residual, apart }, random) => {
    const rows = all * pieces;
    const padded = (scale: number): Float32Array => {
      const array = random.normals(rows * stride, scale);
      for (let r = 0; r < rows; r++) array.fill(0, r * stride + width, (r + 1) * stride);
      return array;
    };
    // Rows of very different magnitude: a sum that mixes rows shows.
    const x = padded(1);
    for (let r = 0; r < rows; r++) for (let i = 0; i < width; i++) x[r * stride + i]! *= 10 ** ((r % 5) - 2);
    const weight = new Float32Array(alignUp(width + 1, 4));
    weight.set(random.normals(width + 1));
    return { x, weight, ...(residual && { [apart ? 'base' : 'out']: padded(0.5) }) };
  },
  outputs: ({ rows, pieces = 1, stride, residual, apart }) =>
    residual && !apart ? {} : { out: { type: 'f32', length: rows * pieces * stride } },
  reference: rmsNormReference,
};
