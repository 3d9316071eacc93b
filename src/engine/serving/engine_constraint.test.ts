import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import type { RankGroup } from '../ranks/rank_group.js';
import { Guess } from '../testing/guess.js';
import { openRunner } from '../testing/open_runner.js';
import type { Constraint, EngineOptions, EngineRequest, NextTokens } from './loop/requests.js';
import { Engine } from './engine.js';
import { placing } from './loop/rank_balance.js';
import { MAX_DRAFTS, Speculation } from './speculation/speculation.js';
import { LINEAR_ATTENTION } from '../../model/testing/small_configs.js';

const adapter = (await testAdapters()).at(-1)!;
const VOCAB = 320;
const END = 7;

/** Allows what follows from the tokens so far and nothing else: now many, now a few, now one alone; the end from `shortest` tokens on. */
class Maze implements Constraint {
  #hash = 0;
  #length = 0;

  constructor(
    readonly seed: number,
    readonly shortest: number,
    /** Told of each step: the tokens that are allowed. */
    readonly onAllowed?: (allowed: readonly number[]) => void,
  ) {
    this.reset();
  }

  reset(): void {
    this.#hash = this.seed;
    this.#length = 0;
  }

  accept(token: number): void {
    if (!this.#allowed().includes(token)) throw new Error(`${token} isn't allowed`);
    this.#hash = (this.#hash * 31 + token + 1) % 1_000_003;
    this.#length++;
  }

  #allowed(): number[] {
    const random = new Random(this.#hash);
    const kind = random.integer(4);
    const count = kind === 0 ? 200 : kind === 1 ? 5 : 1;
    const ids = Array.from({ length: count }, () => random.integer(VOCAB)).filter((id) => id !== END);
    return this.#length >= this.shortest && kind < 2 ? [...ids, END] : ids.length > 0 ? ids : [END + 1];
  }

  get first(): NextTokens {
    return this.#next();
  }

  next(): Promise<NextTokens> {
    return Promise.resolve(this.#next());
  }

  ahead(tokens: readonly number[]): readonly Uint32Array[] {
    const [hash, length] = [this.#hash, this.#length];
    const found: Uint32Array[] = [];
    for (const token of tokens) {
      if (!this.#allowed().includes(token)) break;
      this.accept(token);
      found.push(this.#next(false).allowed);
    }
    [this.#hash, this.#length] = [hash, length];
    return found;
  }

  dispose(): void {}

  #next(isAsked = true): NextTokens {
    const ids = [...new Set(this.#allowed())];
    const allowed = new Uint32Array(VOCAB / 32);
    for (const id of ids) allowed[id >>> 5]! |= 1 << (id & 31);
    if (isAsked) this.onAllowed?.(ids);
    return { allowed, ...(ids.length === 1 && { only: ids[0]! }) };
  }
}

type Opening = Partial<Parameters<typeof openRunner>[0]>;

async function open({ batches = 1, ...opening }: Opening, options: Partial<EngineOptions> = {}): Promise<Engine> {
  const { group } = await openRunner({
    adapter: adapter.name,
    model: llama,
    contextLength: 512,
    prefillChunk: 64,
    slots: 4 / batches,
    batches,
    kvBlocks: 32,
    virtual: true,
    ...opening,
  });
  return new Engine(group, { placing, slots: 4, tokensPerIteration: 96, iterationsInFlight: 4, ...options });
}

function ask(engine: Engine, request: Partial<EngineRequest> & Pick<EngineRequest, 'prompt' | 'maxTokens' | 'seed'>) {
  const tokens: number[] = [];
  const handle = engine.submit({
    eosIds: [END],
    ...request,
    onToken: (token, logits) => {
      tokens.push(token);
      return request.onToken?.(token, logits) ?? false;
    },
  });
  return handle.ended.then((end) => ({ tokens, end }));
}

const prompt = (seed: number, length: number): number[] => {
  const random = new Random(seed);
  return Array.from({ length }, () => random.integer(VOCAB));
};

const REQUESTS = [
  { prompt: prompt(1, 90), maxTokens: 60, seed: 1, maze: [5, 20] },
  { prompt: prompt(2, 3), maxTokens: 70, seed: 2, temperature: 1, maze: [6, 30] },
  { prompt: prompt(3, 150), maxTokens: 40, seed: 3, temperature: 0.8, topK: 9 },
  {
    prompt: prompt(4, 64),
    maxTokens: 50,
    seed: 4,
    temperature: 1,
    frequencyPenalty: 0.7,
    repetitionPenalty: 1.2,
    maze: [7, 999],
  },
  { prompt: prompt(5, 70), maxTokens: 60, seed: 5 },
  { prompt: prompt(6, 30), maxTokens: 60, seed: 6, temperature: 1.2, topP: 0.9, minP: 0.01, maze: [8, 25] },
] as const;

const requestOf = ({
  maze,
  ...request
}: (typeof REQUESTS)[number] & { readonly maze?: readonly [number, number] }) => ({
  ...request,
  ...(maze && { constraint: new Maze(maze[0], maze[1]) }),
});

type Model = NonNullable<Opening['model']>;
const llama: Model = { seed: 31 };
const qwen35: Model = {
  seed: 34,
  config: LINEAR_ATTENTION,
};
const mistral: Model = { seed: 35, config: { model_type: 'mistral', sliding_window: 70 } };

const gemma4: Model = {
  seed: 36,
  config: {
    model_type: 'gemma4_text',
    num_hidden_layers: 4,
    layer_types: ['sliding', 'full', 'sliding', 'full'].map((type) => `${type}_attention`),
    num_kv_shared_layers: 2,
    head_dim: 16,
    global_head_dim: 32,
    sliding_window: 40,
    hidden_act: undefined,
    rope_theta: undefined,
    hidden_size_per_layer_input: 64,
    vocab_size_per_layer_input: 320,
  },
};

const PLANS: readonly (readonly [string, Opening, Partial<EngineOptions>])[] = [
  ['few blocks', { kvBlocks: 4, contextLength: 256 }, {}],
  ['prefixes shared', {}, { prefixCaching: true }],
  ['GPU kernels', { variants: 'hardware' }, {}],
  ['tp', { plan: 'tp', ranks: 2 }, {}],
  ['sp', { plan: 'sp', ranks: 2 }, {}],
  ['pp, micro-batches', { plan: 'pp', ranks: 2, batches: 2 }, {}],
  ['token', { plan: 'token', ranks: 2 }, {}],
  ['adp', { plan: 'adp', ranks: 2 }, {}],
  ['windows', { model: mistral, plan: 'tp', ranks: 2 }, {}],
  ['states', { model: qwen35, plan: 'tp', ranks: 2 }, { prefixCaching: true }],
  ['rows of tokens', { model: gemma4, plan: 'tp', ranks: 2 }, { prefixCaching: true }],
  ['rows of tokens, few blocks', { model: gemma4, kvBlocks: 4, contextLength: 256 }, {}],
  ['states, a small pool', { model: qwen35, kvBlocks: 4, contextLength: 256 }, {}],
];

describe('tokens that may follow are limited', () => {
  test('the best that is allowed is taken, and only the end ends it', async () => {
    const engine = await open({});
    const allowed: (readonly number[])[] = [];
    const best: number[] = [];
    const { tokens, end } = await ask(engine, {
      prompt: prompt(1, 90),
      maxTokens: 200,
      seed: 1,
      constraint: new Maze(5, 20, (ids) => allowed.push(ids)),
      logits: true,
      onToken: (_token, logits) => {
        const ids = allowed.at(-1)!.toSorted((a, b) => a - b);
        best.push(ids.reduce((a, b) => (logits![b]! > logits![a]! ? b : a)));
        return false;
      },
    });
    expect(tokens).toEqual(best);
    expect(end).toBe('eos');
    expect(tokens.length).toBeGreaterThanOrEqual(20);
    // The same where what is alone isn't sampled.
    const again = await ask(engine, { prompt: prompt(1, 90), maxTokens: 200, seed: 1, constraint: new Maze(5, 20) });
    expect(again).toEqual({ tokens, end });
    await engine.dispose();
  });

  const known = new Map<string, ReturnType<typeof runAlone>>();
  /** Each request by itself, on one rank. */
  function alone(model: Model = llama, variants?: Opening['variants']): ReturnType<typeof runAlone> {
    const key = JSON.stringify([model, variants]);
    if (!known.has(key)) known.set(key, runAlone({ model, ...(variants && { variants }) }));
    return known.get(key)!;
  }

  async function runAlone(opening: Opening): Promise<Awaited<ReturnType<typeof ask>>[]> {
    const engine = await open(opening);
    const all: Awaited<ReturnType<typeof ask>>[] = [];
    for (const request of REQUESTS) all.push(await ask(engine, requestOf(request)));
    await engine.dispose();
    return all;
  }

  test('side by side as alone; the longest ends at its limit', async () => {
    const engine = await open({});
    const all = await Promise.all(REQUESTS.map((request) => ask(engine, requestOf(request))));
    await engine.dispose();
    expect(all).toEqual(await alone());
    const ends = all.map(({ end }) => end);
    expect(ends[3]).toBe('length');
    expect(ends).toContain('eos');
  });

  test('what layers take of each token is that of the token which was sampled', async () => {
    const engine = await open({ model: gemma4 });
    const asked = prompt(1, 45);
    const { tokens } = await ask(engine, { prompt: asked, maxTokens: 20, seed: 1 });
    await engine.dispose();
    const { runner, group } = await openRunner({ adapter: adapter.name, model: gemma4, contextLength: 512 });
    const best: number[] = [];
    await runner.logits([...asked, ...tokens], true, (_, row) => best.push(row.indexOf(Math.max(...row))));
    group.dispose();
    expect(tokens.length).toBeGreaterThan(3);
    expect(best.slice(asked.length - 1, -1)).toEqual(tokens);
  });

  test('a device that is lost meanwhile changes nothing', async () => {
    const engine = await open({});
    let taken = 0;
    const all = await Promise.all(
      REQUESTS.map((request) =>
        ask(engine, {
          ...requestOf(request),
          onToken: () => {
            if (++taken === 40) (engine.ranks as RankGroup).devices[0]!.gpu.destroy();
            return false;
          },
        }),
      ),
    );
    expect(engine.metrics.recoveriesTotal).toBe(1);
    expect(all).toEqual(await alone());
    await engine.dispose();
  });

  test('a request whose tokens can’t go on fails alone', async () => {
    const engine = await open({});
    const stuck = new Maze(5, 20);
    let steps = 0;
    const next = stuck.next.bind(stuck);
    stuck.next = () => (++steps === 4 ? Promise.reject(new SplitkvError('unsupported', 'no way on')) : next());
    const [failed, other] = await Promise.allSettled([
      ask(engine, { prompt: prompt(1, 90), maxTokens: 60, seed: 1, constraint: stuck }),
      ask(engine, requestOf(REQUESTS[1])),
    ]);
    expect(failed).toMatchObject({ status: 'rejected', reason: { code: 'unsupported' } });
    expect(other).toEqual({ status: 'fulfilled', value: (await alone())[1] });
    expect(engine.metrics.requestsTotal.failed).toBe(1);
    expect(engine.metrics.kvBlocksFree).toBe(engine.metrics.kvBlocks);
    await engine.dispose();
  });

  test('a request that is told late what may follow waits alone, and is as it would be', async () => {
    const engine = await open({});
    const late = new Maze(5, 20);
    const next = late.next.bind(late);
    let others: Promise<unknown> | undefined;
    let steps = 0;
    // Each of its first answers comes when all of another request's tokens have.
    late.next = async () => {
      if (++steps <= 3) await (others = ask(engine, requestOf(REQUESTS[1])));
      return next();
    };
    const waits = await ask(engine, { ...requestOf(REQUESTS[0]), constraint: late });
    expect(others).toBeDefined();
    expect(waits).toEqual((await alone())[0]);
    expect(await others).toEqual((await alone())[1]);
    expect(engine.metrics.kvBlocksFree).toBe(engine.metrics.kvBlocks);
    await engine.dispose();
  });

  test.each(drawn(PLANS, 1, 'constrained plans'))(
    '%s: as alone',
    { timeout: 240_000 },
    async (name, opening, options) => {
      const expected = await alone(opening.model, opening.variants);
      const speculation = new Speculation({
        drafters: (text) => {
          const index = REQUESTS.findIndex((request) => request.prompt.every((token, at) => token === text[at]));
          const guess = new Guess(expected[index]!.tokens);
          for (let at = REQUESTS[index]!.prompt.length; at < text.length; at++) guess.take();
          return [guess];
        },
      });
      const engine = await open(opening, { ...options, speculation });
      const all = await Promise.all(REQUESTS.map((request) => ask(engine, requestOf(request))));
      expect(all).toEqual(expected);
      speculation.tries = MAX_DRAFTS;
      const accepted: Record<'limited' | 'free', number> = { limited: 0, free: 0 };
      for (const [index, request] of REQUESTS.entries()) {
        const before = speculation.counts.accepted;
        expect(await ask(engine, requestOf(request)), `request ${index}, with drafts`).toEqual(expected[index]);
        accepted['maze' in request ? 'limited' : 'free'] += speculation.counts.accepted - before;
      }
      for (const count of Object.values(accepted)) expect(count).toBeGreaterThan(10);
      const together = await Promise.all(REQUESTS.map((request) => ask(engine, requestOf(request))));
      expect(together, 'together, with drafts').toEqual(expected);
      const { preemptionsTotal, kvBlocks, kvBlocksFree } = engine.metrics;
      if (name === 'few blocks') expect(preemptionsTotal).toBeGreaterThan(0);
      if (!options.prefixCaching) expect(kvBlocksFree).toBe(kvBlocks);
      await engine.dispose();
    },
  );
});
