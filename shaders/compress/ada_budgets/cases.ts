import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { compressInfo } from '../compress_info.js';
import { randomScores, type ScoreLists, strideOf } from '../score_fixture.js';
import { adaBudgets, type AdaBudgetsProblem } from './index.js';
import { adaBudgetsReference } from './reference.js';

export interface AdaBudgetsCase extends AdaBudgetsProblem, ScoreLists {
  readonly base: number;
}

const budgetsCase = (
  name: string,
  problem: Pick<AdaBudgetsCase, 'heads' | 'length' | 'window' | 'base' | 'floor' | 'levels'>,
  races = false,
): KernelCase<AdaBudgetsCase> => ({
  name,
  problem: { ...problem, scoreStride: strideOf(problem.length) },
  seed: problem.length + problem.base,
  tolerance: { absolute: 0, relative: 0 },
  flops: 9 * problem.heads * problem.length,
  bytes: 9 * problem.heads * problem.length * 4,
  races,
});

const cases = [
  budgetsCase('tiny', { heads: 2, length: 9, window: 2, base: 3, floor: 0.2 }, true),
  budgetsCase('all scores equal: the first positions of every head', {
    heads: 3,
    length: 50,
    window: 1,
    base: 7,
    floor: 0,
    levels: 1,
  }),
  budgetsCase('few values', { heads: 5, length: 333, window: 32, base: 40, floor: 0.2, levels: 4 }),
  budgetsCase('nothing beside the window', { heads: 4, length: 100, window: 32, base: 0, floor: 0.2 }),
  budgetsCase('everything', { heads: 4, length: 100, window: 32, base: 68, floor: 0.2 }),
  budgetsCase('more than there is', { heads: 4, length: 100, window: 32, base: 1000, floor: 0.5 }),
  budgetsCase('one key', { heads: 8, length: 33, window: 32, base: 1, floor: 0.2 }),
  budgetsCase('halves', { heads: 4, length: 200, window: 8, base: 13, floor: 0.5 }),
  budgetsCase('the floor is all', { heads: 4, length: 200, window: 8, base: 13, floor: 1 }),
  budgetsCase('8 heads, 2,100 tokens', { heads: 8, length: 2100, window: 32, base: 388, floor: 0.2 }),
  budgetsCase('one head', { heads: 1, length: 400, window: 32, base: 100, floor: 0.2 }),
];

export const suite: KernelSuite<typeof adaBudgets.bindings, typeof adaBudgets.params, AdaBudgetsCase> = {
  kernel: adaBudgets,
  cases,
  inputs: (problem, random) => ({
    pooled: randomScores(problem, random),
    compress_info: compressInfo({ firstRow: 0, length: problem.length, slot: 0, base: problem.base }),
  }),
  outputs: ({ heads }) => ({ caps: { type: 'u32', length: heads } }),
  reference: adaBudgetsReference,
};
