import { ceilDiv } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS } from '../../cache/kv_cache.js';
import { compressInfo } from '../compress_info.js';
import { randomScores, type ScoreLists, strideOf } from '../score_fixture.js';
import { snapPool, type SnapPoolProblem } from './index.js';
import { snapPoolReference } from './reference.js';

export interface SnapPoolCase extends SnapPoolProblem, ScoreLists {}

const poolCase = (
  name: string,
  problem: Pick<SnapPoolCase, 'heads' | 'length' | 'window' | 'width'>,
  races = false,
): KernelCase<SnapPoolCase> => ({
  name,
  problem: { ...problem, scoreStride: strideOf(problem.length) },
  seed: problem.length,
  tolerance: { absolute: 0, relative: 0 },
  flops: problem.heads * problem.length * problem.width,
  bytes: problem.heads * problem.length * 8,
  step: { rows: 1, chunks: ceilDiv(problem.length, CHUNK_TOKENS) },
  races,
});

const cases = [
  poolCase('tiny', { heads: 2, length: 11, window: 2, width: 3 }, true),
  poolCase('wider than the list', { heads: 1, length: 5, window: 2, width: 7 }),
  poolCase('one key', { heads: 3, length: 33, window: 32, width: 7 }),
  poolCase('no pooling', { heads: 2, length: 300, window: 32, width: 1 }),
  poolCase('8 heads, 2,100 tokens', { heads: 8, length: 2100, window: 32, width: 7 }),
];

export const suite: KernelSuite<typeof snapPool.bindings, typeof snapPool.params, SnapPoolCase> = {
  kernel: snapPool,
  cases,
  inputs: (problem, random) => ({
    scores: randomScores(problem, random),
    compress_info: compressInfo({ firstRow: 0, length: problem.length, slot: 0, base: 0 }),
  }),
  outputs: ({ heads, scoreStride }) => ({ pooled: { type: 'f32', length: heads * scoreStride } }),
  reference: snapPoolReference,
};
