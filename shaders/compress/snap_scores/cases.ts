import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { attentionInputs, EMPTY_M, type RowInfo, scoresOf, softmaxStats } from '../../attention/fixture.js';
import { type PrefillCase, prefillProblem } from '../../attention/attention_prefill/cases.js';
import { CHUNK_TOKENS, kvVectorBytes, MERGE_LANES } from '../../cache/kv_cache.js';
import { compressInfo } from '../compress_info.js';
import { snapScores, type SnapScoresProblem } from './index.js';
import { snapScoresReference } from './reference.js';

export interface SnapScoresCase extends PrefillCase, SnapScoresProblem {
  readonly firstRow: number;
  readonly length: number;
  readonly slot: number;
  /** Heads that `scores` has room for. */
  readonly scoreHeads: number;
}

type Shape = Pick<
  SnapScoresCase,
  | 'heads'
  | 'kvHeads'
  | 'cacheKvHeads'
  | 'firstKvHead'
  | 'headDim'
  | 'kvType'
  | 'block'
  | 'perHead'
  | 'window'
  | 'firstScoreHead'
>;

function scoresCase(
  name: string,
  shape: Shape,
  { length, firstRow = 0, slot = 0 }: { length: number; firstRow?: number; slot?: number },
  races = false,
): KernelCase<SnapScoresCase> {
  const { window, heads, kvHeads, headDim } = shape;
  // The rows before the window are earlier ones of the prompt, a tile's padding follows.
  const rowInfo = Array.from({ length: firstRow + window }, (_, row): RowInfo => [
    length - window - firstRow + row,
    slot,
  ]);
  const problem: SnapScoresCase = {
    ...prefillProblem(shape, [...rowInfo, undefined]),
    window,
    length,
    firstRow,
    slot,
    scoreStride: length + 3,
    firstScoreHead: shape.firstScoreHead ?? 0,
    scoreHeads: (shape.firstScoreHead ?? 0) + kvHeads + 1,
  };
  const pairs = (length - window) * window * heads;
  return {
    name,
    problem,
    seed: 23 + length,
    // Probabilities; q . k goes to 100, so exp's argument is exact to some 1e-5.
    tolerance: { absolute: 1e-7, relative: 1e-4 },
    flops: 2 * headDim * pairs,
    bytes: (length - window) * kvHeads * (kvVectorBytes(headDim, shape.kvType) + 4),
    step: { rows: rowInfo.length + 1, chunks: Math.ceil(length / CHUNK_TOKENS) },
    races,
  };
}

const cases = [
  scoresCase('tiny', { heads: 2, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, window: 3 }, { length: 11 }, true),
  scoresCase(
    'tiny, two kv heads, of their own tables',
    { heads: 2, kvHeads: 2, headDim: 8, kvType: 'f16', block: 16, window: 2, perHead: true },
    { length: 19, firstRow: 2 },
  ),
  scoresCase(
    'one token before the window',
    { heads: 3, kvHeads: 1, headDim: 16, kvType: 'f32', block: 16, window: 32, perHead: true },
    { length: 33, firstRow: 1 },
  ),
  scoresCase(
    '4/2 d80 q8, window 7',
    { heads: 4, kvHeads: 2, headDim: 80, kvType: 'q8', block: 64, window: 7, perHead: true },
    { length: 40, firstRow: 2 },
  ),
  scoresCase(
    '8/4 d32 over chunks, window 32',
    { heads: 8, kvHeads: 4, headDim: 32, kvType: 'f32', block: 64, window: 32, perHead: true },
    { length: 530, firstRow: 9, slot: 1 },
  ),
  scoresCase(
    '6/2 of 3 kv heads, scores of 4, f16, window 7',
    {
      heads: 6,
      kvHeads: 2,
      cacheKvHeads: 3,
      firstKvHead: 1,
      headDim: 24,
      kvType: 'f16',
      block: 64,
      window: 7,
      perHead: true,
      firstScoreHead: 2,
    },
    { length: 300, slot: 2 },
  ),
  scoresCase(
    'one table for all heads, lanes wrap',
    { heads: 2, kvHeads: 2, headDim: 8, kvType: 'f16', block: 64, window: 5 },
    { length: 2310 },
  ),
];

/** As attention_prefill leaves them: (m, l) of each merge lane of the window's rows; NaN where nothing may be read. */
function partials(problem: SnapScoresCase, inputs: HostArrays): Float32Array {
  const { rows, heads, lanes, firstRow, window, length } = problem;
  const ml = new Float32Array(rows * heads * lanes * 2).fill(Number.NaN);
  for (let row = firstRow; row < firstRow + window; row++) {
    const position = problem.rowInfo[row]![0];
    for (let lane = 0; lane < Math.min(lanes, Math.ceil(length / CHUNK_TOKENS)); lane++) {
      const own = Array.from({ length: position + 1 }, (_, t) => t).filter(
        (t) => Math.floor(t / CHUNK_TOKENS) % MERGE_LANES === lane,
      );
      for (let head = 0; head < heads; head++) {
        const { m, l } = softmaxStats(scoresOf(problem, inputs, row, head, own));
        ml.set(own.length === 0 ? [EMPTY_M, 0] : [m, l], ((row * heads + head) * lanes + lane) * 2);
      }
    }
  }
  return ml;
}

function inputs(problem: SnapScoresCase, random: Random): HostArrays {
  const { q, k_cache: keys, block_table: table } = attentionInputs(problem, random);
  const { firstRow, length, slot } = problem;
  const given = { q: q!, k_cache: keys!, block_table: table! };
  return {
    ...given,
    partial_ml: partials(problem, given),
    compress_info: compressInfo({ firstRow, length, slot, base: 0 }),
  };
}

export const suite: KernelSuite<typeof snapScores.bindings, typeof snapScores.params, SnapScoresCase> = {
  kernel: snapScores,
  cases,
  inputs,
  outputs: ({ scoreHeads, scoreStride }) => ({ scores: { type: 'f32', length: scoreHeads * scoreStride } }),
  reference: snapScoresReference,
};
