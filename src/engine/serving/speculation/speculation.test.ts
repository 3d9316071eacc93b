import { createHash } from 'node:crypto';
import { describe, expect, test, vi } from 'vitest';
import { Random } from '../../../base/random.js';
import { pause } from '../../../base/waits.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn } from '../../../gpu/testing/draw.js';
import { compressionOptions } from '../../../model/compression/options.js';
import { modelShape } from '../../../model/shape.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import { arrangedPlan } from '../../../placement/index.js';
import { randomArrangement } from '../../../placement/testing/arrangements.js';
import { Guess } from '../../testing/guess.js';
import { randomFiles } from '../../testing/random_source.js';
import { type EngineSetup, openRunner } from '../../testing/open_runner.js';
import { Engine } from '../engine.js';
import type { EngineRequest } from '../loop/requests.js';
import { placing } from '../loop/rank_balance.js';
import { VERIFIED_ROWS } from '../../contracts/rank.js';
import type { RankRunner } from '../../ranks/rank_runner.js';
import { DraftModel, ModelDrafter } from './draft_model.js';
import { Ngrams } from './ngrams.js';
import { type Drafter, MAX_DRAFTS, Speculation } from './speculation.js';
import { CONVOLUTIONS, EXPERTS, LINEAR_ATTENTION, SINKS, STATE_SPACE } from '../../../model/testing/small_configs.js';

const adapter = (await testAdapters()).at(-1)!;
const VOCAB = 320;
const END = 7;

const model = (seed: number, config: Record<string, unknown> = {}): RandomModelOptions => ({
  seed,
  config: { max_position_embeddings: 2048, ...config },
});
const models = {
  llama: model(31),
  // Windows that steps of several rows leave and enter.
  mistral: model(35, { model_type: 'mistral', sliding_window: 70, num_key_value_heads: 4, num_attention_heads: 8 }),
  gptOss: model(36, SINKS),
  experts: model(33, EXPERTS),
  // Each token's inputs are read from the file: it must be known before its step.
  inputs: model(104, {
    model_type: 'gemma4_text',
    hidden_act: undefined,
    rope_theta: undefined,
    tie_word_embeddings: undefined,
    num_hidden_layers: 5,
    hidden_size: 72,
    head_dim: 16,
    global_head_dim: 32,
    layer_types: 'sfssf'.split('').map((type) => (type === 's' ? 'sliding_attention' : 'full_attention')),
    num_kv_shared_layers: 3,
    sliding_window: 9,
    hidden_size_per_layer_input: 64,
    vocab_size_per_layer_input: 320,
  }),
  latent: model(23, { model_type: 'deepseek_v3' }),
  convolutions: model(33, CONVOLUTIONS),
  linearAttention: model(34, LINEAR_ATTENTION),
  stateSpaces: model(37, STATE_SPACE),
} satisfies Record<string, RandomModelOptions>;
type ModelName = keyof typeof models;

/** A request's tokens, the digest of the logits that they are drawn from, and why it ended. */
interface Answer {
  readonly tokens: readonly number[];
  readonly logits: string;
  readonly end: string;
}

const random = new Random(5);
const ids = (count: number): number[] => Array.from({ length: count }, () => random.integer(VOCAB));
const common = ids(70);
const controls = {
  logitBias: new Map([90, 200, 310].map((id) => [id, 3])),
  frequencyPenalty: 0.4,
  presencePenalty: 0.3,
  minTokens: 25,
  endIds: [END, 200],
};
/** Prompts that repeat themselves, begin alike, and end at edges of blocks and chunks; every kind of sampling. */
const REQUESTS: readonly Pick<EngineRequest, 'prompt' | 'maxTokens' | 'seed'>[] = [
  { prompt: [...common, ...common.slice(0, 30)], maxTokens: 60, seed: 1 },
  { prompt: ids(3), maxTokens: 70, seed: 2, temperature: 1 },
  { prompt: [...common, ...ids(60)], maxTokens: 50, seed: 3, temperature: 0.8, topK: 9, logits: true },
  { prompt: [...ids(4), ...ids(250)], maxTokens: 40, seed: 4, temperature: 1, topP: 0.8, repetitionPenalty: 1.3 },
  { prompt: ids(63), maxTokens: 50, seed: 5, temperature: 0.9, minP: 0.02, ...controls },
  { prompt: ids(20), maxTokens: 60, seed: 6, repetitionPenalty: 1.2, ...controls, logits: true },
  { prompt: [...common, ...ids(1)], maxTokens: 2, seed: 7 },
].map((request) => ({ eosIds: [END], ...request }));

