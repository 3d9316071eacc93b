import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { compressInfo } from '../compress_info.js';
import { randomScores, type ScoreLists, strideOf } from '../score_fixture.js';
import { snapSelect, type SnapSelectProblem } from './index.js';
import { snapSelectReference } from './reference.js';

export interface SnapSelectCase extends SnapSelectProblem, ScoreLists {
  readonly caps: readonly number[];
}

const selectCase = (
  name: string,
  problem: Pick<SnapSelectCase, 'length' | 'window' | 'levels' | 'firstScoreHead' | 'caps'> & { kvHeads?: number },
  races = false,
): KernelCase<SnapSelectCase> => ({
  name,
  problem: {
    ...problem,
    heads: problem.caps.length,
    kvHeads: problem.kvHeads ?? problem.caps.length,
    scoreStride: strideOf(problem.length),
  },
  seed: problem.length,
  tolerance: { absolute: 0, relative: 0 },
  flops: 10 * problem.caps.length * problem.length,
  bytes: 10 * problem.caps.length * problem.length * 4,
  races,
});

const cases = [
  selectCase('tiny', { length: 9, window: 2, caps: [3] }, true),
  selectCase('few values', { length: 300, window: 32, caps: [100, 1, 267, 40], levels: 3 }),
  selectCase('all scores equal: the first', { length: 70, window: 5, caps: [20], levels: 1 }),
  selectCase('nothing, everything and more than there is', { length: 90, window: 32, caps: [0, 58, 4000] }),
  selectCase('one key', { length: 33, window: 32, caps: [1, 0] }),
  selectCase('no more tokens than the window', { length: 32, window: 32, caps: [5] }),
  selectCase('2 heads of 5', { length: 140, window: 7, caps: [9, 20, 30, 40, 50], firstScoreHead: 2, kvHeads: 2 }),
  selectCase('8 heads, 2,100 tokens', { length: 2100, window: 32, caps: [388, 300, 20, 1500, 700, 80, 33, 100] }),
];

export const suite: KernelSuite<typeof snapSelect.bindings, typeof snapSelect.params, SnapSelectCase> = {
  kernel: snapSelect,
  cases,
  inputs: (problem, random) => ({
    pooled: randomScores(problem, random),
    compress_info: compressInfo({ firstRow: 0, length: problem.length, slot: 0, base: 0 }),
    caps: Uint32Array.from(problem.caps),
  }),
  outputs: ({ kvHeads, scoreStride }) => ({
    kept: { type: 'u32', length: kvHeads * scoreStride },
    kept_lengths: { type: 'u32', length: kvHeads },
  }),
  reference: snapSelectReference,
};
