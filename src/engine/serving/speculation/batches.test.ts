import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { range, sum } from '../../../base/lists.js';
import { Random } from '../../../base/random.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn } from '../../../gpu/testing/draw.js';
import { hasState } from '../../../model/config/model_config.js';
import { modelShape } from '../../../model/shape.js';
import { checkPlan, makePlan, misfit, modelFeatures, type Plan } from '../../../placement/index.js';
import { VERIFIED_ROWS } from '../../contracts/rank.js';
import { Guess } from '../../testing/guess.js';
import type { RankRunner } from '../../ranks/rank_runner.js';
import { openRunner } from '../../testing/open_runner.js';
import { randomFiles } from '../../testing/random_source.js';
import { Engine } from '../engine.js';
import type { EngineOptions, EngineRequest } from '../loop/requests.js';
import { placing } from '../loop/rank_balance.js';
import { DraftModel, ModelDrafter } from './draft_model.js';
import { Ngrams } from './ngrams.js';
import { MAX_DRAFTS, Speculation } from './speculation.js';
import { CONVOLUTIONS, EXPERTS, LINEAR_ATTENTION, SINKS, STATE_SPACE } from '../../../model/testing/small_configs.js';

const adapter = (await testAdapters()).at(-1)!;
const VOCAB = 320;
const SLOTS = 6;

const FAMILIES: Readonly<Record<string, Record<string, unknown>>> = {
  llama: {},
  windows: { model_type: 'mistral', sliding_window: 70, num_key_value_heads: 4, num_attention_heads: 8 },
  'windows, sinks, experts': SINKS,
  experts: EXPERTS,
  'norms behind halves': { model_type: 'gemma3_text', hidden_act: undefined, rope_theta: undefined },
  latent: { model_type: 'deepseek_v3' },
  convolutions: CONVOLUTIONS,
  'linear attention': LINEAR_ATTENTION,
  'state spaces': STATE_SPACE,
};
const PLANS: readonly (readonly [name: string, ranks: number, batches: number])[] = [
  ['single', 1, 1],
  ['single', 1, 1],
  ['tp', 2, 1],
  ['sp', 2, 1],
  ['pp', 2, 2],
  ['token', 2, 1],
  ['adp', 2, 1],
  ['ep', 2, 1],
];

interface Answer {
  readonly tokens: readonly number[];
  readonly logits: string;
  readonly end: string;
}

interface Asked {
  readonly request: Pick<EngineRequest, 'prompt' | 'maxTokens' | 'seed'>;
  /** It comes behind the one before, and when there are so many tokens of all. */
  readonly after: number;
  /** Of its own before it is aborted. */
  readonly most: number;
}

/** Requests that begin alike or repeat themselves, of every kind of sampling. */
function requestsOf(random: Random): Asked[] {
  const ids = (count: number): number[] => Array.from({ length: count }, () => random.integer(VOCAB));
  const common = ids(70);
  const samplings = [
    {},
    { temperature: 1 },
    { temperature: 0.8, topK: 9 },
    { temperature: 1, topP: 0.8, repetitionPenalty: 1.3 },
    { temperature: 0.9, minP: 0.02, frequencyPenalty: 0.4, minTokens: 9, endIds: [7] },
    { repetitionPenalty: 1.2, logitBias: new Map([[90, 3]]) },
  ];
  return range(0, 8).map((seed) => {
    const own = ids(1 + random.integer(120));
    const prompt = random.integer(2) === 0 ? [...common, ...own] : [...own, ...own.slice(0, random.integer(40))];
    return {
      request: {
        prompt,
        maxTokens: 10 + random.integer(40),
        seed,
        ...samplings[random.integer(samplings.length)],
        ...(random.integer(3) === 0 && { logits: true }),
        ...(random.integer(5) === 0 && { speculate: false }),
      },
      after: random.integer(3) === 0 ? random.integer(60) : 0,
      most: random.integer(4) === 0 ? 1 + random.integer(20) : Infinity,
    };
  });
}

function ask(engine: Engine, { request, most }: Asked, onToken: () => void = () => {}): Promise<Answer> {
  const tokens: number[] = [];
  const logits = createHash('sha256');
  const { ended, abort } = engine.submit({
    eosIds: [7],
    ...request,
    onToken: (token, row) => {
      tokens.push(token);
      if (row) logits.update(new Uint8Array(row.buffer, row.byteOffset, row.byteLength));
      if (tokens.length === most) abort();
      onToken();
      return false;
    },
  });
  return ended.then((end) => ({ tokens, end, logits: logits.digest('hex') }));
}

/** All of them, each when it comes; `onToken` is told how many tokens there are. */
function askAll(engine: Engine, all: readonly Asked[], onToken: (count: number) => void): Promise<Answer[]> {
  let [count, running] = [0, 0];
  const answers: Promise<Answer>[] = [];
  return new Promise((resolve, reject) => {
    const askThose = (): void => {
      // Where nothing runs any more the next one is due.
      for (let next = all[answers.length]; next && (next.after <= count || running === 0); next = all[answers.length]) {
        running++;
        const answer = ask(engine, next, told);
        answers.push(answer);
        answer.finally(() => (running--, askThose())).catch(reject);
      }
      if (answers.length === all.length) Promise.all(answers).then(resolve, reject);
    };
    const told = (): void => {
      onToken(++count);
      askThose();
    };
    askThose();
  });
}

