import { describe, expect, test } from 'vitest';
import { peersTable } from '../suites/peers.js';
import { openPeers } from './page_peers.js';
import type { Answering, LeftOut, PeerModel } from './peer_model.js';
import { raceModels } from './race_models.js';

const hooks = { signal: new AbortController().signal, onProgress: () => {}, onWarning: () => {} };
const prompt = [5, 6, 7];
const logits = Float32Array.of(0.5, 2, -1, 0.25);
const ids = Array.from({ length: 12 }, (_, i) => (i === 0 ? 1 : i % 4));

interface Fake extends PeerModel {
  answers: number;
}

/** A runtime whose answers are said beforehand, and counted. */
function fake(
  name: string,
  subject: { readonly ids?: readonly number[]; readonly logits?: Float32Array | null } = {},
): Fake {
  const given = subject.logits === undefined ? logits : subject.logits;
  const model: Fake = {
    name,
    device: 'paper',
    answers: 0,
    prompted: (): Answering => ({
      ...(given && { logits: () => Promise.resolve(given) }),
      answer(maxTokens) {
        model.answers++;
        return Promise.resolve({ ids: (subject.ids ?? ids).slice(0, maxTokens), ttftMs: 2, tokenMs: 1 });
      },
    }),
    filled: () => Promise.reject(new Error('it takes no cache')),
    dispose: () => Promise.resolve(),
  };
  return model;
}

const race = async (models: readonly PeerModel[], weights: 'f32' | 'q4' = 'f32') => {
  const leftOut: LeftOut[] = [];
  const options = { weights, maxTokens: 12, runs: 3 };
  return { results: await raceModels(models, { prompt }, options, leftOut, hooks), leftOut };
};

describe('a runtime with other results is told with its reason, and not timed', () => {
  const off = Float32Array.from(logits, (value) => value + 0.1);
  const others = ids.map((id, at) => (at === 4 ? id + 1 : id));
  test.each<[string, Parameters<typeof fake>[1], string]>([
    ['logits that differ', { logits: off }, 'differs from ours by 0.050 of the largest logit'],
    ['logits that are none', { logits: logits.map(() => Number.NaN) }, 'differs from ours by NaN'],
    ['another first token', { ids: [2, ...ids.slice(1)] }, 'begins with token 2 instead of 1'],
    ['too few tokens', { ids: ids.slice(0, 9) }, 'gave 9 tokens instead of 12'],
    ['no logits, and another token soon', { logits: null, ids: others }, 'chose another token than ours at 4'],
  ])('%s', async (_what, subject, why) => {
    const [ours, right, wrong] = [fake('splitkv'), fake('right'), fake('wrong', subject)];
    const { results, leftOut } = await race([ours, wrong, right]);
    expect(results.map(({ runtime }) => runtime)).toEqual(['splitkv', 'right']);
    expect(leftOut).toEqual([{ runtime: 'wrong', tokens: 3, why: expect.stringContaining(why) as string }]);
    // Once to be checked; those that are timed answer in every run, and once before.
    expect(wrong.answers).toBe(1);
    expect(right.answers).toBe(1 + 1 + 3);
    const [, heading, row] = peersTable(results, leftOut)
      .split(/\n\n|\n(?=not timed|wrong)/)
      .slice(-3);
    expect([heading, row].join('\n')).toMatch(/not timed +tokens +why\nwrong +3 +it /);
  });

  test('another token late in the answer is a near tie, and quantised weights allow more', async () => {
    const late = ids.map((id, at) => (at === 10 ? id + 1 : id));
    const { results, leftOut } = await race([fake('splitkv'), fake('late', { logits: null, ids: late })]);
    expect(leftOut).toEqual([]);
    expect(results[1]).toMatchObject({ same_tokens: 10 });
    expect((await race([fake('splitkv'), fake('rounds', { logits: off })], 'q4')).leftOut).toEqual([]);
  });

  test('one that takes no cache is told, and ours failing is an error', async () => {
    const beginning = { prompt, present: [], lastRow: new Float32Array() };
    const leftOut: LeftOut[] = [];
    const ours = fake('splitkv');
    const options = { weights: 'f32', maxTokens: 4, runs: 1 } as const;
    const able: PeerModel = { ...ours, filled: () => Promise.resolve(ours.prompted(prompt)) };
    const results = await raceModels([able, fake('other')], beginning, options, leftOut, hooks);
    expect(results).toHaveLength(1);
    expect(results[0]).not.toHaveProperty('ttft_ms');
    expect(leftOut).toEqual([{ runtime: 'other', tokens: 3, why: 'it takes no cache' }]);
    await expect(raceModels([ours, able], beginning, options, leftOut, hooks)).rejects.toThrow('it takes no cache');
  });
});

test('a runtime that is not installed, or does not open, is left out with the reason', async () => {
  const models: PeerModel[] = [];
  const leftOut: LeftOut[] = [];
  const openings = [
    { runtime: 'absent', open: undefined },
    { runtime: 'refuses', open: () => Promise.reject(new Error('its f16 graphs need shader-f16')) },
    { runtime: 'there', open: () => Promise.resolve(fake('there 1.0')) },
  ];
  await openPeers(openings, models, leftOut, hooks);
  expect(models.map(({ name }) => name)).toEqual(['there 1.0']);
  expect(leftOut).toEqual([
    { runtime: 'absent', why: 'not installed; node bench/peer_packages/install.mjs installs it' },
    { runtime: 'refuses', why: 'its f16 graphs need shader-f16' },
  ]);
});
