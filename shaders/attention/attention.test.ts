import { describe, expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import { adaptersInTurn, decisions } from '../../src/gpu/testing/adapters.js';
import type { HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { suite as merge } from './attention_merge/cases.js';
import { prefillProblem, promptRows, suite as prefill } from './attention_prefill/cases.js';
import { suite as split } from './attention_split/cases.js';
import { attend, type AttentionCase, attentionCase, attentionInputs, caseStep, runOn } from './fixture.js';

const shape = { heads: 6, kvHeads: 2, headDim: 64, kvType: 'f16', block: 32 } as const;

/** Largest difference between merged rows and float64 attention over all of each row's tokens. */
function worstError(problem: AttentionCase, inputs: HostArrays, out: ArrayLike<number>): number {
  let worst = 0;
  for (const [row, info] of problem.rowInfo.entries()) {
    if (!info) continue;
    const tokens = Array.from({ length: info[0] + 1 }, (_, i) => i);
    for (let head = 0; head < problem.heads; head++) {
      const { o, l } = attend(problem, inputs, row, head, tokens);
      for (const [dim, value] of o.entries()) {
        const error = Math.abs(out[row * problem.qStride + head * problem.headDim + dim]! - value / l);
        worst = Number.isNaN(error) ? Number.POSITIVE_INFINITY : Math.max(worst, error);
      }
    }
  }
  return worst;
}

for (const adapter of await adaptersInTurn('attention')) {
  describe(`attention on ${adapter.name}: merged partials are attention over the whole sequence`, () => {
    test('generated rows', { timeout: 180_000 }, async () => {
      const device = await adapter.open();
      // Nine chunks and a bit: lanes 0 and 1 hold two chunks each.
      const problem = attentionCase(shape, [[2310, 1], undefined, [0, 2], [256, 0]]);
      const inputs = attentionInputs(problem, new Random(41));
      const { heads, headDim, qStride, maxChunks, rows } = problem;
      const positions = problem.rowInfo.map((info) => info?.[0]);
      for (const traits of decisions(device)) {
        const partials = await runOn(device, split, problem, inputs, caseStep(problem), traits);
        const given = { ...partials, row_info: inputs['row_info']! };
        const mergeProblem = { rows, heads, headDim, partials: maxChunks, outStride: qStride, positions };
        const { out } = await runOn(device, merge, mergeProblem, given, caseStep(problem), traits);
        expect(worstError(problem, inputs, out!)).toBeLessThan(5e-6);
      }
      device.dispose();
    });

    test('prompt rows', { timeout: 180_000 }, async () => {
      const device = await adapter.open();
      const problem = prefillProblem(
        shape,
        promptRows([
          { slot: 1, from: 2300, count: 6 },
          { slot: 0, from: 0, count: 20 },
        ]),
      );
      const inputs = attentionInputs(problem, new Random(42));
      const { heads, headDim, qStride, lanes, rows } = problem;
      const positions = problem.rowInfo.map((info) => info?.[0]);
      for (const traits of decisions(device)) {
        const partials = await runOn(device, prefill, problem, inputs, caseStep(problem), traits);
        const given = { ...partials, row_info: inputs['row_info']! };
        const mergeProblem = { rows, heads, headDim, partials: lanes, outStride: qStride, positions };
        const { out } = await runOn(device, merge, mergeProblem, given, caseStep(problem), traits);
        expect(worstError(problem, inputs, out!)).toBeLessThan(5e-6);
      }
      device.dispose();
    });
  });
}
