import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { listsOf } from '../score_fixture.js';
import { poolScores } from '../selection.js';
import type { SnapPoolCase } from './cases.js';

export function snapPoolReference(problem: SnapPoolCase, inputs: HostArrays): Expected {
  const pooled = new Array<number>(problem.heads * problem.scoreStride);
  for (const [head, scores] of listsOf(problem, inputs['scores']!).entries()) {
    for (const [t, score] of poolScores(scores, problem.width).entries())
      pooled[head * problem.scoreStride + t] = score;
  }
  return { pooled };
}
