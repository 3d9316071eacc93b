import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { adaptersInTurn, decisions } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { latentWidth } from '../../cache/latent_cache.js';
import { bits, runOn } from '../fixture.js';
import { attendLatent, mlaCase, mlaInputs, mlaStep } from '../mla_fixture.js';
import { suite as mergeSuite } from '../attention_merge/cases.js';
import { suite } from './cases.js';
import { mlaSplit } from './index.js';

await testKernel(suite);

const problem = mlaCase({ heads: 8, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f16', block: 64 }, [
  [299, 0],
  undefined,
  [40, 1],
]);
const { heads, maxChunks, kvLoraRank, qStride } = problem;

test('mla_split refuses shapes it has no layout for', () => {
  expect(() => mlaSplit.plan({ ...problem, kvLoraRank: 1032 }, BASELINE_TRAITS)).toThrow(
    /mla_split: kv_lora_rank 1032/,
  );
  expect(() => mlaSplit.plan({ ...problem, qkRopeHeadDim: 20 }, BASELINE_TRAITS)).toThrow(/qk_rope_head_dim 20/);
  expect(() => mlaSplit.plan({ ...problem, qStride: 608 }, BASELINE_TRAITS)).toThrow(/qStride 608/);
  expect(() => mlaSplit.plan({ ...problem, block: 48 }, BASELINE_TRAITS)).toThrow(/block of 48/);
});

for (const adapter of await adaptersInTurn('mla_split rows')) {
  test(`mla_split on ${adapter.name}: bits, merging, and what isn't written`, async () => {
    const device = await adapter.open();
    const inputs = mlaInputs(problem, new Random(5));
    const q = inputs['q_abs'] as Float32Array;
    for (const traits of decisions(device)) {
      // One chunk more than any row has.
      const batch = await runOn(device, suite, problem, inputs, { rows: 3, chunks: maxChunks }, traits);
      const widths = [
        ['partial_o', kvLoraRank],
        ['partial_ml', 2],
      ] as const;
      for (const [row, info] of problem.rowInfo.entries()) {
        for (let at = 0; at < heads * maxChunks; at++) {
          const written = info !== undefined && (at % maxChunks) * 256 <= info[0];
          const index = row * heads * maxChunks + at;
          for (const [name, width] of widths) {
            const part = (batch[name] as Float32Array).subarray(index * width, (index + 1) * width);
            expect(part.filter(Number.isNaN).length, `${name} of row ${row}, partial ${at}`).toBe(written ? 0 : width);
          }
        }
        if (!info) continue;

        // The row alone, and of it only heads 3 and 4, as a rank may hold them.
        const width = latentWidth(problem);
        for (const [first, count] of [
          [0, heads],
          [3, 2],
        ] as const) {
          const alone = { ...problem, rows: 1, heads: count, qStride: count * width, rowInfo: [info] };
          const start = row * qStride + first * width;
          const own = await runOn(
            device,
            suite,
            alone,
            { ...inputs, q_abs: q.slice(start, start + count * width), row_info: Uint32Array.from(info) },
            mlaStep(alone),
            traits,
          );
          for (const [name, size] of widths) {
            const length = count * maxChunks * size;
            const at = (row * heads + first) * maxChunks * size;
            // Unwritten elements hold the same NaN bits in both.
            expect(bits(own[name]!, 0, length), `${name} of row ${row}`).toEqual(bits(batch[name]!, at, length));
          }
        }

        // The chunks' partials merge to attention over the whole.
        const tokens = Array.from({ length: info[0] + 1 }, (_, i) => i);
        const whole = attendLatent(problem, inputs, row, 1, tokens);
        const parts = Array.from(
          { length: Math.floor(info[0] / 256) + 1 },
          (_, c) => (row * heads + 1) * maxChunks + c,
        );
        const [o, ml] = [batch['partial_o']!, batch['partial_ml']!];
        const m = Math.max(...parts.map((at) => ml[at * 2]!));
        const l = parts.reduce((sum, at) => sum + Math.exp(ml[at * 2]! - m) * ml[at * 2 + 1]!, 0);
        for (let i = 0; i < kvLoraRank; i++) {
          const merged = parts.reduce((sum, at) => sum + Math.exp(ml[at * 2]! - m) * o[at * kvLoraRank + i]!, 0) / l;
          expect(merged).toBeCloseTo(whole.o[i]! / whole.l, 4);
        }
      }
    }
    device.dispose();
  });
}

for (const adapter of await adaptersInTurn('mla_split that finishes')) {
  test(`mla_split on ${adapter.name}: a step of one chunk that finishes gives the bits of its partials merged`, async () => {
    const device = await adapter.open();
    const traits = { ...device.traits, software: true };
    const rowInfo = [[199, 0], undefined, [40, 1], [255, 2]] as const;
    const one = mlaCase({ heads: 6, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f16', block: 64 }, rowInfo);
    const step = mlaStep(one);
    expect(step.chunks).toBe(1);
    const given = mlaInputs(one, new Random(6));
    const { partial_o, partial_ml } = await runOn(device, suite, one, given, step, traits);
    const width = one.heads * kvLoraRank;
    const merge = { ...one, headDim: kvLoraRank, partials: one.maxChunks, outStride: width, positions: [] };
    const partials = { partial_o: partial_o!, partial_ml: partial_ml!, row_info: given['row_info']! };
    const { out } = await runOn(device, mergeSuite, merge, partials, step, traits);
    const finished = { ...one, maxChunks: 1, finishes: true };
    const { partial_o: own } = await runOn(device, suite, finished, given, step, traits);
    for (const [row, info] of rowInfo.entries()) {
      const got = bits(own!, row * width, width);
      if (info) expect(got, `row ${row}`).toEqual(bits(out!, row * width, width));
      else expect(new Float32Array(got.buffer).every(Number.isNaN)).toBe(true);
    }
    device.dispose();
  });
}
