import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { randomExperts } from '../fixture.js';
import { moeSort, type MoeSortProblem } from './index.js';
import { pairsOf } from './reference.js';

/** `stepRows` of the problem's rows take part. */
interface SortCase extends MoeSortProblem {
  readonly stepRows: number;
}

function sortCase(name: string, problem: SortCase, more: Partial<KernelCase<SortCase>> = {}): KernelCase<SortCase> {
  const { rows, topK, experts } = problem;
  return {
    name,
    problem,
    seed: 3,
    flops: 0,
    bytes: rows * topK * (4 * experts + 4),
    tolerance: { absolute: 0, relative: 0 },
    ...more,
  };
}

export const suite: KernelSuite<typeof moeSort.bindings, typeof moeSort.params, SortCase> = {
  kernel: moeSort,
  cases: [
    sortCase('one row', { rows: 1, topK: 1, experts: 4, stepRows: 1 }),
    sortCase('3 of 5 rows', { rows: 5, topK: 2, experts: 4, stepRows: 3 }, { races: true }),
    sortCase('no row', { rows: 5, topK: 2, experts: 4, stepRows: 0 }),
    sortCase('every expert in every row', { rows: 33, topK: 8, experts: 8, stepRows: 33 }),
    sortCase('most experts without a row', { rows: 3, topK: 6, experts: 160, stepRows: 3 }),
    sortCase('1000 of 1024 rows', { rows: 1024, topK: 6, experts: 64, stepRows: 1000 }),
  ],
  inputs: ({ rows, topK, experts, stepRows }, random) => ({
    expert_ids: randomExperts(rows, topK, experts, random),
    row_count: Uint32Array.of(stepRows),
  }),
  outputs: ({ rows, experts }) => ({
    pairs: { type: 'u32', length: experts * rows },
    pair_counts: { type: 'u32', length: experts },
  }),
  reference: ({ rows, topK, experts, stepRows }, { expert_ids: ids }) => {
    const lists = pairsOf(ids!, stepRows, topK, experts);
    // The pattern that outputs hold beforehand: nothing else may be written.
    const pairs = new Array<number>(experts * rows).fill(0x7fc00000);
    for (const [expert, list] of lists.entries()) pairs.splice(expert * rows, list.length, ...list);
    return { pairs, pair_counts: lists.map((list) => list.length) };
  },
};
