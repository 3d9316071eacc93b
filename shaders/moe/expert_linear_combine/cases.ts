import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { UNIT_ELEMENTS } from '../../linear/pack.js';
import { randomTiles, someKept } from '../../linear/testing/kept_tiles.js';
import { expertLayout } from '../experts.js';
import { expertInputs, expertProblem, randomExperts, UNTOUCHED } from '../fixture.js';
import { expertLinearCombine, type ExpertCombineProblem } from './index.js';
import { downProblem, expertCombineReference } from './reference.js';

type Rest = Partial<Omit<ExpertCombineProblem, 'shared'>> &
  Pick<KernelCase<unknown>, 'races' | 'large'> & {
    /** Columns of a dense MLP's down behind the experts. */
    readonly sharedIn?: number;
  };

function combineCase(
  name: string,
  [rows, experts, topK]: readonly [rows: number, experts: number, topK: number],
  [inFeatures, outFeatures]: readonly [number, number],
  { races = false, large = false, sharedIn = 0, ...rest }: Rest = {},
): KernelCase<ExpertCombineProblem> {
  const {
    epilogue: _e,
    clamped: _c,
    xPerSlot: _x,
    ...problem
  } = expertProblem(rows, [experts, topK], inFeatures, outFeatures, rest);
  const { tiles, weightBytes, scaleBytes } = expertLayout(downProblem(problem));
  const firstUnit = (experts * tiles * 32 * alignUp(inFeatures, 32)) / UNIT_ELEMENTS[problem.type];
  const segments = { total: 8, align: 32 };
  const shared = sharedIn > 0 ? { inFeatures: sharedIn, segments, firstUnit, outScale: 0.75 } : undefined;
  return {
    name,
    problem: { ...problem, shared },
    seed: 14,
    step: { rows, chunks: 1 },
    flops: 2 * (rows * topK * (inFeatures + 1) + sharedIn) * outFeatures,
    bytes: (rows * topK + sharedIn / inFeatures) * (weightBytes + scaleBytes),
    tolerance: { absolute: 5e-5, relative: 1e-5 },
    races,
    large,
  };
}

export const suite: KernelSuite<
  typeof expertLinearCombine.bindings,
  typeof expertLinearCombine.params,
  ExpertCombineProblem
> = {
  kernel: expertLinearCombine,
  cases: [
    combineCase('f16, one of 4', [1, 4, 1], [40, 24], { races: true }),
    combineCase('f16, 2 of 8, 3 rows', [3, 8, 2], [72, 33], { races: true }),
    combineCase('f32, 6 of 64, 33 rows', [33, 64, 6], [40, 33], { type: 'f32' }),
    combineCase('q8, every one of 3', [2, 3, 3], [96, 128], { type: 'q8' }),
    combineCase('q4, 14 of 16, wide strides', [2, 16, 14], [72, 40], { type: 'q4', xStride: 100, outStride: 41 }),
    combineCase('mxfp4, 4 of 32, biased', [2, 32, 4], [360, 129], { type: 'mxfp4', bias: true }),
    combineCase('q4, 6 of 16, 1408 to 512', [1, 16, 6], [1408, 512], { type: 'q4' }),
    combineCase('f16, 2 of 4 and a shared one', [1, 4, 2], [40, 24], { sharedIn: 40, races: true }),
    combineCase('f32, 3 of 8 and a shared one of 33', [1, 8, 3], [40, 33], { type: 'f32', sharedIn: 33 }),
    combineCase('q8, 2 of 8 and three shared ones', [1, 8, 2], [96, 65], { type: 'q8', sharedIn: 288 }),
    ...someKept('expert_linear_combine').map((type) =>
      combineCase(`${type}, 2 of 4 and a shared one`, [1, 4, 2], [256, 40], { type, sharedIn: 512 }),
    ),
    combineCase('q4, 4 of 8 and two shared ones', [1, 8, 4], [352, 128], { type: 'q4', sharedIn: 704 }),
    combineCase('q4, 6 of 64 and two shared ones, large', [1, 64, 6], [1408, 2048], {
      type: 'q4',
      sharedIn: 2816,
      large: true,
    }),
  ],
  inputs: (problem, random) => {
    const { rows, topK, experts, type, outFeatures, outStride, shared } = problem;
    const width = shared?.inFeatures ?? 0;
    const dense = randomTiles(type, random, outFeatures, width, 1 / Math.sqrt(width));
    const { x, weight, scale, ...routed } = expertInputs(downProblem(problem), random);
    const denseX = new Float32Array(alignUp(width, 32));
    denseX.set(random.normals(width));
    const out = new Float32Array(rows * outStride).fill(UNTOUCHED);
    for (let row = 0; row < rows; row++) out.set(random.normals(outFeatures), row * outStride);
    return {
      ...routed,
      x: Float32Array.from([...x!, ...denseX]),
      weight: Uint32Array.from([...weight!, ...(shared ? dense.weight : [])]),
      ...(scale && { scale: Uint32Array.from([...scale, ...(shared ? dense.scale! : [])]) }),
      expert_ids: randomExperts(rows, topK, experts, random),
      expert_weights: random.normals(rows * topK),
      out,
    };
  },
  outputs: () => ({}),
  reference: expertCombineReference,
};