const modelConfig = (files: Parameters<typeof randomFiles>[0]) => randomFiles(files).model.config;

/** A plan that goes with a model, of those drawn. */
function planFor(random: Random, files: Parameters<typeof randomFiles>[0]) {
  const shape = modelShape(modelConfig(files));
  for (;;) {
    const [name, ranks, batches] = PLANS[random.integer(PLANS.length)]!;
    let plan: Plan;
    try {
      plan = makePlan(name, ranks, shape);
      checkPlan(plan, shape);
    } catch {
      continue;
    }
    const prefixCaching = random.integer(2) === 0;
    const features = [...modelFeatures(shape), ...(prefixCaching ? (['prefixCaching'] as const) : [])];
    if (misfit(features, plan) === undefined) return { name, plan, batches, prefixCaching };
  }
}

test.each(drawn(range(0, 24), 2, 'drafts in batches'))(
  'requests that share steps with drafts have the tokens and logits of those without: %i',
  { timeout: 300_000 },
  async (seed) => {
    const random = new Random(seed);
    const family = Object.keys(FAMILIES)[random.integer(Object.keys(FAMILIES).length)]!;
    const model = { seed: 100 + seed, config: { max_position_embeddings: 2048, ...FAMILIES[family] } };
    const { name, plan, batches, prefixCaching } = planFor(random, model);
    const open = async (of: Partial<Parameters<typeof openRunner>[0]>, options: Partial<EngineOptions>) => {
      // Half of them run what a GPU does.
      const variants = seed % 2 === 0 ? 'auto' : 'hardware';
      const shared = { adapter: adapter.name, model, contextLength: 512, slots: SLOTS, kvBlocks: 48, virtual: true };
      const { group } = await openRunner({ ...shared, variants, ...of });
      return new Engine(group, { placing, slots: SLOTS, tokensPerIteration: 96, iterationsInFlight: 4, ...options });
    };
    const all = requestsOf(random);
    const one = await open({}, {});
    const expected: Answer[] = [];
    for (const asked of all) expected.push(await ask(one, { ...asked, most: Infinity }));
    await one.dispose();

    // The model as its own draft, on a device of its own.
    const draft =
      random.integer(2) === 0 && !hasState(modelConfig(model))
        ? await DraftModel.open('itself', VOCAB, async () => {
            const { group } = await openRunner({
              adapter: adapter.name,
              model,
              contextLength: 512,
              slots: 3,
              keepsAll: true,
            });
            return { runner: group.runner, isLost: () => group.devices[0]!.isLost, dispose: () => group.dispose() };
          })
        : undefined;
    const speculation = new Speculation({
      ...(draft && { draft }),
      drafters: (text) => {
        const matches = all.flatMap(({ request: { prompt } }, index) =>
          prompt.every((token, at) => token === text[at]) ? [{ prompt, index }] : [],
        );
        const { prompt, index } = matches.reduce((a, b) => (b.prompt.length > a.prompt.length ? b : a));
        if (index % 3 === 0) return [new Ngrams(text)];
        if (draft && index % 3 === 1) return [new ModelDrafter(draft, text)];
        const guess = new Guess(expected[index]!.tokens);
        for (let at = prompt.length; at < text.length; at++) guess.take();
        return [guess];
      },
    });
    speculation.tries = [undefined, 1, 3, MAX_DRAFTS][random.integer(4)];
    if (speculation.tries === undefined) speculation.cost = () => 0.4;
    const isTight = name !== 'token' && random.integer(2) === 0;
    const engine = await open(
      { plan, batches, slots: SLOTS / batches, ...(isTight && { kvBlocks: 14 }) },
      { speculation, prefixCaching },
    );
    const { runner } = engine.ranks;
    if (speculation.tries === undefined)
      await expect.poll(() => runner.readyToVerify(), { timeout: 60_000 }).toBe(true);
    let shared = 0;
    const verify = runner.verify.bind(runner);
    runner.verify = (runs) => {
      const rows = sum(runs.map(({ tokens }) => tokens.length));
      expect(rows).toBeLessThanOrEqual(VERIFIED_ROWS);
      if (runs.length > 1 && rows > runs.length) shared++;
      return verify(runs);
    };
    const lost = random.integer(3) === 0 ? 20 + random.integer(60) : Infinity;
    let losses = 0;
    const answers = await askAll(engine, all, (count) => {
      if (count !== lost) return;
      losses++;
      (runner.ranks[0] as RankRunner).device.gpu.destroy();
    });
    const what = `${family}, ${name}, tries ${speculation.tries}, ${isTight ? 'few blocks' : ''}`;
    for (const [index, { most }] of all.entries()) {
      const { tokens, end, logits } = expected[index]!;
      const { [index]: answer } = answers;
      if (answer!.end === 'aborted') expect(answer!.tokens, `${what}: ${index}`).toEqual(tokens.slice(0, most));
      else expect(answer, `${what}: ${index}`).toEqual({ tokens, end, logits });
    }
    // That states are taken back may be too dear.
    if (!hasState(runner.config) || speculation.tries !== undefined) expect(shared, what).toBeGreaterThan(0);
    const { metrics } = engine;
    expect(metrics).toMatchObject({ running: 0, waiting: 0, recoveriesTotal: losses });
    if (!prefixCaching) expect(metrics.kvBlocksFree).toBe(metrics.kvBlocks);
    await engine.dispose();
  },
);
