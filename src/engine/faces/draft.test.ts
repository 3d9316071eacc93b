import { beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import type { GenerateOptions, GenerateResult, LoadOptions, Model } from '../contracts/api.js';
import { randomFiles } from '../testing/random_source.js';
import type { RankGroup } from '../ranks/rank_group.js';
import { load } from './load.js';
import { planModel } from './plan_model.js';
import type { LoadedModel } from './model.js';
import { serve } from './serving_model.js';

// The last is the quicker one to compile for, where there are two software adapters.
const adapter = (await testAdapters()).at(-1)!.name;
const GQA = 'models/tiny-gqa';
const MLA = 'models/tiny-mla';
const STORY = 'lena hid the red needle in the garden box . where is the red needle ?';
const LONG = Array.from({ length: 12 }, () => STORY).join(' ');
const open = (options: LoadOptions, name = GQA): Promise<Model> =>
  load(name, { adapter, contextLength: 512, ...options });
const ask = (model: Model, prompt: string, options: GenerateOptions = {}): Promise<GenerateResult> =>
  model.generate(prompt, { maxTokens: 40, ignoreEos: true, ...options }).result;
const always = (model: Model, tries = 5): void => void ((model as LoadedModel).how.speculation!.tries = tries);

const KINDS: readonly (readonly [string, GenerateOptions])[] = [
  [STORY, {}],
  [LONG, {}],
  [LONG.slice(0, 200), { temperature: 1, seed: 3 }],
  [STORY, { temperature: 0.8, seed: 4, topK: 20, repetitionPenalty: 1.2, frequencyPenalty: 0.3 }],
];

const PLANS: readonly (readonly [string, LoadOptions])[] = [
  ['one rank', {}],
  ['tp', { ranks: 2, plan: 'tp', virtualRanks: true }],
  ['sp', { ranks: 2, plan: 'sp', virtualRanks: true }],
  ['pp', { ranks: 2, plan: 'pp', virtualRanks: true }],
  ['ranks in workers', { ranks: 2, plan: 'tp', workers: true }],
];

describe('a draft model', { timeout: 300_000 }, () => {
  const expected: GenerateResult[] = [];
  beforeAll(async () => {
    const plain = await open({ speculate: 'off' });
    for (const [prompt, options] of KINDS) expected.push(await ask(plain, prompt, options));
    await plain.dispose();
  }, 300_000);

  test('which is the model itself is nearly always right, whatever text came before', async () => {
    const model = await open({ draft: GQA, speculate: 'draft' });
    always(model);
    // A prompt is computed beside its first answer; in between another text takes its place.
    for (const at of [0, 1, 0]) {
      let right = 0;
      for (let turn = 0; turn < 20 && right <= 15; turn++) {
        const { tokens, stats } = await ask(model, KINDS[at]![0]);
        expect(tokens).toEqual(expected[at]!.tokens);
        const { drafted, accepted, steps } = stats.speculation!;
        expect(accepted).toBe(drafted);
        // Five, and the one behind.
        expect(accepted).toBeLessThanOrEqual(5 * steps);
        right = accepted;
      }
      expect(right).toBeGreaterThan(15);
    }
    await model.dispose();
  });

  test.each(drawn(PLANS, 2, 'draft plans'))('another model drafts, to the same tokens: %s', async (_name, options) => {
    const model = await open({ ...options, draft: MLA, speculate: 'draft' });
    always(model);
    for (const [at, [prompt, kind]] of KINDS.entries()) {
      // Its prompt is computed beside the first answers.
      let drafted = 0;
      for (let turn = 0; turn < 20 && drafted <= 5; turn++) {
        const { tokens, stats } = await ask(model, prompt, kind);
        expect(tokens, `request ${at}`).toEqual(expected[at]!.tokens);
        ({ drafted } = stats.speculation!);
      }
      expect(drafted, `request ${at}`).toBeGreaterThan(5);
    }
    // Aborted in the middle, and others beside.
    const left = new AbortController();
    const aborted = model.generate(LONG, { maxTokens: 100, ignoreEos: true, signal: left.signal });
    aborted.result.catch(() => {});
    for await (const piece of aborted) if (piece.length > 0) break;
    left.abort();
    const both = await Promise.all(KINDS.map(([prompt, kind]) => ask(model, prompt, kind)));
    expect(both.map(({ tokens }) => tokens)).toEqual(expected.map(({ tokens }) => tokens));
    expect((await ask(model, STORY, { speculate: 'off' })).stats.speculation).toMatchObject({ steps: 0 });
    await model.dispose();
  });

  test('its weights come again where the device was lost', async () => {
    const model = await open({ draft: GQA, speculate: 'draft' });
    always(model);
    await ask(model, STORY);
    const { group } = (model as LoadedModel).opened;
    (group as RankGroup).devices[0]!.lose('a test');
    await expect(ask(model, STORY)).rejects.toMatchObject({ code: 'device_lost' });
    await model.recover();
    await ask(model, LONG, { maxTokens: 100 });
    await expect
      .poll(async () => (await ask(model, STORY)).stats.speculation!.accepted, { timeout: 60_000 })
      .toBeGreaterThan(15);
    const again = await ask(model, STORY);
    expect(again.tokens).toEqual(expected[0]!.tokens);
    await model.dispose();
  });

  test('served to many, and in a conversation', async () => {
    const served = await serve(GQA, { adapter, contextLength: 512, slots: 4, draft: GQA });
    const run = async (at: number): Promise<string> => {
      let answer = '';
      const [prompt, kind] = KINDS[at]!;
      for await (const piece of served.complete(prompt, { maxTokens: 40, ignoreEos: true, ...kind }))
        answer += piece.text;
      return answer;
    };
    for (const at of KINDS.keys()) expect(await run(at)).toBe(expected[at]!.text);
    const all = await Promise.all([...KINDS.keys()].map(run));
    expect(all).toEqual(expected.map(({ text }) => text));
    await served.dispose();
    const talk = async (options: LoadOptions, tries?: number): Promise<readonly string[]> => {
      const model = await open(options);
      if (tries) always(model, tries);
      const conversation = model.conversation();
      const texts: string[] = [];
      for (const text of [STORY, 'where is it ?', 'who hid it ?'])
        texts.push((await conversation.send(text, { maxTokens: 20 }).result).text);
      await model.dispose();
      return texts;
    };
    expect(await talk({ draft: GQA }, 4)).toEqual(await talk({ speculate: 'off' }));
  });
});

describe('what can be no draft', () => {
  let other: readonly File[];
  beforeAll(() => {
    ({ files: other } = randomFiles({ seed: 11, config: { max_position_embeddings: 1024 } }));
  });

  test('options that say two things, or half of one', async () => {
    await expect(open({ speculate: 'draft' })).rejects.toMatchObject({ code: 'usage' });
    await expect(open({ draft: GQA, speculate: 'ngram' })).rejects.toMatchObject({ code: 'usage' });
    const model = await open({ speculate: 'ngram' });
    await expect(ask(model, STORY, { speculate: 'draft' })).rejects.toThrow("with speculate 'draft'");
    await model.dispose();
  });

  test('another vocabulary: the first token that differs is told, and no weights are read', async () => {
    const phases = new Set<string>();
    const onProgress = ({ phase }: { readonly phase: string }): void => void phases.add(phase);
    await expect(open({ draft: 'models/tiny-vlm', onProgress })).rejects.toThrow(/its token \d+ is/);
    expect(phases).not.toContain('weights');
    await expect(load(other, { adapter, draft: GQA, onProgress })).rejects.toThrow('vocabulary');
  });

  test('a model with states, which are not taken back', async () => {
    const { files } = randomFiles({
      seed: 33,
      config: { model_type: 'lfm2', num_hidden_layers: 3, full_attn_idxs: [1], block_auto_adjust_ff_dim: false },
    });
    // As a folder would be.
    const draft = files as unknown as string;
    await expect(load(other, { adapter, draft })).rejects.toThrow(/recurrent/);
  });

  test('no room beside the model: plan and load count what it takes', async () => {
    const options = { adapter, contextLength: 512, plan: 'tp', ranks: 2, virtualRanks: true };
    const [plain, beside] = [await planModel(GQA, options), await planModel(GQA, { ...options, draft: MLA })];
    const [first, second] = beside.pick!.memory.map(({ totalBytes }) => totalBytes);
    expect(second).toBe(plain.pick!.memory[1]!.totalBytes);
    const draftBytes = first! - plain.pick!.memory[0]!.totalBytes;
    const alone = await planModel(MLA, { ...options, ranks: 1, plan: 'single' });
    expect(draftBytes).toBeGreaterThan(alone.pick!.memory[0]!.weightBytes);
    expect(beside.download!.bytes).toBe(plain.download!.bytes + alone.download!.bytes);

    const tight = { ...options, memory: [first! - 1, second!] };
    expect((await planModel(GQA, tight)).pick).toBeDefined();
    const refused = await planModel(GQA, { ...tight, draft: MLA });
    expect(refused.pick).toBeUndefined();
    expect(refused.why).toMatch(/rank 0/);
    await expect(load(GQA, { ...tight, draft: MLA })).rejects.toThrow(/rank 0 needs .*, of which drafts take \d/);
  });
});
