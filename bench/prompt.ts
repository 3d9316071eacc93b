import { Random } from '../src/base/random.js';

/** Token ids that any model has, the same for every run. */
export function randomPrompt(length: number, vocabSize: number): number[] {
  const random = new Random(length);
  return Array.from({ length }, () => random.integer(vocabSize));
}