type Opening = Partial<Parameters<typeof openRunner>[0]>;

const open = async (
  { batches = 1, ...opening }: Opening,
  { kvBlocks = 32, ...options }: EngineSetup = {},
): Promise<Engine> => {
  const slots = 4 / batches;
  const { group } = await openRunner({
    adapter: adapter.name,
    model: models.llama,
    contextLength: 512,
    slots,
    batches,
    kvBlocks,
    virtual: true,
    ...opening,
  });
  return new Engine(group, { placing, slots: 4, tokensPerIteration: 96, iterationsInFlight: 4, ...options });
};

function ask(engine: Engine, request: (typeof REQUESTS)[number], most = Infinity) {
  const tokens: number[] = [];
  const logits = createHash('sha256');
  const handle = engine.submit({
    eosIds: [END],
    ...request,
    onToken: (token, row) => {
      tokens.push(token);
      if (row) logits.update(new Uint8Array(row.buffer, row.byteOffset, row.byteLength));
      if (tokens.length === most) handle.abort();
      return false;
    },
  });
  return { handle, answer: handle.ended.then((end): Answer => ({ tokens, end, logits: logits.digest('hex') })) };
}

const known = new Map<string, Promise<Answer[]>>();
/** What each request gives without drafts, alone on one rank. */
const plain = (name: ModelName, { variants = 'auto', compression }: Opening): Promise<Answer[]> => {
  const computed = async (): Promise<Answer[]> => {
    const engine = await open({ model: models[name], variants, ...(compression && { compression }) });
    const answers: Answer[] = [];
    for (const request of REQUESTS) answers.push(await ask(engine, request).answer);
    await engine.dispose();
    return answers;
  };
  const key = `${name} ${variants} ${compression?.policy}`;
  if (!known.has(key)) known.set(key, computed());
  return known.get(key)!;
};

/** What is proposed for each request's prompt: what comes, now right and now wrong, or by n-grams. */
const guesses = (answers: readonly Answer[]): Speculation => {
  const speculation = new Speculation({
    drafters: (prompt) => {
      const index = REQUESTS.findIndex((request) => request.prompt.every((token, at) => token === prompt[at]));
      if (index % 3 === 0) return [new Ngrams(prompt)];
      const guess = new Guess(answers[index]!.tokens);
      for (let at = REQUESTS[index]!.prompt.length; at < prompt.length; at++) guess.take();
      return [guess];
    },
  });
  speculation.tries = MAX_DRAFTS;
  return speculation;
};

