import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { expertLayout } from '../experts.js';
import { expertInputs, expertProblem, oaiProblem, randomExperts } from '../fixture.js';
import { pairsOf } from '../moe_sort/reference.js';
import { expertLinearTiled, type ExpertLinearTiledProblem } from './index.js';
import { expertReference } from './reference.js';
import { someKept } from '../../linear/testing/kept_tiles.js';

/** `stepRows` of the problem's rows take part. */
export interface TiledCase extends ExpertLinearTiledProblem {
  readonly stepRows: number;
}

function tiledCase(
  name: string,
  problem: ExpertLinearTiledProblem,
  more: Partial<KernelCase<TiledCase>> = {},
): KernelCase<TiledCase> {
  const { rows, topK, inFeatures, epilogue } = problem;
  const { tiles, weightBytes, scaleBytes } = expertLayout(problem);
  return {
    name,
    problem: { ...problem, stepRows: rows },
    seed: 4,
    step: { rows, chunks: 1 },
    flops: 2 * rows * topK * inFeatures * tiles * 32,
    bytes: problem.experts * (weightBytes + scaleBytes),
    // As in expert_linear.
    tolerance:
      epilogue === 'swiglu' || epilogue === 'up'
        ? { absolute: 5e-5, relative: 5e-5 }
        : { absolute: 2e-5, relative: 1e-5 },
    ...more,
  };
}

const SWIGLU = { epilogue: 'swiglu' } as const;
const DOWN = { xPerSlot: true } as const;
const partial = expertProblem(40, [4, 2], 40, 24, { type: 'f32', ...DOWN });

/** `pairs` and `pair_counts` as moe_sort writes them; places without a pair are out of range. */
export function sorted(ids: ArrayLike<number>, { topK, experts, rows, stepRows }: TiledCase) {
  const lists = pairsOf(ids, stepRows, topK, experts);
  const pairs = new Uint32Array(experts * rows).fill(0xffffffff);
  for (const [expert, list] of lists.entries()) pairs.set(list, expert * rows);
  return { pairs, pair_counts: Uint32Array.from(lists, (list) => list.length) };
}

export const suite: KernelSuite<typeof expertLinearTiled.bindings, typeof expertLinearTiled.params, TiledCase> = {
  kernel: expertLinearTiled,
  cases: [
    tiledCase('f16, one of 4, gate and up', expertProblem(3, [4, 1], 40, 24, SWIGLU), { races: true }),
    tiledCase('f16, every expert in every row: a tile and one row more', expertProblem(33, [2, 2], 72, 33, SWIGLU)),
    tiledCase('f32, 6 of 64, down', expertProblem(33, [64, 6], 40, 33, { type: 'f32', ...DOWN })),
    tiledCase('f32, 37 of 40 rows', partial, { problem: { ...partial, stepRows: 37 }, step: { rows: 37, chunks: 1 } }),
    tiledCase('q4, 8 of 160, gate and up', expertProblem(3, [160, 8], 72, 24, { type: 'q4', ...SWIGLU })),
    tiledCase('q8, 6 of 8, down', expertProblem(33, [8, 6], 96, 128, { type: 'q8', ...DOWN })),
    tiledCase(
      'f16, experts 3 to 4 of 8',
      expertProblem(33, [8, 6], 72, 33, { ...SWIGLU, expertFirst: 3, expertCount: 2 }),
    ),
    tiledCase(
      'f32, 2 of 4, gate and up, gelu',
      expertProblem(3, [4, 2], 72, 33, { type: 'f32', activation: 'gelu_tanh', ...SWIGLU }),
    ),
    ...(['gate', 'up'] as const).flatMap((epilogue) => [
      tiledCase(`f16, ${epilogue} alone`, expertProblem(9, [4, 2], 72, 33, { epilogue })),
      tiledCase(
        `q8, ${epilogue} alone, experts 3 to 4 of 8, biased and clamped`,
        oaiProblem(33, [8, 6], [72, 33], { type: 'q8', epilogue, expertFirst: 3, expertCount: 2, biasFirst: 2 }),
      ),
    ]),
    tiledCase('mxfp4, 2 of 4, gate and up, biased and clamped', oaiProblem(3, [4, 2], [72, 33])),
    tiledCase(
      'mxfp4, experts 3 to 4 of 8, gate and up, biased and clamped',
      oaiProblem(33, [8, 6], [72, 33], { expertFirst: 3, expertCount: 2, biasFirst: 2 }),
    ),
    tiledCase(
      'mxfp4, 6 of 8, down, biased',
      expertProblem(33, [8, 6], 360, 40, { type: 'mxfp4', bias: true, ...DOWN }),
    ),
    ...someKept('expert_linear_tiled').map((type) =>
      tiledCase(`${type}, 2 of 4, gate and up`, expertProblem(33, [4, 2], 512, 33, { type, ...SWIGLU })),
    ),
    tiledCase('q4, 2048 inputs', expertProblem(33, [2, 1], 2048, 96, { type: 'q4', ...SWIGLU })),
  ],
  inputs: (problem, random) => {
    const inputs = expertInputs(problem, random);
    return { ...inputs, ...sorted(randomExperts(problem.rows, problem.topK, problem.experts, random), problem) };
  },
  outputs: () => ({}),
  reference: (problem, inputs) => {
    const { pairs, pair_counts: counts } = inputs;
    const ids = new Uint32Array(problem.rows * problem.topK);
    for (const [expert, count] of counts!.entries()) {
      for (let i = 0; i < count; i++) ids[pairs![expert * problem.rows + i]!] = expert;
    }
    return { out: expertReference(problem, ids, problem.stepRows, inputs) };
  },
};
