import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { randomExperts, UNTOUCHED } from '../fixture.js';
import { moeCombine, type MoeCombineProblem } from './index.js';
import { combineReference } from './reference.js';

const EXPERTS = 16;

/** Each (row, slot)'s output in the region of its expert's owner; NaN in the others. */
export function spreadOutputs(
  { rows, topK, inStride, ranks }: Pick<MoeCombineProblem, 'rows' | 'topK' | 'inStride'> & { readonly ranks: number },
  out: Float32Array,
  ids: Uint32Array,
  owners: Uint32Array,
): Float32Array<ArrayBuffer> {
  const region = rows * topK * inStride;
  const spread = new Float32Array(ranks * region).fill(Number.NaN);
  for (let pair = 0; pair < rows * topK; pair++) {
    const start = pair * inStride;
    spread.set(out.subarray(start, start + inStride), owners[ids[pair]!]! * region + start);
  }
  return spread;
}

function combineCase(
  rows: number,
  topK: number,
  width: number,
  more: Partial<KernelCase<MoeCombineProblem>> = {},
): KernelCase<MoeCombineProblem> {
  const stride = alignUp(width, 32);
  return {
    name: `${rows} rows of ${width}, ${topK} experts`,
    problem: { rows, topK, width, inStride: stride, stride },
    seed: 8,
    step: { rows, chunks: 1 },
    flops: 2 * rows * topK * width,
    bytes: 4 * rows * width * (topK + 2),
    tolerance: { absolute: 2e-6, relative: 2e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof moeCombine.bindings, typeof moeCombine.params, MoeCombineProblem> = {
  kernel: moeCombine,
  cases: [
    combineCase(1, 1, 24, { races: true }),
    combineCase(3, 2, 33, { races: true }),
    combineCase(3, 2, 33, {
      name: 'the sum alone',
      problem: { rows: 3, topK: 2, width: 33, inStride: 64, stride: 64, apart: true },
      races: true,
    }),
    combineCase(33, 6, 128),
    combineCase(1, 8, 2048),
    combineCase(3, 6, 300, {
      name: 'strides of their own',
      problem: { rows: 3, topK: 6, width: 300, inStride: 300, stride: 352 },
    }),
    combineCase(3, 2, 33, {
      name: 'experts of 3 ranks',
      problem: { rows: 3, topK: 2, width: 33, inStride: 64, stride: 64, ranks: 3 },
      races: true,
    }),
    combineCase(20, 6, 300, {
      name: 'experts of 8 ranks',
      problem: { rows: 20, topK: 6, width: 300, inStride: 320, stride: 320, ranks: 8 },
    }),
  ],
  inputs: ({ rows, topK, width, inStride, stride, ranks = 1 }, random) => {
    const x = new Float32Array(rows * stride).fill(UNTOUCHED);
    for (let row = 0; row < rows; row++) x.set(random.normals(width), row * stride);
    const out = random.normals(rows * topK * inStride);
    const weights = random.normals(rows * topK);
    if (ranks === 1) return { expert_out: out, expert_weights: weights, x };
    const ids = randomExperts(rows, topK, EXPERTS, random);
    const owners = Uint32Array.from({ length: EXPERTS }, () => random.integer(ranks));
    return {
      expert_out: spreadOutputs({ rows, topK, inStride, ranks }, out, ids, owners),
      expert_weights: weights,
      expert_ids: ids,
      owners,
      x,
    };
  },
  outputs: () => ({}),
  reference: (problem, inputs) => ({ x: combineReference(problem, problem.rows, inputs) }),
};