type Setup = readonly [name: string, model: ModelName, opening: Opening, EngineSetup];
const two = (plan: string, ranks = 2) => ({ plan, ranks });
const arranged = (sharing: 'lanes' | 'sequences') => {
  const shape = modelShape(randomFiles(models.llama).model.config);
  return arrangedPlan(randomArrangement(shape, 3, { seed: 4, copies: 2, sharing }), shape, sharing);
};
const LAYERS = { numLayers: 2, numKvHeads: 2 };
const SETUPS: readonly Setup[] = [
  ['one rank', 'llama', {}, {}],
  ['one rank, too few blocks', 'llama', {}, { kvBlocks: 9 }],
  ['one rank, prefixes shared', 'llama', {}, { prefixCaching: true }],
  ["one rank, a GPU's kernels", 'llama', { variants: 'hardware' }, {}],
  ['windows', 'mistral', {}, {}],
  ['windows, sinks, experts', 'gptOss', {}, {}],
  ['experts', 'experts', {}, {}],
  ['a latent', 'latent', {}, {}],
  ['inputs for each layer', 'inputs', {}, {}],
  ['convolutions, too few blocks', 'convolutions', {}, { kvBlocks: 9 }],
  ['convolutions, prefixes shared', 'convolutions', {}, { prefixCaching: true }],
  ['linear attention', 'linearAttention', {}, {}],
  ['linear attention, prefixes shared', 'linearAttention', {}, { prefixCaching: true, kvBlocks: 12 }],
  ['tp', 'llama', two('tp'), {}],
  ['tp on more ranks than heads, prefixes shared', 'llama', two('tp', 4), { prefixCaching: true }],
  ['sp', 'llama', two('sp'), {}],
  ['pp, micro-batches', 'llama', { ...two('pp'), batches: 2 }, {}],
  ['token', 'llama', two('token', 3), { kvBlocks: 36 }],
  ['adp', 'llama', two('adp'), {}],
  ['arranged, copies share lanes', 'llama', { plan: arranged('lanes'), ranks: 3 }, {}],
  ['arranged, copies share sequences', 'llama', { plan: arranged('sequences'), ranks: 3 }, {}],
  [
    'a compressed cache',
    'llama',
    { compression: compressionOptions({ policy: 'ada', budget: 0.25, window: 16 }, LAYERS) },
    {},
  ],
  ['ep', 'experts', two('ep'), {}],
  ['latent, tp+sp', 'latent', two('tp+sp'), {}],
  ['latent, token', 'latent', two('token'), {}],
  ['linear attention, tp', 'linearAttention', two('tp'), {}],
  ['state spaces, tp', 'stateSpaces', two('tp'), {}],
  ['linear attention, tp on more ranks than heads', 'linearAttention', two('tp', 3), {}],
  ['convolutions, adp', 'convolutions', two('adp'), {}],
  ['linear attention, pp', 'linearAttention', { ...two('pp'), batches: 2 }, {}],
];

const OWN: readonly (readonly [ModelName, Opening])[] = [
  ['llama', {}],
  ['gptOss', {}],
  ['experts', two('ep')],
  ['latent', {}],
  ['llama', two('sp')],
  ['llama', { ...two('pp'), batches: 2 }],
  ['mistral', two('tp')],
];

describe('answers with drafts are those without, bit for bit', { timeout: 300_000 }, () => {
  test.each<Setup>(drawn(SETUPS, 4, 'drafts'))('%s', async (_name, model, opening, setup) => {
    const expected = await plain(model, opening);
    const engine = await open({ model: models[model], ...opening }, { ...setup, speculation: guesses(expected) });
    for (const [index, request] of REQUESTS.entries()) {
      const { answer, handle } = ask(engine, request);
      expect(await answer, `request ${index}, alone`).toEqual(expected[index]);
      if (expected[index]!.tokens.length > 20 && index % 3 > 0) {
        expect(handle.speculation.accepted, `request ${index}`).toBeGreaterThan(5);
        expect(handle.speculation.drafted).toBeGreaterThan(handle.speculation.accepted);
      }
    }
    // Together, some without drafts, one aborted.
    const aborted = ask(engine, REQUESTS[1]!, 9);
    const running = REQUESTS.map((request, index) =>
      ask(engine, { ...request, ...(index === 2 && { speculate: false }) }),
    );
    for (const [index, { answer }] of running.entries()) {
      expect(await answer, `request ${index}, with others`).toEqual(expected[index]);
    }
    expect((await aborted.answer).end).toBe('aborted');
    expect(running[2]!.handle.speculation.steps).toBe(0);
    const { metrics } = engine;
    expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
    if (setup.kvBlocks === 9) expect(metrics.preemptionsTotal).toBeGreaterThan(0);
    expect(metrics.speculation!.accepted).toBeGreaterThan(50);
    await engine.dispose();
  });
});

