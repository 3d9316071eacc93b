import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { adaptersInTurn, decisions } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { attentionInputs, bits, caseStep, type RowInfo, rowInfoArray, runOn } from '../fixture.js';
import { type PrefillCase, prefillProblem, promptRows, suite } from './cases.js';
import { attentionPrefill } from './index.js';

await testKernel(suite);

const shape = { heads: 6, kvHeads: 2, headDim: 32, kvType: 'f16', block: 16 } as const;

test('attention_prefill refuses lanes that the merge would not find', () => {
  const problem = prefillProblem(shape, promptRows([{ slot: 0, from: 0, count: 300 }]));
  expect(() => attentionPrefill.plan({ ...problem, lanes: 8 }, BASELINE_TRAITS)).toThrow(/lanes 8 with maxChunks 3/);
  expect(() => attentionPrefill.plan({ ...problem, share: { ranks: 2, index: 0 } }, BASELINE_TRAITS)).toThrow(
    /lanes 3 with maxChunks 3; expected min\(8, maxChunks\) \/ 2, rounded up/,
  );
});

/** The same prompt's rows and cache, for rows arranged in another way: only q and row_info move. */
function rearranged(whole: PrefillCase, inputs: ReturnType<typeof attentionInputs>, rowInfo: readonly RowInfo[]) {
  const { qStride } = whole;
  const q = new Float32Array(rowInfo.length * qStride).fill(Number.NaN);
  for (const [row, info] of rowInfo.entries()) {
    if (!info) continue;
    const from = whole.rowInfo.findIndex((other) => other?.[0] === info[0] && other[1] === info[1]);
    q.set((inputs['q'] as Float32Array).subarray(from * qStride, (from + 1) * qStride), row * qStride);
  }
  return {
    problem: { ...whole, rows: rowInfo.length, rowInfo },
    inputs: { ...inputs, q, row_info: rowInfoArray(rowInfo) },
  };
}

for (const adapter of await adaptersInTurn('attention_prefill rows')) {
  describe(`attention_prefill on ${adapter.name}`, () => {
    test(
      "a row's bits don't depend on its tile, on prompt chunking or on other rows",
      { timeout: 180_000 },
      async () => {
        const device = await adapter.open();
        const whole = prefillProblem(shape, promptRows([{ slot: 0, from: 0, count: 290 }]));
        const inputs = attentionInputs(whole, new Random(23));
        const { heads, headDim, lanes } = whole;
        const arrangements: Record<string, RowInfo[]> = {
          'two prompt chunks, cut inside a tile': promptRows([
            { slot: 0, from: 0, count: 101 },
            { slot: 0, from: 101, count: 189 },
          ]),
          'shifted by 5 rows, alone': promptRows([{ slot: 0, from: 245, count: 45, skip: 5 }]),
          'one row': promptRows([{ slot: 0, from: 270, count: 1, skip: 15 }]),
        };
        for (const traits of decisions(device)) {
          const expected = await runOn(device, suite, whole, inputs, caseStep(whole), traits);
          for (const [name, rowInfo] of Object.entries(arrangements)) {
            const other = rearranged(whole, inputs, rowInfo);
            const got = await runOn(device, suite, other.problem, other.inputs, caseStep(other.problem), traits);
            for (const [row, info] of rowInfo.entries()) {
              for (const [output, width] of [
                ['partial_o', headDim],
                ['partial_ml', 2],
              ] as const) {
                const length = heads * lanes * width;
                const own = bits(got[output]!, row * length, length);
                if (info)
                  expect(own, `${name}: ${output} of position ${info[0]}`).toEqual(
                    bits(expected[output]!, info[0] * length, length),
                  );
                else
                  expect([...new Float32Array(own.buffer)].every(Number.isNaN), `${name}: inactive row ${row}`).toBe(
                    true,
                  );
              }
            }
          }
        }
        device.dispose();
      },
    );
  });
}
