import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn, isTurn } from '../../gpu/testing/draw.js';
import type { Conversation, LoadOptions, Model } from '../../index.js';
import { modelSizes } from '../../model/model_sizes.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { modelShape } from '../../model/shape.js';
import { makePlan, planMemory, type RankMemory } from '../../placement/index.js';
import { load } from './load.js';
import { roomOf } from '../planning/budgets.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';
import { loadSeats } from '../planning/seats.js';
import { serve } from './serving_model.js';

const adapter = (await testAdapters()).at(-1)!.name;
const WINDOW = 37;

/** models/tiny-gqa with windows in three of its four layers: what it says is nonsense, and long. */
async function windowedFiles(): Promise<File[]> {
  const folder = 'models/tiny-gqa';
  const names = (await readdir(folder)).filter((name) => name !== 'self_test.json');
  return Promise.all(
    names.map(async (name) => {
      const bytes = await readFile(join(folder, name));
      if (name !== 'config.json') return new File([new Uint8Array(bytes)], name);
      const config = {
        ...(JSON.parse(bytes.toString()) as object),
        architectures: ['SmolLM3ForCausalLM'],
        model_type: 'smollm3',
        no_rope_layers: [0, 1, 0, 0],
        use_sliding_window: true,
        sliding_window: WINDOW,
      };
      return new File([JSON.stringify(config)], name);
    }),
  );
}

const files = await windowedFiles();
/** A prompt step as long as the context: layers with windows keep all tokens. */
const WHOLE = { contextLength: 768, prefillChunk: 768 } as const;
/** Those keep 37 tokens and 24 that are written: 2 blocks, of 12. */
const CUT = { contextLength: 768, prefillChunk: 24 } as const;
const open = (options: LoadOptions): Promise<Model> => load(files, { adapter, ...options });

const somePrompt = (length: number, seed = 0): number[] =>
  Array.from({ length }, (_, i) => 20 + ((i * 53 + seed * 91 + ((i * i) % 97)) % 900));

const TURNS = [
  'Who was there, when it began and nobody knew how it would end?',
  'And then?',
  'Why did they leave the house so early in the morning, and where did they go?',
  'Tell me more of it.',
];
const drawnAs = { maxTokens: 40, temperature: 0.8, seed: 3, ignoreEos: true } as const;

interface Told {
  readonly tokens: readonly number[];
  readonly cached: number;
  readonly prompt: number;
  readonly digest: string;
}

async function ask(talk: Conversation, text: string, cachePrompt = true): Promise<Told> {
  let digest = '';
  const onFirstLogits = (logits: Float32Array): void => {
    digest = createHash('sha256').update(new Uint8Array(logits.slice().buffer)).digest('hex');
  };
  const { tokens, prompt_tokens, stats } = await talk.send(text, { ...drawnAs, cachePrompt, onFirstLogits }).result;
  return { tokens, cached: stats.cached_tokens!, prompt: prompt_tokens, digest };
}

async function tell(model: Model, cachePrompt = true): Promise<Told[]> {
  const talk = model.conversation({ system: 'Answer in few words, or in many, as you like it best.' });
  const told: Told[] = [];
  for (const text of TURNS) told.push(await ask(talk, text, cachePrompt));
  return told;
}

const bitsOf = (told: readonly Told[]) => told.map(({ tokens, digest, prompt }) => ({ tokens, digest, prompt }));