test.each<ModelName>(['convolutions', 'linearAttention', 'stateSpaces'])(
  'a state takes the rows of its step alone, not those that a longer one left: %s',
  { timeout: 300_000 },
  async (name) => {
    const expected = await plain(name, {});
    const index = 5;
    const { prompt } = REQUESTS[index]!;
    // Three that are wrong, then two that are right.
    let turn = 0;
    const drafter = (text: readonly number[]): Drafter => {
      let came = text.length - prompt.length;
      const next = (count: number): readonly number[] => expected[index]!.tokens.slice(came, came + count);
      return {
        take: () => came++,
        propose: () => ({
          length: turn % 2 === 0 ? 3 : next(2).length,
          sureness: 1,
          tokens: () => (turn++ % 2 === 0 ? next(3).map((token) => (token + 1) % VOCAB) : next(2)),
        }),
      };
    };
    const speculation = new Speculation({ drafters: (text) => [drafter(text)] });
    speculation.tries = 3;
    const engine = await open({ model: models[name] }, { speculation });
    const { answer, handle } = ask(engine, REQUESTS[index]!);
    expect(await answer).toEqual(expected[index]);
    expect(handle.speculation.accepted).toBeGreaterThan(10);
    await engine.dispose();
  },
);

/** The same model as its own draft. */
const ownDraft = (name: ModelName): Promise<DraftModel> =>
  DraftModel.open('itself', VOCAB, async () => {
    const { group } = await openRunner({
      adapter: adapter.name,
      model: models[name],
      contextLength: 1024,
      slots: 4,
      keepsAll: true,
    });
    const isLost = (): boolean => group.devices[0]!.isLost;
    return { runner: group.runner, isLost, dispose: () => group.dispose() };
  });

