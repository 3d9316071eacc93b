import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { adaptersInTurn, decisions } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { bits, EMPTY_M, rowInfoArray, runOn } from '../fixture.js';
import { type MergeCase, suite } from './cases.js';
import { attentionMerge } from './index.js';

await testKernel(suite);

test('attention_merge refuses shapes it has no layout for', () => {
  const problem = { rows: 1, heads: 2, headDim: 32, partials: 4, outStride: 64 };
  expect(() => attentionMerge.plan({ ...problem, headDim: 260 }, BASELINE_TRAITS)).toThrow(/head_dim 260/);
  expect(() => attentionMerge.plan({ ...problem, partials: 0 }, BASELINE_TRAITS)).toThrow(/0 partials/);
  expect(() => attentionMerge.plan({ ...problem, outStride: 32 }, BASELINE_TRAITS)).toThrow(/outStride 32/);
  const shared = { ...problem, share: { ranks: 4, index: 0 } };
  expect(() => attentionMerge.plan(shared, BASELINE_TRAITS)).toThrow(/mode 'all' with 4 ranks; use 'lanes'/);
  expect(() => attentionMerge.plan({ ...shared, mode: 'home' }, BASELINE_TRAITS)).toThrow(/'home' with sources/);
  expect(() => attentionMerge.plan({ ...shared, mode: 'lanes', lanes: 3 }, BASELINE_TRAITS)).toThrow(
    /room for 3 lanes; expected 1 to 1/,
  );
  expect(() => attentionMerge.plan({ ...problem, mode: 'home' }, BASELINE_TRAITS)).toThrow(/sharers, or perHead/);
  expect(() => attentionMerge.plan({ ...problem, mode: 'home', sharers: 2, bundleHeads: 3 }, BASELINE_TRAITS)).toThrow(
    /bundles of 3 heads; expected a divisor of the 2 query heads/,
  );
});

for (const adapter of await adaptersInTurn('attention_merge rows')) {
  test(`attention_merge on ${adapter.name}: merging with empty states is the identity, bit for bit`, async () => {
    const device = await adapter.open();
    const [heads, headDim, partials] = [2, 64, 19];
    const random = new Random(11);
    // Row i holds the same one state in partial i (lane i mod 8), row 19 nothing but that state.
    const positions = Array.from({ length: partials + 1 }, (_, row) => (row < partials ? partials * 256 - 1 : 0));
    const problem: MergeCase = {
      rows: positions.length,
      heads,
      headDim,
      partials,
      outStride: heads * headDim,
      positions,
    };
    const state = Array.from({ length: heads }, () => ({
      o: random.normals(headDim, 50),
      m: random.normal(),
      l: 1 + 90 * random.next(),
    }));
    state[0]!.o[3] = -1e-30;
    const o = new Float32Array(problem.rows * heads * partials * headDim);
    const ml = new Float32Array(problem.rows * heads * partials * 2);
    for (let row = 0; row < problem.rows; row++) {
      for (let head = 0; head < heads; head++) {
        for (let i = 0; i < partials; i++) {
          const at = (row * heads + head) * partials + i;
          const here = i === row % partials;
          ml.set(here ? [state[head]!.m, state[head]!.l] : [EMPTY_M, 0], at * 2);
          if (here) o.set(state[head]!.o, at * headDim);
        }
      }
    }
    const inputs = {
      partial_o: o,
      partial_ml: ml,
      row_info: rowInfoArray(positions.map((position) => [position, 0])),
    };
    for (const traits of decisions(device)) {
      const { out } = await runOn(device, suite, problem, inputs, { rows: problem.rows, chunks: 1 }, traits);
      const alone = bits(out!, partials * problem.outStride, problem.outStride);
      expect(new Float32Array(alone.buffer)[0]).toBeCloseTo(state[0]!.o[0]! / state[0]!.l, 5);
      for (let row = 0; row < partials; row++) {
        expect(bits(out!, row * problem.outStride, problem.outStride), `state in partial ${row}`).toEqual(alone);
      }
    }
    device.dispose();
  });

  describe(`attention_merge on ${adapter.name}`, () => {
    test("writes nothing for inactive rows, and a row's bits don't depend on the batch", async () => {
      const device = await adapter.open();
      const problem: MergeCase = {
        rows: 3,
        heads: 3,
        headDim: 24,
        partials: 12,
        outStride: 96,
        positions: [2600, undefined, 700],
      };
      const inputs = suite.inputs(problem, new Random(2));
      const alone = { ...problem, rows: 1, positions: [700] };
      const last = (array: Float32Array) => array.slice((array.length / 3) * 2);
      const aloneInputs = {
        partial_o: last(inputs['partial_o'] as Float32Array),
        partial_ml: last(inputs['partial_ml'] as Float32Array),
        row_info: rowInfoArray([[700, 0]]),
      };
      for (const traits of decisions(device)) {
        const { out } = await runOn(device, suite, problem, inputs, { rows: 3, chunks: 11 }, traits);
        expect([...out!.subarray(96, 192)].every(Number.isNaN)).toBe(true);
        const own = await runOn(device, suite, alone, aloneInputs, { rows: 1, chunks: 3 }, traits);
        // 72 of the row's 96 elements; the padding isn't written.
        expect(bits(own['out']!, 0, 96)).toEqual(bits(out!, 192, 96));
        expect([...out!.subarray(192 + 72)].every(Number.isNaN)).toBe(true);
      }
      device.dispose();
    });
  });
}
