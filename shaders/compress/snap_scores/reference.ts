import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { scoresOf, softmaxStats } from '../../attention/fixture.js';
import type { SnapScoresCase } from './cases.js';

/** Mean softmax weight of each key before the window, from the queries and keys alone. */
export function snapScoresReference(problem: SnapScoresCase, inputs: HostArrays): Expected {
  const { heads, kvHeads, window, firstRow, length, scoreStride, firstScoreHead = 0, scoreHeads } = problem;
  const group = heads / kvHeads;
  const scores = new Array<number>(scoreHeads * scoreStride);
  const keys = Array.from({ length: length - window }, (_, t) => t);
  for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
    const sums = keys.map(() => 0);
    for (let head = kvHead * group; head < (kvHead + 1) * group; head++) {
      for (let row = firstRow; row < firstRow + window; row++) {
        const position = problem.rowInfo[row]![0];
        const all = Array.from({ length: position + 1 }, (_, t) => t);
        const logits = scoresOf(problem, inputs, row, head, all);
        const { m, l } = softmaxStats(logits);
        for (const t of keys) sums[t]! += Math.exp(logits[t]! - m) / l;
      }
    }
    const at = (firstScoreHead + kvHead) * scoreStride;
    for (const t of keys) scores[at + t] = sums[t]! / (group * window);
  }
  return { scores };
}