describe('a model that drafts for itself', { timeout: 300_000 }, () => {
  test.each(drawn<readonly [ModelName, Opening]>(OWN, 2, 'own drafts'))('%s %o', async (name, opening) => {
    const expected = await plain(name, {});
    const draft = await ownDraft(name);
    const speculation = new Speculation({ drafters: (text) => [new ModelDrafter(draft, text)], draft });
    speculation.tries = 5;
    const engine = await open({ model: models[name], ...opening }, { speculation });
    // Every text after another, whose beginning stays or doesn't.
    for (const [index, request] of [...REQUESTS.entries(), ...REQUESTS.slice(0, 1).entries()]) {
      await vi.waitUntil(() => draft.follows({ tokens: request.prompt }), { timeout: 60_000 });
      draft.end(request.prompt);
      const { answer, handle } = ask(engine, request);
      expect(await answer, `request ${index}`).toEqual(expected[index]);
      if (index !== 0) continue;
      const { drafted, accepted, steps } = handle.speculation;
      expect(accepted).toBe(drafted);
      expect(accepted).toBeGreaterThan(2 * steps);
    }
    const all = REQUESTS.map((request) => ask(engine, request).answer);
    expect(await Promise.all(all)).toEqual(expected);
    // Those of several begin in the same steps, of which each has its own drafts.
    const beside = REQUESTS.slice(0, 3);
    for (const { prompt } of beside) {
      await vi.waitUntil(() => draft.follows({ tokens: prompt }), { timeout: 60_000 });
    }
    for (const { prompt } of beside) draft.end(prompt);
    const { runner } = draft.rank;
    const sample = runner.sample.bind(runner);
    const texts: number[] = [];
    runner.sample = (...args) => {
      texts.push(args[3]!.length);
      return sample(...args);
    };
    const aborted = ask(engine, REQUESTS[3]!, 9);
    const several = beside.map((request) => ask(engine, request));
    for (const [index, { answer }] of several.entries()) expect(await answer).toEqual(expected[index]);
    expect((await aborted.answer).end).toBe('aborted');
    expect(Math.max(...texts)).toBeGreaterThan(1);
    const { drafted, accepted, steps } = several[0]!.handle.speculation;
    expect(accepted).toBe(drafted);
    expect(accepted).toBeGreaterThan(steps);
    expect(several[1]!.handle.speculation.accepted).toBeLessThan(several[1]!.handle.speculation.drafted);
    await engine.dispose();
  });

  test('a text that there is no room for waits until another is over', async () => {
    const draft = await ownDraft('llama');
    const [first, second] = [ids(700), ids(500)];
    await vi.waitUntil(() => draft.follows({ tokens: first }), { timeout: 60_000 });
    const alone = await draft.propose({ tokens: first }, 3);
    expect(draft.follows({ tokens: second })).toBe(false);
    await vi.waitUntil(() => draft.follows({ tokens: first }), { timeout: 60_000 });
    expect(await draft.propose({ tokens: first }, 3)).toEqual(alone);
    draft.end(first);
    await vi.waitUntil(() => draft.follows({ tokens: second }), { timeout: 60_000 });
    const short = ids(30);
    await vi.waitUntil(() => draft.follows({ tokens: short }), { timeout: 60_000 });
    // Alone and together the same ones come, of unlike lengths and numbers.
    const texts = [second, short].map((tokens) => ({ tokens }));
    const each = [await draft.propose(texts[0]!, 2), await draft.propose(texts[1]!, 5)];
    expect(await Promise.all(texts.map((text, at) => draft.propose(text, [2, 5][at]!)))).toEqual(each);
    await draft.dispose();
  });

  test('a lost device comes again, and a failure ends it alone', async () => {
    const warnings: string[] = [];
    const draft = await ownDraft('llama');
    Object.assign(draft, { onWarning: (text: string) => warnings.push(text) });
    const { runner } = draft.rank;
    const text = { tokens: REQUESTS[0]!.prompt };
    await vi.waitUntil(() => draft.follows(text), { timeout: 60_000 });
    const known = await draft.propose(text, 4);
    (runner.ranks[0] as RankRunner).device.lose('a test');
    expect(await draft.propose(text, 4)).toEqual([]);
    expect(draft.follows(text)).toBe(false);
    await vi.waitUntil(() => draft.follows(text), { timeout: 60_000 });
    expect(await draft.propose(text, 4)).toEqual(known);
    draft.rank.runner.sample = () => Promise.reject(new Error('a driver'));
    expect(await draft.propose(text, 4)).toEqual([]);
    expect(draft.follows(text)).toBe(false);
    expect(warnings).toHaveLength(1);
    await draft.dispose();
    // One that can't be opened again isn't tried for ever.
    const other = await ownDraft('llama');
    Object.assign(other, {
      open: () => Promise.reject(new Error('no file')),
      onWarning: (told: string) => warnings.push(told),
    });
    (other.rank.runner.ranks[0] as RankRunner).device.lose('a test');
    expect(other.follows(text)).toBe(false);
    await vi.waitUntil(() => warnings.length > 1);
    expect(warnings[1]).toContain('no file');
    expect(other.follows(text)).toBe(false);
    await other.dispose();
  });
});

