import type { Random } from '../../src/base/random.js';
import { alignUp } from '../../src/base/math.js';

/** Scores of some heads, as a case has them. */
export interface ScoreLists {
  readonly heads: number;
  /** Tokens of the prompt, window included. */
  readonly length: number;
  readonly window: number;
  readonly scoreStride: number;
  /** How many values scores take: few give ties. Any number where left out. */
  readonly levels?: number;
}

export const strideOf = (length: number): number => alignUp(length, 32) + 32;

/** [heads][scoreStride] f32 like attention probabilities, of very different heads; NaN from the window on. */
export function randomScores({ heads, length, window, scoreStride, levels }: ScoreLists, random: Random): Float32Array {
  const scores = new Float32Array(heads * scoreStride).fill(Number.NaN);
  for (let head = 0; head < heads; head++) {
    const spread = 3 * random.next();
    for (let t = 0; t < length - window; t++) {
      const score = Math.exp(spread * random.normal()) / length;
      scores[head * scoreStride + t] = levels ? random.integer(levels) / levels : score;
    }
  }
  return scores;
}

/** The scores of each head, without window and padding. */
export const listsOf = (
  { heads, length, window, scoreStride }: ScoreLists,
  scores: ArrayLike<number>,
): ArrayLike<number>[] =>
  Array.from({ length: heads }, (_, head) =>
    Array.from({ length: length - window }, (_unused, t) => scores[head * scoreStride + t]!),
  );
