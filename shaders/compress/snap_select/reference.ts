import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { listsOf } from '../score_fixture.js';
import { keptEntries } from '../selection.js';
import type { SnapSelectCase } from './cases.js';

export function snapSelectReference(problem: SnapSelectCase, inputs: HostArrays): Expected {
  const { kvHeads, firstScoreHead = 0, scoreStride, window, caps } = problem;
  const kept = new Array<number>(kvHeads * scoreStride);
  const lengths: number[] = [];
  const lists = listsOf(problem, inputs['pooled']!).slice(firstScoreHead, firstScoreHead + kvHeads);
  for (const [head, scores] of lists.entries()) {
    const own = keptEntries(scores, caps[firstScoreHead + head]!, window);
    for (const [i, entry] of own.entries()) kept[head * scoreStride + i] = entry;
    lengths.push(own.length);
  }
  return { kept, kept_lengths: lengths };
}
