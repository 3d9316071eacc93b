import { afterAll, describe, expect, test } from 'vitest';
import { alignUp } from '../../src/base/math.js';
import { Random } from '../../src/base/random.js';
import { testAdapters } from '../../src/gpu/testing/adapters.js';
import { drawn } from '../../src/gpu/testing/draw.js';
import { type SamplingCase, samplingInputs } from './case_inputs.js';
import { CANDIDATES, type SamplingValues, type VocabSlice } from './params.js';
import { sampleSteps, sampleStepsOnRanks } from './testing/rig.js';

// The quicker one to compile for, where there are two software adapters: each kernel's own test runs on both.
const adapter = (await testAdapters()).at(-1)!;
const device = await adapter.open();
const hardware = await adapter.open('hardware');
afterAll(() => {
  device.dispose();
  hardware.dispose();
});

const pick = <T>(random: Random, list: readonly T[]): T => list[random.integer(list.length)]!;

/** 2 to 8 slices, cut at multiples of 64. */
function cutVocabulary(random: Random, vocab: number): VocabSlice[] {
  const last = Math.ceil(vocab / 64) - 1;
  const cuts = new Set(Array.from({ length: 1 + random.integer(7) }, () => 64 * (1 + random.integer(last))));
  const edges = [0, ...[...cuts].sort((a, b) => a - b), vocab];
  return edges.slice(1).map((end, i) => [edges[i]!, end] as const);
}

const settingsOf = (random: Random, draws: boolean): SamplingValues => ({
  temperature: draws ? pick(random, [0, 1e-7, 0.3, 1, 1.7, 1e6, 1e38]) : 0,
  topK: draws ? pick(random, [1, 2, 7, 40, CANDIDATES - 1, CANDIDATES]) : 0,
  topP: draws ? pick(random, [1, 1, 0.9, 0.5, 0.01]) : 1,
  repetitionPenalty: pick(random, [1, 1, 1.3, 4, 0.7]),
  seed: random.integer(2 ** 32),
  active: random.integer(8) > 0,
});

/** As `settingsOf`, of requests that any token may be drawn for. */
const anySettings = (random: Random): SamplingValues => ({
  ...settingsOf(random, true),
  topK: pick(random, [0, 0, 1, 65, 300, 4000, 4_000_000_000]),
  topP: pick(random, [1, 0.99, 0.9, 0.5, 0.01]),
});

test('many workgroups that sum up and list tokens sample what one samples', { timeout: 300_000 }, async () => {
  const [slots, steps] = [4, 4];
  for (const trial of drawn([...Array(40).keys()], 8, 'sampling by bins')) {
    const random = new Random(7300 + trial);
    const vocab = pick(random, [1, 65, 1000, 4096, 4097, 9000, 20_000, 50_257]);
    const logits = pick<SamplingCase['logits']>(random, [
      'ties',
      'normal',
      'normal',
      'flat',
      'equal',
      'wild',
      'spread',
    ]);
    const settings = Array.from({ length: slots }, () => anySettings(random));
    const problem = { slots, vocab, stride: alignUp(vocab, 32), ring: steps };
    const { logits: values } = samplingInputs({ ...problem, settings, logits }, random);
    const one = await sampleSteps(device, problem, settings, values as Float32Array, steps);
    for (const on of [device, hardware]) {
      const many = await sampleSteps(on, problem, settings, values as Float32Array, steps, true);
      expect(many, `trial ${trial}: ${JSON.stringify({ vocab, logits, settings })}`).toEqual(one);
    }
  }
});

describe('ranks that list their best tokens sample what one rank samples', () => {
  test.each([
    ['greedy', false],
    ['top-k', true],
  ])('%s', { timeout: 300_000 }, async (_name, draws) => {
    const random = new Random(draws ? 71 : 72);
    const [slots, steps] = [4, 6];
    for (let trial = 0; trial < 40; trial++) {
      const vocab = pick(random, [65, 128, 320, 1000, 3001, 9000, 20_000]);
      const logits = pick<SamplingCase['logits']>(random, [
        'ties',
        'ties',
        'normal',
        'flat',
        'equal',
        'wild',
        'crowded',
      ]);
      const settings = Array.from({ length: slots }, () => settingsOf(random, draws));
      const problem = { slots, vocab, stride: alignUp(vocab, 32), ring: steps };
      const { logits: values } = samplingInputs({ ...problem, settings, logits }, random);
      const row = values as Float32Array;
      // On a GPU one rank lists its best tokens, too.
      const slices = trial % 4 === 0 ? [[0, vocab] as const] : cutVocabulary(random, vocab);
      const one = await sampleSteps(device, problem, settings, row, steps);
      const many = await sampleStepsOnRanks(device, problem, settings, row, steps, slices, draws);
      expect(many, `trial ${trial}: ${JSON.stringify({ vocab, logits, slices, settings })}`).toEqual(one);
    }
  });
});
