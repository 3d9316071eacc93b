import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { type SamplingProblem, seenWords } from '../params.js';

export function markedReference({ slots, vocab }: SamplingProblem, inputs: HostArrays): number[] {
  const seen: number[] = Array.from(inputs['seen']!);
  for (let slot = 0; slot < slots; slot++) {
    if (inputs['row_info']![2 * slot] === 0xffffffff) continue;
    const token = inputs['tokens']![slot]!;
    const word = slot * seenWords(vocab) + Math.floor(token / 32);
    seen[word] = (seen[word]! | (1 << (token % 32))) >>> 0;
  }
  return seen;
}
