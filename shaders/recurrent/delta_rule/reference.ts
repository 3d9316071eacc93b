import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { PLACES, rowInfoOf } from '../fixture.js';
import type { DeltaRuleProblem } from './index.js';

/** Where element [i][j] of a value head's memory lies in the state. */
const stateAt = (
  { keyHeads, ratio, keyDim, valueDim }: DeltaRuleProblem,
  place: number,
  head: number,
  i: number,
  j: number,
): number => (((place * keyHeads * ratio + head) * (keyDim / 4) + Math.floor(i / 4)) * valueDim + j) * 4 + (i % 4);

/** Float64, straight from the equation; also what the state becomes. */
export function deltaRuleReference(problem: DeltaRuleProblem, inputs: HostArrays): Expected {
  const { rows, oneRun, keyHeads, ratio, keyDim, valueDim, plain = false, stride, outStride } = problem;
  const [qkv, gates] = [inputs['qkv']!, inputs['gates']!];
  const state = Float64Array.from(inputs['state']!);
  const out = Array.from(inputs['out']!);
  const valueHeads = keyHeads * ratio;
  for (const { slot, start, count, first } of rowInfoOf(rows, oneRun).runs) {
    for (let head = 0; head < valueHeads; head++) {
      for (let j = 0; j < valueDim; j++) {
        const at = (i: number): number => stateAt(problem, PLACES[slot]!, head, i, j);
        const s = Array.from({ length: keyDim }, (_, i) => (start === 0 ? 0 : state[at(i)]!));
        for (let row = first; row < first + count; row++) {
          const query = row * stride + Math.floor(head / ratio) * keyDim;
          const key = query + keyHeads * keyDim;
          const [decay, rate] = [gates[(row * valueHeads + head) * 2]!, gates[(row * valueHeads + head) * 2 + 1]!];
          s.forEach((value, i) => (s[i] = value * decay));
          const found = plain ? 0 : s.reduce((sum, value, i) => sum + value * qkv[key + i]!, 0);
          const d = rate * (qkv[row * stride + 2 * keyHeads * keyDim + head * valueDim + j]! - found);
          s.forEach((value, i) => (s[i] = value + qkv[key + i]! * d));
          out[row * outStride + head * valueDim + j] = s.reduce((sum, value, i) => sum + value * qkv[query + i]!, 0);
        }
        s.forEach((value, i) => (state[at(i)] = value));
      }
    }
  }
  return { out, state };
}