describe('layers with windows keep their windows only', { timeout: 240_000 }, () => {
  let whole: Model;
  let told: Told[];
  beforeAll(async () => {
    whole = await open(WHOLE);
    told = await tell(whole, false);
  });
  afterAll(() => whole.dispose());

  const plans: [plan: string, options: LoadOptions][] = [
    ['single', {}],
    ['tp', { ranks: 2 }],
    ['sp', { ranks: 2 }],
    ['pp', { ranks: 2 }],
    ['token', { ranks: 3 }],
    ['token x sp', { ranks: 3 }],
    ['adp', { ranks: 2 }],
  ];
  test.each(drawn(plans, 1, 'windows'))('a conversation beyond its window: %s', async (plan, options) => {
    const ranks = plan === 'single' ? {} : { plan, virtualRanks: true };
    const model = await open({ ...CUT, ...ranks, ...options });
    if (plan === 'single') {
      const { kvBytes, kvBytesPerToken } = model.info;
      expect(whole.info.kvBytes).toBe(768 * kvBytesPerToken);
      expect(kvBytes).toBe(((768 + 3 * 128) / 4) * kvBytesPerToken);
    }
    const cut = await tell(model);
    expect(cut.at(-1)!.prompt).toBeGreaterThan(5 * WINDOW);
    expect(bitsOf(cut)).toEqual(bitsOf(told));
    for (const [turn, { cached }] of cut.entries()) {
      // What the next token sees is there still.
      const before = cut[turn - 1];
      expect(cached, `turn ${turn}`).toBe(before ? before.prompt + before.tokens.length - 1 : 0);
    }
    await model.dispose();
  });

  test('forked, undone, told again from the beginning', async () => {
    const model = await open(CUT);
    const talk = model.conversation({ system: 'Answer in few words, or in many, as you like it best.' });
    const first = await ask(talk, TURNS[0]!);
    const fork = talk.fork();
    await ask(fork, 'Something else, that takes the blocks that were free?');
    const rest = [first];
    for (const text of TURNS.slice(1)) rest.push(await ask(talk, text));
    expect(bitsOf(rest)).toEqual(bitsOf(told));
    // Windows of what was before have passed: it is computed again, with the same bits.
    talk.undo(2);
    expect(bitsOf([await ask(talk, TURNS[2]!)])).toEqual(bitsOf([told[2]!]));
    const saved = JSON.parse(JSON.stringify(talk.save())) as ReturnType<typeof talk.save>;
    expect(bitsOf([await ask(model.conversation({ restore: saved }), TURNS[3]!)])).toEqual(bitsOf([told[3]!]));
    await model.dispose();
  });

  test.runIf(isTurn(2, 'windows side by side'))(
    'side by side, with few blocks, beginnings in common and preemptions',
    async () => {
      const beginning = somePrompt(150, 9);
      const prompts = [
        [...beginning, ...somePrompt(200, 1)],
        [...beginning.slice(0, 140), ...somePrompt(90, 2)],
        somePrompt(330, 3),
        [...beginning, ...somePrompt(20, 4)],
        somePrompt(64, 5),
      ];
      const expected = [];
      for (const prompt of prompts) expected.push(await whole.generate(prompt, { ...drawnAs, maxTokens: 90 }).result);
      const model = await serve(files, { ...CUT, adapter, slots: 3, kvBlocks: 13, prefixCaching: true });
      try {
        for (let round = 0; round < 2; round++) {
          const answers = await Promise.all(
            prompts.map(async (prompt) => {
              let text = '';
              for await (const piece of model.complete(prompt, { ...drawnAs, maxTokens: 90 })) text += piece.text;
              return text;
            }),
          );
          expect(answers).toEqual(expected.map(({ text }) => text));
        }
        expect(model.metrics.preemptionsTotal).toBeGreaterThan(0);
        expect(model.metrics.kvBlocksFree).toBe(13);
      } finally {
        await model.dispose();
      }
    },
  );
});

const gemma = (window: number) =>
  makeRandomModel({
    config: {
      model_type: 'gemma3_text',
      hidden_act: undefined,
      query_pre_attn_scalar: 24,
      rope_theta: undefined,
      tie_word_embeddings: undefined,
      num_hidden_layers: 5,
      num_key_value_heads: 2,
      max_position_embeddings: 4096,
      sliding_window: window,
      sliding_window_pattern: 3,
    },
  }).config;

describe('memory on paper is what is allocated', () => {
  const cases = [1, 5, 64, 100, 300, 3000].flatMap((window) =>
    ['single 1', 'tp 2', 'tp 4', 'sp 2', 'sp 4', 'pp 2', 'token 3', 'token x sp 5', 'adp 2', 'tp+sp 4'].map(
      (name) => [window, name] as const,
    ),
  );
  test.each(drawn(cases, 1, 'window memory'))('a window of %i, plan %s', async (window, name) => {
    const [, policy, ranks] = /^(.+) (\d)$/.exec(name)!;
    const config = gemma(window);
    const plan = makePlan(policy!, Number(ranks), modelShape(config));
    const sizes = modelSizes(config, 'f32', 'f16');
    const contextLength = 2000;
    const blocks = Math.ceil(contextLength / 64);
    for (const seats of [
      { slots: 6, ...(plan.stages.length > 1 && { batches: 2 }) },
      // Pools short of whole contexts.
      { slots: 5, kvBlocks: 2 * blocks },
      { slots: 7, kvBlocks: 3 * blocks + 5, windows: 3 },
      loadSeats(plan, contextLength, undefined),
    ]) {
      const runner = { ...seats, contextLength, prefillChunk: 48, kvType: 'f16' } as const;
      const held = await memoryOnPaper(plan, { config, type: 'f32' }, runner);
      const planned = planMemory(plan, sizes, { ...roomOf(runner), contextLength, prefillChunk: 48, block: 64 });
      const kvBytes = (ranks: readonly RankMemory[]): number[] => ranks.map((rank) => rank.kvBytes);
      expect(kvBytes(held), JSON.stringify(seats)).toEqual(kvBytes(planned));
    }
  });
});