describe("'auto' makes what verifies drafts beside the answer", () => {
  const pays = (expected: readonly Answer[]): Speculation => {
    const speculation = guesses(expected);
    speculation.tries = undefined;
    speculation.cost = () => 0.1;
    return speculation;
  };

  test('an answer goes on without it, and the next one has it', async () => {
    const expected = await plain('llama', {});
    const engine = await open({}, { speculation: pays(expected) });
    const { runner } = engine.ranks;
    for (const ready of [false, true]) {
      const { answer, handle } = ask(engine, REQUESTS[1]!);
      expect(await answer).toEqual(expected[1]);
      if (ready) expect(handle.speculation.accepted).toBeGreaterThan(5);
      await expect.poll(() => runner.readyToVerify(), { timeout: 60_000 }).toBe(true);
    }
    await engine.dispose();
  });

  test('no device is destroyed meanwhile', async () => {
    const engine = await open({}, { speculation: guesses([]) });
    const { runner } = engine.ranks;
    const rank = runner.ranks[0]!;
    const prepare = rank.prepareVerifying.bind(rank);
    let isOver = false;
    rank.prepareVerifying = async () => {
      await prepare();
      await pause(100);
      isOver = true;
    };
    expect(runner.readyToVerify()).toBe(false);
    await engine.dispose();
    expect(isOver).toBe(true);
  });

  test('where a rank has no room for it nothing is drafted, and answers come as before', async () => {
    const expected = await plain('llama', {});
    const engine = await open({}, { speculation: pays(expected) });
    const { runner } = engine.ranks;
    let asked = 0;
    runner.ranks[0]!.prepareVerifying = () => (asked++, Promise.reject(new Error('no room')));
    for (let turn = 0; turn < 2; turn++) {
      const { answer, handle } = ask(engine, REQUESTS[1]!);
      expect(await answer).toEqual(expected[1]);
      expect(handle.speculation.steps).toBe(0);
    }
    expect(asked).toBe(1);
    await engine.dispose();
  });
});

