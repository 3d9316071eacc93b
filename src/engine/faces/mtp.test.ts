import { describe, expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { writeSafetensors } from '../../loader/testing/write_safetensors.js';
import type { RandomModel } from '../../model/testing/random_model.js';
import { headDrafts } from '../../model/testing/reference/recurrent.js';
import { latentHeadDrafts } from '../../model/testing/reference/reference.js';
import type { GenerateOptions, GenerateResult, LoadOptions, Model } from '../contracts/api.js';
import type { RankGroup } from '../ranks/rank_group.js';
import type { DraftModel, DraftText } from '../serving/speculation/draft_model.js';
import { randomFiles } from '../testing/random_source.js';
import { load } from './load.js';
import type { LoadedModel } from './model.js';
import { planModel, type PlanModelOptions } from './plan_model.js';
import { serve } from './serving_model.js';
import { LINEAR_ATTENTION } from '../../model/testing/small_configs.js';

// The last is the quicker one to compile for, where there are two software adapters.
const adapter = (await testAdapters()).at(-1)!.name;
const VOCAB = 320;
const QWEN = {
  ...LINEAR_ATTENTION,
  mtp_num_hidden_layers: 1,
};
const DEEPSEEK = { model_type: 'deepseek_v3', num_nextn_predict_layers: 1 };
const random = new Random(7);
const ids = (count: number): number[] => Array.from({ length: count }, () => random.integer(VOCAB));
const PROMPTS = [ids(90), ids(30), ids(200)];

const TYPES = { weights: 'f32', kv: 'f32', prefillChunk: 64 } as const;
const open = (files: readonly File[], options: LoadOptions): Promise<Model> =>
  load(files, { adapter, contextLength: 512, ...TYPES, ...options });
const ask = (model: Model, prompt: readonly number[], options: GenerateOptions = {}): Promise<GenerateResult> =>
  model.generate(prompt, { maxTokens: 24, ignoreEos: true, ...options }).result;
const always = (model: Model, tries = 5): void => void ((model as LoadedModel).how.speculation!.tries = tries);
const headOf = (model: Model): DraftModel => (model as LoadedModel).how.speculation!.options.draft as DraftModel;

/** The same model with other weights. */
function changed({ files, weights }: RandomModel, change: (name: string, data: Float32Array) => void): File[] {
  const tensors = [...weights].map(([name, { shape, data }]) => {
    const own = data.slice();
    change(name, own);
    return { name, dtype: 'F32' as const, shape, data: own };
  });
  const others = [...files].filter(([name]) => !name.endsWith('.safetensors'));
  return [...others, ['model.safetensors', writeSafetensors(tensors)] as const].map(
    ([name, bytes]) => new File([bytes], name),
  );
}

/** Layers add nothing: the next token follows from the last one alone, as the trunk and as the head see it. */
const rightHead = (made: RandomModel, embeddingFirst = true): File[] =>
  changed(made, (name, data) => {
    const { shape } = made.weights.get(name)!;
    if (/(o_proj|out_proj|down_proj)\.weight$/.test(name) || name.startsWith('mtp.pre_fc')) data.fill(0);
    if (name === 'mtp.norm.weight') data.set(made.weights.get('model.norm.weight')!.data);
    if (name !== 'mtp.fc.weight') return;
    const [rows = 0, columns = 0] = shape;
    data.fill(0);
    for (let row = 0; row < rows; row++) data[row * columns + row + (embeddingFirst ? 0 : rows)] = 1;
  });

const PLANS: readonly (readonly [string, LoadOptions])[] = [
  ['tp', { ranks: 2, plan: 'tp', virtualRanks: true }],
  ['token', { ranks: 2, plan: 'token', virtualRanks: true }],
  ['pp', { ranks: 2, plan: 'pp', virtualRanks: true }],
  ['ranks in workers', { ranks: 2, plan: 'tp', workers: true }],
  ["a GPU's kernels", { variants: 'hardware' }],
];

interface Asked {
  readonly text: readonly number[];
  readonly drafts: readonly number[];
  /** The first token of which the request gave the row before. */
  readonly given: number;
}

/** What is proposed of a text, as it comes. */
function listen(head: DraftModel): Asked[] {
  const asked: Asked[] = [];
  const propose = head.propose.bind(head);
  head.propose = async (given: DraftText, count) => {
    const [text, first] = [[...given.tokens], given.rows!.first + 1];
    const drafts = await propose(given, count);
    asked.push({ text, drafts, given: first });
    return drafts;
  };
  return asked;
}

describe("a model's own head", { timeout: 600_000 }, () => {
  const heads: [string, Record<string, unknown>, number, LoadOptions][] = [
    ['Qwen3.5', QWEN, 3, {}],
    ["DeepSeek-V3, a GPU's kernels", DEEPSEEK, 5, { variants: 'hardware' }],
  ];
  test.each(drawn(heads, 1, 'heads'))('%s: proposes what its equation says', async (_name, config, seed, kernels) => {
    const { model: made, files } = randomFiles({ config, seed });
    const raw = JSON.parse(new TextDecoder().decode(made.files.get('config.json'))) as Record<string, unknown>;
    const expected = ({ text, drafts: { length } }: Asked, first: number): number[] =>
      config === QWEN
        ? headDrafts(raw, made.weights, text, length, first)
        : latentHeadDrafts(made.config, made.weights, text, length, first);
    // Long: how many plain steps run behind wrong drafts is a matter of time.
    const long = { maxTokens: 60 };
    const alike = PROMPTS[0]!.slice(0, 80);
    // The beginning of two is kept. The head has that of the first one still, and the row before the next token where whole blocks are
    // kept, as states are; not that of the other, since a text came that took all of its room.
    const kinds: [readonly number[], GenerateOptions, isKept?: boolean, isSeen?: boolean][] = [
      [PROMPTS[0]!, long],
      [PROMPTS[1]!, { ...long, temperature: 0.9, seed: 4 }],
      [[...alike, ...PROMPTS[1]!], long, true, config === QWEN],
      [[...alike, ...PROMPTS[2]!.slice(0, 40)], long, true],
    ];
    const other = PROMPTS[2]!.slice(0, 100);
    const plain = await open(files, { speculate: 'off', ...kernels });
    const answers = [];
    for (const [prompt, options] of [...kinds, [other, long] as const])
      answers.push((await ask(plain, prompt, options)).tokens);
    await plain.dispose();
    const model = await open(files, { speculate: 'mtp', ...kernels });
    always(model, 3);
    const asked = listen(headOf(model));
    for (const [at, [prompt, options, isKept = false, isSeen = false]] of kinds.entries()) {
      if (at === 3) await ask(model, [...PROMPTS[2]!, ...PROMPTS[2]!.slice(0, 120)]);
      const before = asked.length;
      const { tokens, stats } = await ask(model, prompt, options);
      expect(tokens).toEqual(answers[at]);
      expect(stats.speculation!.steps).toBeGreaterThan(2);
      const own = asked.slice(before);
      expect(own.length).toBeGreaterThan(2);
      // The first one, before anything of the head's own, and later ones.
      for (const each of [own[0]!, ...own.slice(-2)]) {
        expect(each.given > 1).toBe(isKept);
        const drafts = expected(each, isSeen ? 1 : each.given);
        expect(each.drafts, `${at}, behind ${each.text.length} tokens`).toEqual(drafts);
      }
    }
    await model.dispose();
    // Of several at once each has rows of its own. Where the machine is busy answers may be over before the head has their texts.
    const prompts = [PROMPTS[0]!, PROMPTS[1]!, other];
    let beside: Asked[] = [];
    for (let turn = 0; turn < 5 && beside.length === 0; turn++) {
      const many = await open(files, { speculate: 'mtp', requests: 8, ...kernels });
      always(many, 2);
      const all = listen(headOf(many));
      const results = await Promise.all(prompts.map((prompt, at) => ask(many, prompt, at === 1 ? kinds[1]![1] : long)));
      expect(results.map(({ tokens }) => tokens)).toEqual([answers[0], answers[1], answers.at(-1)]);
      beside = all.filter(({ drafts }) => drafts.length > 0);
      await many.dispose();
    }
    expect(beside.length).toBeGreaterThan(0);
    for (const prompt of prompts) {
      const own = beside.filter(({ text }) => prompt.every((id, at) => text[at] === id));
      for (const each of new Set([...own.slice(0, 1), ...own.slice(own.length >> 1).slice(0, 1), ...own.slice(-1)]))
        expect(each.drafts, `beside others, behind ${each.text.length} tokens`).toEqual(expected(each, 1));
    }
  });

  test('that is right is always right, on one rank or several, and not with its halves the other way round', async () => {
    const { model: made } = randomFiles({ config: QWEN, seed: 3 });
    const files = rightHead(made);
    const plain = await open(files, { speculate: 'off' });
    const expected = [];
    for (const prompt of PROMPTS) expected.push((await ask(plain, prompt)).tokens);
    await plain.dispose();
    for (const [name, options] of [['one rank', {}] as const, ...drawn(PLANS, 2, 'mtp plans')]) {
      const model = await open(files, { ...options, speculate: 'mtp' });
      always(model);
      for (const [at, prompt] of PROMPTS.entries()) {
        const { tokens, stats } = await ask(model, prompt);
        expect(tokens, `${name}, prompt ${at}`).toEqual(expected[at]);
        const { drafted, accepted, steps } = stats.speculation!;
        expect(accepted, `${name}, prompt ${at}`).toBe(drafted);
        expect(accepted, `${name}, prompt ${at}`).toBeGreaterThan(2 * steps);
      }
      await model.dispose();
    }
    const wrong = await open(rightHead(made, false), { speculate: 'mtp' });
    always(wrong);
    const { tokens, stats } = await ask(wrong, PROMPTS[0]!);
    expect(tokens).toEqual(expected[0]);
    expect(stats.speculation!.accepted).toBeLessThan(stats.speculation!.drafted / 4);
    await wrong.dispose();
  });

  test('beside other requests, with kept prompts, and aborted', async () => {
    const { model: made } = randomFiles({ config: QWEN, seed: 3 });
    const files = rightHead(made);
    const answers = async (options: LoadOptions): Promise<unknown[]> => {
      const model = await open(files, { requests: 3, ...options });
      const { speculation } = (model as LoadedModel).how;
      if (speculation) speculation.tries = 5;
      const all: unknown[] = [];
      const add = ({ tokens }: GenerateResult): void => void all.push(tokens);
      add(await ask(model, PROMPTS[0]!));
      const left = new AbortController();
      const aborted = ask(model, PROMPTS[1]!, { signal: left.signal }).catch(() => undefined);
      const beside = PROMPTS.map((prompt, seed) => ask(model, prompt, { temperature: seed / 2, seed }));
      left.abort();
      (await Promise.all(beside)).forEach(add);
      await aborted;
      // Its beginning is kept, of which the head has the rows, or some of it, or none.
      for (const prompt of [PROMPTS[0]!, PROMPTS[2]!, [...PROMPTS[2]!, ...PROMPTS[1]!]]) {
        const result = await ask(model, prompt);
        add(result);
        if (!speculation) continue;
        expect(result.stats.speculation!.drafted).toBeGreaterThan(4);
        expect(result.stats.speculation!.accepted).toBe(result.stats.speculation!.drafted);
      }
      await model.dispose();
      return all;
    };
    expect(await answers({ speculate: 'mtp' })).toEqual(await answers({ speculate: 'off' }));
  });

  test('its weights come again where the device was lost', async () => {
    const { model: made } = randomFiles({ config: QWEN, seed: 3 });
    const model = await open(rightHead(made), { speculate: 'mtp' });
    always(model);
    const before = await ask(model, PROMPTS[0]!);
    ((model as LoadedModel).opened.group as RankGroup).devices[0]!.lose('a test');
    await expect(ask(model, PROMPTS[0]!)).rejects.toMatchObject({ code: 'device_lost' });
    await model.recover();
    let accepted = 0;
    for (let turn = 0; turn < 5 && accepted < 5; turn++) {
      const { tokens, stats } = await ask(model, PROMPTS[0]!);
      expect(tokens).toEqual(before.tokens);
      ({ accepted } = stats.speculation!);
    }
    expect(accepted).toBeGreaterThanOrEqual(5);
    await model.dispose();
  });

  test('served, to many with little room, the text is the same', async () => {
    const { model: made } = randomFiles({ config: QWEN, seed: 3 });
    const files = rightHead(made);
    const served = async (options: LoadOptions): Promise<string[]> => {
      const model = await serve(files, { adapter, contextLength: 512, ...TYPES, slots: 3, kvBlocks: 9, ...options });
      const run = async (prompt: readonly number[], kind: GenerateOptions = {}): Promise<string> => {
        let answer = '';
        const pieces = model.complete(prompt, { maxTokens: 60, ignoreEos: true, logprobs: 0, ...kind });
        for await (const { logprobs } of pieces) answer += logprobs.map(({ id }) => id).join(' ');
        return answer;
      };
      const answers = [
        await run(PROMPTS[0]!),
        ...(await Promise.all(PROMPTS.map((prompt, at) => run(prompt, { temperature: at / 2, seed: at })))),
        await run(PROMPTS[0]!),
      ];
      const { speculation } = model.metrics;
      expect(speculation !== undefined).toBe(options.speculate === 'mtp');
      // What it costs and how often it is right is found by trying.
      if (speculation) expect(speculation.accepted).toBeGreaterThan(5);
      await model.dispose();
      return answers;
    };
    const answers = await served({ speculate: 'mtp' });
    expect(answers).toEqual(await served({ speculate: 'off' }));
    expect(answers.map((answer) => answer.length > 60)).not.toContain(false);
  });

  test('is not there, or not asked for', async () => {
    const without = randomFiles({ config: { ...QWEN, mtp_num_hidden_layers: 0 }, seed: 3 }).files;
    const phases = new Set<string>();
    const onProgress = ({ phase }: { readonly phase: string }): void => void phases.add(phase);
    await expect(open(without, { speculate: 'mtp', onProgress })).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining("speculate 'mtp'") as string,
    });
    expect(phases).not.toContain('weights');
    // The config has one, the files haven't.
    const { model: made, files } = randomFiles({ config: QWEN, seed: 3 });
    const cut = [...made.weights].filter(([name]) => !name.startsWith('mtp.'));
    await expect(
      open(
        changed({ ...made, weights: new Map(cut) }, () => {}),
        { speculate: 'mtp' },
      ),
    ).rejects.toThrow(/MTP/);
    await expect(open(files, { speculate: 'mtp', draft: 'models/tiny-gqa' })).rejects.toMatchObject({ code: 'usage' });
    const model = await open(files, { speculate: 'ngram' });
    await expect(ask(model, PROMPTS[0]!, { speculate: 'mtp' })).rejects.toThrow("with speculate 'mtp'");
    await model.dispose();
  });

  test('is counted where it is asked for', async () => {
    const { model: made, files } = randomFiles({ config: QWEN, seed: 3 });
    const options = { adapter, contextLength: 512, ...TYPES, ranks: 1, plan: 'single' };
    const bytes = async (more: PlanModelOptions) => {
      const { pick, download } = await planModel(files, { ...options, ...more });
      return { taken: pick!.memory[0]!.totalBytes, read: download!.bytes };
    };
    const [auto, { taken: mtp, read }] = [await bytes({}), await bytes({ speculate: 'mtp' })];
    expect(mtp).toBeGreaterThan(auto.taken);
    const own = [...made.weights].filter(([name]) => name.startsWith('mtp.'));
    expect(read - auto.read).toBe(4 * own.reduce((sum, [, { data }]) => sum + data.length, 0));
    await expect(open(files, { speculate: 'mtp', memory: [mtp - 1] })).rejects.toThrow(/drafts take/);
    const model = await open(files, { speculate: 'mtp', memory: [mtp] });
    // The table and the output head are the model's.
    const { weightBytes } = headOf(model).rank.runner.ranks[0]!.facts;
    expect(weightBytes).toBeLessThan(4 * VOCAB * 64 + 4 * 64 * 64 * 12);
    await model.dispose();
  });
});
