import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { adaptersInTurn, decisions } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { bits, runOn } from '../fixture.js';
import { mlaCase, mlaInputs, mlaStep } from '../mla_fixture.js';
import { promptRows, suite } from './cases.js';
import { mlaPrefill } from './index.js';

await testKernel(suite);

const shape = { heads: 3, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f16', block: 64 } as const;
const problem = mlaCase(shape, promptRows(0, 250, 13, 16));
const { heads, lanes, kvLoraRank, qStride } = problem;

test('mla_prefill refuses shapes it has no layout for', () => {
  expect(() => mlaPrefill.plan({ ...problem, lanes: 1 }, BASELINE_TRAITS)).toThrow(/lanes 1 with maxChunks 3/);
  expect(() => mlaPrefill.plan({ ...problem, share: { ranks: 6, index: 6 } }, BASELINE_TRAITS)).toThrow(
    /mla_prefill: index 6 of 6 ranks/,
  );
  expect(() => mlaPrefill.plan({ ...problem, kvLoraRank: 12 }, BASELINE_TRAITS)).toThrow(/kv_lora_rank 12/);
});

for (const adapter of await adaptersInTurn('mla_prefill rows')) {
  test(`mla_prefill on ${adapter.name}: a row's bits don't depend on the rows of its tile, nor on its place there`, async () => {
    const device = await adapter.open();
    const inputs = mlaInputs(problem, new Random(6));
    const q = inputs['q_abs'] as Float32Array;
    for (const traits of decisions(device)) {
      const batch = await runOn(device, suite, problem, inputs, mlaStep(problem), traits);
      // Two inactive rows first: every row moves by two within its tile; then the first row alone.
      for (const [before, count] of [
        [2, 13],
        [0, 1],
      ] as const) {
        const rowInfo = [...Array.from({ length: before }, () => undefined), ...promptRows(0, 250, count)];
        const moved = { ...problem, rows: rowInfo.length, rowInfo };
        const own = new Float32Array(rowInfo.length * qStride).fill(Number.NaN);
        own.set(q.subarray(0, count * qStride), before * qStride);
        const info = Uint32Array.from(rowInfo.flatMap((row) => (row ? [...row] : [0xffffffff, 0xffffffff])));
        const other = await runOn(
          device,
          suite,
          moved,
          { ...inputs, q_abs: own, row_info: info },
          mlaStep(moved),
          traits,
        );
        for (let row = 0; row < count; row++) {
          const used = Math.floor((250 + row) / 256) + 1;
          for (let head = 0; head < heads; head++) {
            for (const [name, width] of [
              ['partial_o', kvLoraRank],
              ['partial_ml', 2],
            ] as const) {
              const at = (row: number): number => (row * heads + head) * lanes * width;
              expect(bits(other[name]!, at(row + before), used * width), `${name} of row ${row}, head ${head}`).toEqual(
                bits(batch[name]!, at(row), used * width),
              );
            }
          }
        }
      }
      // Inactive rows: nothing.
      const rest = (batch['partial_o'] as Float32Array).subarray(13 * heads * lanes * kvLoraRank);
      expect(rest.every(Number.isNaN)).toBe(true);
    }
    device.dispose();
  });
}