describe('how many are tried', () => {
  const sure = (sureness: number, length = 15): Drafter => ({
    take() {},
    propose: (most) => ({ length: Math.min(most, length), sureness, tokens: (count) => ids(count) }),
  });
  /** After steps that took these times, by rows: the first of each size isn't counted. Drafts gained much. */
  const timed = (costs: Readonly<Record<number, number>>, sequences = 1): Speculation => {
    const speculation = new Speculation({ drafters: () => [] });
    for (let i = 0; i < 3; i++) speculation.observe(sequences, 0.01, sequences);
    for (const [rows, cost] of Object.entries(costs)) {
      for (const seconds of [9, 0.01 * cost, 0.01 * cost]) speculation.observe(Number(rows), seconds, sequences);
    }
    speculation.settle(16, sequences, 50 * sequences, 0, 0);
    return speculation;
  };
  const choose = (speculation: Speculation, drafters: readonly Drafter[], states?: number, ahead = 0) =>
    speculation.choose([speculation.propose(drafters, MAX_DRAFTS)], VERIFIED_ROWS, states, ahead)?.[0];
  const tried = (speculation: Speculation, sureness: number, length?: number, states?: number, ahead = 0): number =>
    choose(speculation, [sure(sureness, length)], states, ahead)?.count ?? 0;

  test('as many as pay by what rows cost, and by how sure they are', () => {
    const gpu = timed({ 2: 1.02, 4: 1.05, 8: 1.1, 16: 1.3 });
    expect([0.95, 0.6, 0.2, 0.05].map((sureness) => tried(gpu, sureness))).toEqual([15, 7, 3, 0]);
    expect(tried(gpu, 0.95, 5)).toBe(5);
    const cpu = timed({ 2: 1.4, 4: 2.4, 8: 4.5, 16: 9 });
    expect([0.98, 0.9, 0.7, 0.5].map((sureness) => tried(cpu, sureness))).toEqual([7, 3, 1, 0]);
    // Where a state is taken back wrong ones cost a step more.
    expect(tried(cpu, 0.9, 15, 1)).toBeLessThan(tried(cpu, 0.9));
    // Steps in flight are awaited only where it is likely that what repeats goes on behind them.
    expect([0, 4, 8].map((ahead) => tried(gpu, 0.6, 15, undefined, ahead))).toEqual([7, 7, 0]);
  });

  test('beside others: rows that are free, where they are likeliest right, and none is slower', () => {
    const shares = (speculation: Speculation, sureness: readonly number[], most = 8, states?: number) =>
      speculation
        .choose(
          sureness.map((of) => (of > 0 ? speculation.propose([sure(of)], MAX_DRAFTS) : [])),
          most,
          states,
          0,
        )
        ?.map((choice) => choice?.count ?? 0);
    const gpu = timed({ 4: 1, 8: 1.01 }, 3);
    expect(shares(gpu, [0.9, 0.9, 0.9])).toEqual([2, 2, 1]);
    expect(shares(gpu, [0.5, 0.9, 0.9])).toEqual([0, 3, 2]);
    expect(shares(gpu, [0, 0.9, 0])).toEqual([0, 5, 0]);
    expect(shares(gpu, [0.9, 0.9, 0.9], 4)).toEqual([1, 0, 0]);
    expect(shares(gpu, [0.9, 0.9, 0.9], 3)).toBeUndefined();
    expect(shares(gpu, [0.05, 0.05, 0])).toBeUndefined();
    // Where states are taken back only some may have drafts, and all wait for those that are wrong.
    expect(shares(gpu, [0.99, 0.99, 0.99], 8, 3)).toEqual([2, 2, 1]);
    expect(shares(gpu, [0.5, 0.5, 0.5], 8, 3)).toBeUndefined();
    expect(shares(gpu, [0.9999, 0.9999, 0.9999], 8, 2)).toEqual([3, 2, 0]);
    expect(shares(gpu, [0.9, 0.9, 0.9], 8, 2)).toBeUndefined();
    const dearer = timed({ 4: 1.1, 8: 1.1 }, 3);
    expect(shares(dearer, [0.9, 0.9, 0.9])).toEqual([2, 2, 1]);
    expect(shares(dearer, [0, 0.9, 0.9])).toBeUndefined();
    // Computed ones cost what those of all take at once; where that is too much, those that are there are tried.
    const computed = (seconds: number): Drafter => ({
      take() {},
      propose: (most) => ({ ...sure(0.95).propose(most), seconds: (_count, requests) => seconds * requests }),
    });
    const beside = (seconds: number) =>
      gpu.choose(
        [0, 1, 2].map(() => gpu.propose([computed(seconds), sure(0.9)], MAX_DRAFTS)),
        8,
        undefined,
        0,
      );
    expect(beside(0.0001)!.every((choice) => choice?.proposal.seconds)).toBe(true);
    expect(beside(1)!.some((choice) => choice?.proposal.seconds)).toBe(false);
  });

  test.each([
    ['a GPU', { 2: 1.02, 4: 1.05, 8: 1.1, 16: 1.3 }, 0, undefined],
    ['a CPU', { 2: 1.4, 4: 2.4, 8: 4.5, 16: 9 }, 0, undefined],
    ['a CPU, drafts that are computed', { 2: 1.4, 4: 2.4, 8: 4.5, 16: 9 }, 0.3, undefined],
    ['a CPU, a state is taken back', { 2: 1.4, 4: 2.4, 8: 4.5, 16: 9 }, 0.3, 1],
  ])('where nothing is ever right little is lost: %s', (_name, costs: Record<number, number>, each, states) => {
    const speculation = new Speculation({ drafters: () => [] });
    const seconds = (count: number): number => each * count;
    const drafter: Drafter = { ...sure(0.95), propose: (most) => ({ ...sure(0.95).propose(most), seconds }) };
    let [lost, tried] = [0, 0];
    for (let token = 0; token < 1000; token++) {
      const count = choose(speculation, [drafter], states)?.count ?? 0;
      const size = [1, 2, 4, 8, 16].find((rows) => rows >= 1 + count)!;
      speculation.observe(1 + count, costs[size] ?? 1);
      if (count === 0) continue;
      tried++;
      speculation.settle(1 + count, 1, 1, seconds(count), states ?? 0);
      lost += costs[size]! + seconds(count) - 1 + (states === undefined ? 0 : costs[16]!);
    }
    expect(tried).toBeGreaterThan(0);
    expect(lost).toBeLessThan(30);
  });

  test('of two drafters the one that gains more, computing included', () => {
    const gpu = timed({ 2: 1.02, 4: 1.05, 8: 1.1, 16: 1.3 });
    const drafts = (sureness: number, each: number): Drafter => ({
      take() {},
      propose: (most) => ({
        length: Math.min(most, 7),
        sureness,
        seconds: (count) => count * each,
        tokens: async (count) => ids(count),
      }),
    });
    // Seconds of a draft, where a step takes 0.01.
    const count = (each: number): number => choose(gpu, [drafts(0.8, each)])?.count ?? 0;
    expect([0, 0.001, 0.004, 0.01].map(count)).toEqual([7, 7, 3, 0]);
    // What is computed is sure of what steps in flight sample.
    expect(choose(gpu, [drafts(0.8, 0.001)], undefined, 8)?.count).toBe(7);
    const lengths = [0.2, 0.95].map((repeats) => {
      const choice = choose(gpu, [drafts(0.8, 0.001), sure(repeats)]);
      return [choice?.proposal.seconds !== undefined, choice?.count];
    });
    expect(lengths).toEqual([
      [true, 7],
      [false, 15],
    ]);
  });

  test('what was never timed follows from fewer rows, and nothing from one step that took long', () => {
    const speculation = timed({ 2: 1.5 });
    expect(speculation.cost(8)).toBeCloseTo(1.5 * 1.5 * 1.5);
    for (const seconds of [0.015, 3]) speculation.observe(2, seconds);
    expect(speculation.cost(2)).toBeCloseTo(1.5);
    for (let i = 0; i < 5; i++) speculation.observe(2, 0.011);
    expect(speculation.cost(2)).toBeCloseTo(1.1);
    // After a while it is timed anew.
    for (let i = 0; i < 1000; i++) speculation.observe(1, 0.01);
    expect(speculation.cost(2)).toBeCloseTo(1.2);
    for (let i = 0; i < 2; i++) speculation.observe(2, 0.013);
    expect(speculation.cost(2)).toBeCloseTo(1.3);
    // Bursts: ids of several steps come at once.
    for (let i = 0; i < 400; i++) speculation.observe(1, i % 4 === 0 ? 0.08 : 0);
    for (let i = 0; i < 5; i++) speculation.observe(2, 0.03);
    expect(speculation.cost(2)).toBeGreaterThan(1.2);
    expect(speculation.cost(2)).toBeLessThan(1.8);
  });

  test('n-grams: what followed the longest run; what repeats goes on; often wrong is no longer sure', () => {
    const drafter = new Ngrams([1, 2, 3, 4, 5, 6, 9, 3, 4, 7, 8, 2, 3, 4]);
    expect(drafter.propose(3).tokens(3)).toEqual([5, 6, 9]);
    const before = drafter.propose(1).sureness;
    drafter.take(50);
    expect(drafter.propose(15).length).toBe(0);
    for (const token of [2, 3, 4]) drafter.take(token);
    expect(drafter.propose(1).tokens(1)).toEqual([50]);
    expect(drafter.propose(1).sureness).toBeLessThan(before);
    const repeating = new Ngrams([1, 2, 3, 1, 2, 3, 1, 2]);
    expect(repeating.propose(7).tokens(7)).toEqual([3, 1, 2, 3, 1, 2, 3]);
    for (let i = 0; i < 60; i++) repeating.take(((i + 2) % 3) + 1);
    expect(repeating.propose(15).sureness).toBeGreaterThan(0.9);
    expect(new Ngrams(ids(1)).propose(3).length).toBe(0);
  });
});
