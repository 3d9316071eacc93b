import { expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import type { Device } from '../../src/gpu/device.js';
import { describeOnAdapters } from '../../src/gpu/testing/adapters.js';
import { NO_TOKEN, type SamplingValues } from './params.js';
import { sampleSteps } from './testing/rig.js';
import { keptTokens, sortedIds } from './sample/reference.js';

const SLOTS = 32;

/** 32 * steps draws: 32 slots of one setting with a seed each. */
async function draws(
  device: Device,
  logits: readonly number[],
  values: SamplingValues,
  steps: number,
): Promise<Uint32Array> {
  const vocab = logits.length;
  const stride = Math.ceil(vocab / 4) * 4;
  const all = new Float32Array(SLOTS * stride);
  for (let slot = 0; slot < SLOTS; slot++) all.set(logits, slot * stride);
  const settings = Array.from({ length: SLOTS }, (_, slot) => ({ ...values, seed: 1000 + slot }));
  const state = await sampleSteps(device, { slots: SLOTS, vocab, stride, ring: steps }, settings, all, steps);
  return state.ids;
}

const kept = (logits: readonly number[], { temperature = 1, topK = 0, topP = 1 }: SamplingValues) =>
  keptTokens(Float64Array.from(logits, Math.fround), {
    temperature: Math.fround(temperature),
    topK,
    topP: Math.fround(topP),
    repetitionPenalty: 1,
    seed: [0, 0],
    counter: 0,
    active: true,
  });

await describeOnAdapters('sampling', (device) => {
  const random = new Random(99);
  const logits = Array.from({ length: 40 }, () => random.normal() * 1.5);

  const STEPS = 64;

  test.each<SamplingValues>([
    { temperature: 1 },
    { temperature: 0.6 },
    { temperature: 2.5, topK: 12 },
    { temperature: 1, topP: 0.8 },
    { temperature: 1.3, topK: 15, topP: 0.7 },
  ])('draws follow the distribution of %o (chi-square)', { timeout: 120_000 }, async (values) => {
    const { ids, probabilities } = kept(logits, values);
    const counts = new Map<number, number>();
    for (const id of await draws(device(), logits, values, STEPS)) counts.set(id, (counts.get(id) ?? 0) + 1);
    expect([...counts.keys()].filter((id) => !ids.includes(id))).toEqual([]);
    // Rare tokens share a cell, so that every cell expects at least 8 draws.
    let [chi, cells, restExpected, restSeen] = [0, 0, 0, 0];
    ids.forEach((id, i) => {
      const expected = probabilities[i]! * SLOTS * STEPS;
      const seen = counts.get(id) ?? 0;
      if (expected < 8) [restExpected, restSeen] = [restExpected + expected, restSeen + seen];
      else [chi, cells] = [chi + (seen - expected) ** 2 / expected, cells + 1];
    });
    if (restExpected > 0) [chi, cells] = [chi + (restSeen - restExpected) ** 2 / restExpected, cells + 1];
    // The seeds are fixed; 4 standard deviations of chi-square either side: draws too regular are as wrong as skewed ones.
    const freedom = cells - 1;
    expect(chi).toBeLessThan(freedom + 4 * Math.sqrt(2 * freedom));
    expect(chi).toBeGreaterThan(freedom - 4 * Math.sqrt(2 * freedom));
  });

  const observed = async (values: SamplingValues, of: readonly number[], steps = 16): Promise<number[]> =>
    [...new Set(await draws(device(), of, values, steps))].sort((a, b) => a - b);

  test('top-k keeps exactly k, the lowest ids of those that tie', { timeout: 120_000 }, async () => {
    const tied = [1, 2, 1, 3, 2, 2, 1, 2, 0, 2];
    expect(await observed({ temperature: 1, topK: 1 }, tied)).toEqual([3]);
    expect(await observed({ temperature: 1, topK: 3 }, tied)).toEqual([1, 3, 4]);
    expect(await observed({ temperature: 1, topK: 6 }, tied)).toEqual([1, 3, 4, 5, 7, 9]);
    expect(await observed({ temperature: 1, topK: 8 }, tied)).toEqual([0, 1, 2, 3, 4, 5, 7, 9]);
    expect(await observed({ temperature: 1, topK: 10 }, tied)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(await observed({ temperature: 1, topK: 4_000_000_000 }, tied)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  test('top-k among more equal logits than one list holds', { timeout: 120_000 }, async () => {
    const equal = Array.from({ length: 1500 }, (_, id) => (id === 1321 ? 5 : 1));
    const ids = await observed({ temperature: 1e6, topK: 300 }, equal, 32);
    expect(ids.at(-1)).toBe(1321);
    expect(ids.at(-2)).toBeLessThan(299);
    // 1024 draws of 300: nearly all come up.
    expect(ids.length).toBeGreaterThan(270);
  });

  test('top-p keeps the fewest tokens whose probabilities reach p', { timeout: 120_000 }, async () => {
    // Probabilities 1/2, 1/4, 1/8, 1/16, 1/16, out of order.
    const halves = [1 / 16, 1 / 4, 1 / 2, 1 / 16, 1 / 8].map(Math.log);
    expect(await observed({ temperature: 1, topP: 0.001 }, halves)).toEqual([2]);
    expect(await observed({ temperature: 1, topP: 0.49 }, halves)).toEqual([2]);
    expect(await observed({ temperature: 1, topP: 0.51 }, halves)).toEqual([1, 2]);
    expect(await observed({ temperature: 1, topP: 0.76 }, halves)).toEqual([1, 2, 4]);
    expect(await observed({ temperature: 1, topP: 0.88 }, halves)).toEqual([0, 1, 2, 4]);
    expect(await observed({ temperature: 1, topP: 0.95 }, halves)).toEqual([0, 1, 2, 3, 4]);
    // Of the three that top-k leaves (4/7, 2/7, 1/7), two reach 0.85.
    expect(await observed({ temperature: 1, topK: 3, topP: 0.85 }, halves)).toEqual([1, 2]);
    expect(await observed({ temperature: 1, topK: 3, topP: 0.86 }, halves)).toEqual([1, 2, 4]);
  });

  test('a slot gives the same ids alone and beside others, and state advances once per step', async () => {
    const [vocab, stride, ring, steps] = [5000, 5024, 4, 7];
    const rows = Array.from({ length: 3 }, (_, slot) => new Random(slot).normals(stride, 2));
    const settings: SamplingValues[] = [
      { temperature: 1, topK: 500, topP: 0.95, repetitionPenalty: 1.2, seed: 11 },
      { active: false },
      { temperature: 0, repetitionPenalty: 3 },
    ];
    const joined = new Float32Array(3 * stride);
    rows.forEach((row, slot) => joined.set(row, slot * stride));
    const together = await sampleSteps(device(), { slots: 3, vocab, stride, ring }, settings, joined, steps);
    for (const slot of [0, 2]) {
      const alone = await sampleSteps(
        device(),
        { slots: 1, vocab, stride, ring },
        [settings[slot]!],
        rows[slot]!,
        steps,
      );
      expect(Array.from({ length: ring }, (_, i) => together.ids[i * 3 + slot])).toEqual(Array.from(alone.ids));
      expect(together.tokens[slot]).toBe(alone.ids[(steps - 1) % ring]);
      expect(alone.row_info[0]).toBe(steps);
      expect(together.row_info[slot * 2]).toBe(20 * slot + steps);
      expect(together.sampling[slot * 8 + 6]).toBe(steps);
    }
    expect(Array.from({ length: ring }, (_, i) => together.ids[i * 3 + 1])).toEqual([
      NO_TOKEN,
      NO_TOKEN,
      NO_TOKEN,
      NO_TOKEN,
    ]);
    expect([together.tokens[1], together.row_info[2], together.sampling[8 + 6]]).toEqual([77, 20, 0]);
    // Greedy with a penalty: positive logits fall to a third as they are sampled, so the first seven differ and descend.
    const order = sortedIds(Float64Array.from(rows[2]!.subarray(0, vocab)));
    const last = Array.from({ length: ring }, (_, i) => together.ids[((i + 3) % ring) * 3 + 2]);
    expect(last).toEqual(order.slice(3, 7));
    for (const id of order.slice(0, 7)) expect((together.seen[2 * 157 + (id >>> 5)]! >>> (id & 31)) & 1).toBe(1);
  });

  test('the seed decides the text, and the counter goes on where it stood', async () => {
    const [vocab, stride] = [300, 320];
    const row = new Random(5).normals(stride);
    const run = async (values: SamplingValues, steps: number): Promise<number[]> =>
      Array.from(
        (
          await sampleSteps(
            device(),
            { slots: 1, vocab, stride, ring: steps },
            [{ temperature: 1, ...values }],
            row,
            steps,
          )
        ).ids,
      );
    const ids = await run({ seed: 7 }, 12);
    expect(await run({ seed: 7 }, 12)).toEqual(ids);
    expect(await run({ seed: 7, counter: 5 }, 7)).toEqual(ids.slice(5));
    expect(await run({ seed: 8 }, 12)).not.toEqual(ids);
    expect(await run({ seed: 7n + (1n << 32n) }, 12)).not.toEqual(ids);
  });
});
