import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { listCached } from '../../loader/index.js';
import { startServer } from '../../loader/testing/http_server.js';
import { startHub } from '../../loader/testing/hub_server.js';
import { MemoryFolder } from '../../loader/testing/memory_folder.js';
import { writeSafetensors } from '../../loader/testing/write_safetensors.js';
import { modelToGguf } from '../../model/testing/gguf/model.js';
import { findLlamaCpp, llamaCppLogits } from '../../model/testing/llama_cpp.js';
import { adapterToGguf, mergedWeights, type RandomAdapter, randomAdapter } from '../../model/testing/random_adapter.js';
import { makeRandomModel, type RandomModel, type RandomModelOptions } from '../../model/testing/random_model.js';
import type { GenerateResult, LoadOptions } from '../contracts/api.js';
import { load } from '../faces/load.js';
import { readAdapter } from '../files/adapter_files.js';
import { Adapters } from './adapters.js';
import { EngineServingModel, serve } from '../faces/serving_model.js';
import { openRunner } from '../testing/open_runner.js';
import { somePrompt } from '../testing/run_bits.js';
import type { CompletionOptions, ServingModel } from './api.js';
import { type Choices, Speculation } from './speculation/speculation.js';

const made = makeRandomModel({ seed: 51 });
const one = randomAdapter(made, { seed: 1 });
const filesOf = (files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>): File[] =>
  [...files].map(([name, bytes]) => new File([bytes], name));
const adaptersOf = (model: RandomModel, some: RegExp) => ({
  one: filesOf(randomAdapter(model, { seed: 1 }).files),
  other: filesOf(randomAdapter(model, { seed: 2, rank: 9, targets: some }).files),
});
const adapters = adaptersOf(made, /self_attn\.[qv]_proj\.weight$/);

const common: LoadOptions = {
  adapter: (await testAdapters()).at(-1)!.name,
  contextLength: 256,
  prefillChunk: 32,
  virtualRanks: true,
};
const open = (more: LoadOptions = {}) => load(filesOf(made.files), { ...common, ...more });
const folder = await mkdtemp(join(tmpdir(), 'adapters-'));
afterAll(() => rm(folder, { recursive: true }));

/** Ids and what was how likely at their places. */
async function answer(model: ServingModel, prompt: number[], options: CompletionOptions) {
  const seen: unknown[] = [];
  const completion = model.complete(prompt, { maxTokens: 12, ignoreEos: true, logprobs: 5, ...options });
  for await (const { logprobs } of completion)
    for (const { id, logprob, top } of logprobs) seen.push([id, logprob, top]);
  return { seen, cached: completion.cachedTokens };
}

const edited = (of: RandomAdapter, config: object, tensors?: Parameters<typeof writeSafetensors>[0]): File[] => {
  const json = JSON.parse(new TextDecoder().decode(of.files.get('adapter_config.json'))) as object;
  const files = new Map(of.files);
  files.set('adapter_config.json', new TextEncoder().encode(JSON.stringify({ ...json, ...config })));
  if (tensors) files.set('adapter_model.safetensors', writeSafetensors(tensors));
  return filesOf(files);
};
const q = 'base_model.model.model.layers.0.self_attn.q_proj';
const pair = (rows: number, columns: number, fill = 0.1, module = q) =>
  [
    [`${module}.lora_A.weight`, 4, columns],
    [`${module}.lora_B.weight`, rows, 4],
  ].map(([name, height, width]) => ({
    name: name as string,
    dtype: 'F32' as const,
    shape: [height as number, width as number],
    data: new Float32Array((height as number) * (width as number)).fill(fill),
  }));

const lmHead = 'base_model.model.lm_head';
const embedding = 'base_model.model.model.embed_tokens';
/** The head itself, as PEFT saves it beside its pair. */
const headOf = (rows: number) => ({
  name: `${lmHead}.base_layer.weight`,
  dtype: 'F32' as const,
  shape: [rows, 64],
  data: new Float32Array(rows * 64),
});

const optionsOf = (adapter?: string): CompletionOptions => (adapter === undefined ? {} : { adapter });

const lfm2 = { model_type: 'lfm2', num_hidden_layers: 3, full_attn_idxs: [1], tie_word_embeddings: undefined };

describe('requests of different adapters', () => {
  const asked = [
    { adapter: 'one', prompt: somePrompt(60) },
    { prompt: somePrompt(60) },
    { adapter: 'other', prompt: somePrompt(60) },
    { adapter: 'one', prompt: somePrompt(9, 1) },
    { prompt: somePrompt(33, 2) },
  ];
  // Lone rows of GPUs have kernels of their own, which leave what adapters add to.
  const gpu = { variants: 'hardware' } as const;
  const lone = [
    { of: { seed: 52, config: { model_type: 'minicpm3' } }, some: /q_b_proj\.weight$/, plan: gpu },
    { of: { seed: 53, config: { model_type: 'deepseek_v2', n_routed_experts: null } }, some: /kv_b_proj/, plan: gpu },
    { of: { seed: 55, config: { model_type: 'deepseek_v3' } }, some: /shared_experts\.\w+_proj/, plan: gpu },
    { of: { seed: 54, config: lfm2 }, some: /conv\.in_proj\.weight$/, plan: gpu },
  ];
  test.each<{ of?: RandomModelOptions; some?: RegExp; plan?: LoadOptions }>([
    {},
    { some: /(embed_tokens|lm_head)\.weight$/, plan: { speculate: 'ngram' } },
    { some: /lm_head\.weight$/, plan: { plan: 'tp', ranks: 2 } },
    { some: /(embed_tokens|lm_head)\.weight$/, plan: { plan: 'adp', ranks: 2, speculate: 'ngram' } },
    ...drawn(lone, 1, 'lone adapters'),
  ])(
    'alone and together, preempted too: the same; none: as without any (%o)',
    { timeout: 300_000 },
    async ({ of, some = /self_attn\.[qv]_proj\.weight$/, plan = {} }) => {
      const random = of ? makeRandomModel(of) : made;
      const files = filesOf(random.files);
      const bare = await serve(files, { ...common, ...(plan.variants && gpu), slots: 4 });
      const without = await answer(bare, asked[1]!.prompt, {});
      await bare.dispose();
      const own = { ...common, ...plan, adapters: adaptersOf(random, some), slots: 4 };
      // So few blocks that some are sent back.
      const model = await serve(files, { ...own, kvBlocks: 5 });
      try {
        const alone = [];
        for (const each of asked) alone.push((await answer(model, each.prompt, optionsOf(each.adapter))).seen);
        // Drafts of all are verified in one step, though they are wrong.
        const chosen = vi.spyOn(Speculation.prototype, 'choose');
        const drafts = [5, 6, 7];
        vi.spyOn(Speculation.prototype, 'propose').mockImplementation(function (this: Speculation) {
          this.tries = 3;
          return [{ length: 3, sureness: 0.5, tokens: (count) => drafts.slice(0, count) }];
        });
        const together = await Promise.all(asked.map((each) => answer(model, each.prompt, optionsOf(each.adapter))));
        const tried = chosen.mock.results.map(({ value }) => (value as Choices | undefined)?.filter(Boolean).length);
        vi.restoreAllMocks();
        if (plan.speculate) expect(Math.max(...tried.map((count) => count ?? 0))).toBeGreaterThan(1);
        expect(together.map(({ seen }) => seen)).toEqual(alone);
        expect(alone[1]).toEqual(without.seen);
        expect(alone[0]).not.toEqual(alone[1]);
        expect(alone[2]).not.toEqual(alone[1]);
        if (!plan.plan) expect(model.metrics.preemptionsTotal).toBeGreaterThan(0);
      } finally {
        await model.dispose();
      }
    },
  );

  test('find the beginnings of their own adapter in the cache, and of no other', { timeout: 120_000 }, async () => {
    const model = await serve(filesOf(made.files), { ...common, adapters, slots: 2 });
    try {
      const prompt = somePrompt(150);
      const cached = async (adapter?: string): Promise<number> =>
        (await answer(model, prompt, optionsOf(adapter))).cached;
      expect(await cached('one')).toBe(0);
      expect(await cached('one')).toBeGreaterThan(120);
      expect(await cached()).toBe(0);
      expect(await cached('other')).toBe(0);
      expect(await cached()).toBeGreaterThan(120);
      await model.adapters.remove('one');
      await model.adapters.add('one', adapters.other);
      expect(await cached('one')).toBe(0);
    } finally {
      await model.dispose();
    }
  });
});

describe('adapters of a loaded model', () => {
  const text = async (result: Promise<GenerateResult>): Promise<readonly number[]> => (await result).tokens;

  test('come and go while others answer, and are gone for good', { timeout: 120_000 }, async () => {
    const model = await open({ requests: 3, speculate: 'ngram' });
    try {
      const options = { maxTokens: 40, ignoreEos: true };
      const generate = (adapter?: string) =>
        text(model.generate(somePrompt(40), { ...options, ...(adapter !== undefined && { adapter }) }).result);
      const base = await generate();
      const dispatches = model.stats().dispatches_per_token;
      const running = generate();
      const info = await model.adapters.add('one', adapters.one);
      expect(info).toMatchObject({ name: 'one', rank: 4 });
      expect(info.bytes).toBeGreaterThan(0);
      const own = generate('one');
      await model.adapters.add('other', adapters.other);
      expect(await running).toEqual(base);
      const first = await own;
      expect(first).not.toEqual(base);
      expect(await generate('one')).toEqual(first);
      const last = generate('one');
      await new Promise((resolve) => setTimeout(resolve, 5));
      await model.adapters.remove('one');
      expect(await last).toEqual(first);
      expect(model.adapters.list.map(({ name }) => name)).toEqual(['other']);
      await expect(generate('one')).rejects.toThrow(/no adapter of that name; it has other/);
      await model.adapters.remove('other');
      expect(await generate()).toEqual(base);
      expect(model.stats().dispatches_per_token).toBe(dispatches);
      await expect(generate('one')).rejects.toThrow(/it has none/);
      // As if it were one, and half of it twice.
      await model.adapters.add('half', [
        { from: adapters.one, scale: 0.5 },
        { from: adapters.one, scale: 0.5 },
      ]);
      expect(await generate('half')).toEqual(first);
    } finally {
      await model.dispose();
    }
  });

  test('are there again after a loss: requests go on, and later ones have them', { timeout: 120_000 }, async () => {
    const { adapter: name } = common;
    const { group } = await openRunner({ adapter: name!, model: { seed: 51 }, plan: 'tp', ranks: 2, slots: 2 });
    const { config } = group.options;
    const opened = { config, group, adapters: new Adapters(group) };
    const model = new EngineServingModel(
      { ...opened, tokenizer: undefined, name: 'test', sampling: {}, loadSeconds: 0 },
      { slots: 2, tokensPerIteration: 64, prefixCaching: true },
    );
    try {
      await model.adapters.add('one', adapters.one);
      const alone = await answer(model, somePrompt(30), { adapter: 'one' });
      const base = await answer(model, somePrompt(30), {});
      expect(alone.seen).not.toEqual(base.seen);
      const both = ['one', undefined].map(async (own) => {
        const completion = model.complete(somePrompt(30), {
          maxTokens: 12,
          ignoreEos: true,
          logprobs: 5,
          ...optionsOf(own),
        });
        const seen: unknown[] = [];
        for await (const { logprobs } of completion) {
          for (const { id, logprob, top } of logprobs) seen.push([id, logprob, top]);
          if (seen.length === 4 && own !== undefined) group.devices[1]!.gpu.destroy();
        }
        return seen;
      });
      expect(await Promise.all(both)).toEqual([alone.seen, base.seen]);
      expect(model.metrics.recoveriesTotal).toBe(1);
      expect((await answer(model, somePrompt(30), { adapter: 'one' })).seen).toEqual(alone.seen);
    } finally {
      await model.dispose();
    }
  });

  test('stay those of a conversation and of a model that chats name', { timeout: 120_000 }, async () => {
    const config = JSON.parse(await readFile('models/tiny-gqa/config.json', 'utf8')) as Record<string, number>;
    const shape = [config['hidden_size']!, config['intermediate_size']!];
    const weights = new Map([['model.layers.0.mlp.down_proj.weight', { shape, data: new Float32Array(0) }]]);
    const files = filesOf(randomAdapter({ weights }, { seed: 4 }).files);
    const model = await load('models/tiny-gqa', {
      ...common,
      contextLength: 512,
      adapters: { own: { from: files, scale: 6 } },
    });
    try {
      const options = { maxTokens: 10, ignoreEos: true };
      const talkOf = async (adapter?: string) => {
        const talk = model.conversation(adapter === undefined ? {} : { adapter });
        const first = await talk.send('Who was there?', options).result;
        const second = await talk.send('And then?', options).result;
        return { tokens: [first.tokens, second.tokens], cached: second.stats.cached_tokens };
      };
      const base = await talkOf();
      const own = await talkOf('own');
      expect(own.tokens).not.toEqual(base.tokens);
      expect(own.cached).toBeGreaterThan(0);
      const create = (name?: string) =>
        model.chat.completions.create({
          messages: [{ role: 'user', content: 'Who was there?' }],
          max_tokens: 10,
          ...(name !== undefined && { model: name }),
        });
      const named = await create(`${model.info.name}:own`);
      expect(named.model).toBe(`${model.info.name}:own`);
      expect(named.choices[0]!.message.content).not.toBe((await create()).choices[0]!.message.content);
      await expect(create(`${model.info.name}:none`)).rejects.toThrow(/adapter 'none': .* it has own/);
    } finally {
      await model.dispose();
    }
  });

  test('that are none of this model are refused by name, and others go on', { timeout: 120_000 }, async () => {
    const model = await open({ adapters, requests: 2 });
    const wrong: readonly [File[], RegExp][] = [
      [edited(one, {}, pair(64, 72)), /lora_A.weight' .* has shape \[4, 72\]; expected \[4, 64\]/],
      [edited(one, {}, pair(65, 64)), /lora_B.weight' .* has shape \[65, 4\]; expected \[64, 4\]/],
      [edited(one, {}, pair(64, 64, Number.NaN)), /lora_A.weight' .* holds NaN/],
      [edited(one, {}, pair(64, 64, Infinity)), /holds Infinity/],
      [edited(one, {}, pair(64, 64).slice(1)), /has no tensor '.*q_proj.lora_A.weight'/],
      [
        edited(one, {}, pair(320, 64, 1, 'base_model.model.model.vision_tower.blocks.0.fc1')),
        /changes 'model.vision_tower.blocks.0.fc1', which isn't a matrix .* lm_head\): merge it into the weights/,
      ],
      [edited(one, {}, pair(320, 64, 1, embedding)), /lora_A.weight' .* has shape \[4, 64\]; expected \[4, 320\]/],
      [
        edited(one, {}, pair(64, 64, 1, 'base_model.model.model.layers.0.mlp.experts')),
        /changes 'model.layers.0.mlp.experts'/,
      ],
      [
        edited(one, {}, [...pair(320, 64, 1, lmHead), headOf(322)]),
        /base_layer.weight' .* has shape \[322, 64\]; expected \[320, 64\]/,
      ],
      [
        edited(one, {}, [{ name: 'base_model.model.lm_head.weight', dtype: 'F32', shape: [1], data: [1] }]),
        /lm_head.weight' is no/,
      ],
      [
        edited(one, { modules_to_save: ['lm_head', 'embed_tokens'] }),
        /modules_to_save is \["lm_head","embed_tokens"\]/,
      ],
      [edited(one, { use_dora: true }), /use_dora is true/],
      [edited(one, { bias: 'all' }), /bias is "all"/],
      [edited(one, { peft_type: 'IA3' }), /peft_type is "IA3"/],
      [edited(one, { init_lora_weights: 'pissa_niter_4' }), /of a changed base model/],
      [edited(one, { lora_alpha: '8' }), /lora_alpha is "8"; expected a number/],
      [edited(one, { alpha_pattern: { '(q|k)_proj': 3 } }), /alpha_pattern "\(q\|k\)_proj": expected names/],
      [edited(one, { alpha_pattern: { '.*a.*b.*c': 3 } }), /expected names of modules, '\.\*' in them at most twice/],
      [edited(one, { kasa_config: { beta: 1 } }), /kasa_config is {"beta":1}/],
      [filesOf(new Map([...one.files].slice(1))), /has no adapter_config.json/],
      [filesOf(new Map([...one.files].slice(0, 1))), /has no adapter_model.safetensors/],
    ];
    try {
      const options = { maxTokens: 60, ignoreEos: true, adapter: 'one' };
      const alone = await text(model.generate(somePrompt(20), options).result);
      const running = text(model.generate(somePrompt(20), options).result);
      for (const [files, message] of wrong) await expect(model.adapters.add('wrong', files)).rejects.toThrow(message);
      await expect(model.adapters.add('one', adapters.one)).rejects.toThrow(/there is one of that name/);
      await expect(model.adapters.add('a:b', adapters.one)).rejects.toThrow(/expected letters/);
      expect(await running).toEqual(alone);
      await model.adapters.add('head', edited(one, {}, [...pair(320, 64, 0.1, lmHead), headOf(320)]));
      expect(model.adapters.list).toHaveLength(3);
      // As they are called in a model for images too, in one without its head, and here.
      const renamed = [];
      for (const before of ['model.language_model.', 'language_model.model.', '', 'model.']) {
        const module = `base_model.model.${before}layers.1.self_attn.o_proj`;
        await model.adapters.add('renamed', edited(one, {}, pair(64, 64, 0.3, module)));
        renamed.push(await text(model.generate(somePrompt(20), { ...options, adapter: 'renamed' }).result));
        await model.adapters.remove('renamed');
      }
      expect(renamed).toEqual(Array(4).fill(renamed[3]));
      expect(renamed[3]).not.toEqual(
        await text(model.generate(somePrompt(20), { maxTokens: 60, ignoreEos: true }).result),
      );
    } finally {
      await model.dispose();
    }
    await expect(open({ adapters: { wrong: wrong[0]![0] } })).rejects.toThrow(/expected \[4, 64\]/);
  });

  test('of a tied head and embedding: by themselves, or as they say both', async () => {
    const { config } = makeRandomModel({ seed: 51, config: { tie_word_embeddings: true } });
    const turned = pair(64, 320, 0.1, embedding).map((half) => ({
      ...half,
      name: half.name.replace(/lora_([AB])\.weight/, 'lora_embedding_$1'),
    }));
    const read = async (...[json, tensors]: [object, ReturnType<typeof pair>]) =>
      (await readAdapter([{ from: edited(one, json, tensors) }], config)).map(({ tensor }) => tensor);
    const [table, head] = ['model.embed_tokens.weight', 'lm_head.weight'];
    expect(await read({}, turned)).toEqual([table]);
    const ties = { ensure_weight_tying: true };
    expect(await read(ties, pair(64, 64))).toHaveLength(1);
    expect(await read(ties, [...turned, ...pair(320, 64, 0.1, lmHead)])).toEqual([table, head]);
    await expect(read(ties, turned)).rejects.toThrow(/no pair of the head, which ensure_weight_tying says/);
    const whole = { name: `${embedding}.base_layer.weight`, dtype: 'F32' as const, data: new Float32Array(320 * 64) };
    expect(await read({}, [...turned, { ...whole, shape: [320, 64] }])).toEqual([table]);
    await expect(read({}, [...turned, { ...whole, shape: [64, 320] }])).rejects.toThrow(/expected \[320, 64\]/);
  });

  test('come from servers and the Hub, and are kept as models are', async () => {
    const { config } = made;
    const read = (from: string, opening = {}) => readAdapter([{ from }], config, opening);
    const expected = await readAdapter([{ from: adapters.one }], config);
    const server = await startServer(Object.fromEntries(one.files));
    const hub = await startHub({ 'org/lora': { files: Object.fromEntries(one.files) } });
    const root = new MemoryFolder();
    vi.stubGlobal('navigator', { storage: { getDirectory: async () => root } });
    vi.stubEnv('HF_HOME', folder);
    const network = { hub: hub.url };
    try {
      expect(await read(server.url, { cache: false })).toEqual(expected);
      expect(await listCached()).toEqual([]);
      expect(await read(server.url)).toEqual(expected);
      expect(await listCached()).toMatchObject([{ url: server.url, kind: 'adapter', complete: true }]);
      const onWarning = vi.fn();
      server.misbehave = (_, response) => Boolean(response.writeHead(404).end());
      expect(await read(server.url, { onWarning })).toEqual(expected);
      expect(onWarning).toHaveBeenCalledWith(expect.stringMatching(/using the cached copy/));
      expect(await read('hf:org/lora', { network })).toEqual(expected);
      hub.requests.length = 0;
      vi.stubEnv('HF_HUB_OFFLINE', '1');
      expect(await read('org/lora', { network })).toEqual(expected);
      expect(hub.requests).toEqual([]);
    } finally {
      vi.unstubAllGlobals();
      vi.unstubAllEnvs();
      await server[Symbol.asyncDispose]();
      await hub[Symbol.asyncDispose]();
    }
  });

  test('have room in the memory that ranks may take, or are refused', { timeout: 120_000 }, async () => {
    const model = await open({ adapters });
    const { weightBytes, kvBytes } = model.info;
    await model.dispose();
    const tight = await open({ memory: 2 * (weightBytes + kvBytes) + 2_000_000 });
    try {
      const huge = randomAdapter(made, { seed: 3, rank: 512 });
      await expect(tight.adapters.add('huge', filesOf(huge.files))).rejects.toThrow(/left of its memory/);
      await tight.adapters.add('one', adapters.one);
    } finally {
      await tight.dispose();
    }
  });
});

describe('GGUF adapters', async () => {
  const llama = await findLlamaCpp();
  const models: readonly { name: string; options: RandomModelOptions; targets?: RegExp; apart?: true }[] = [
    { name: 'llama, whose rows are in pairs', options: { seed: 61 } },
    {
      name: 'qwen2, its head',
      options: { seed: 62, config: { model_type: 'qwen2', tie_word_embeddings: false } },
      targets: /(_proj|lm_head|embed_tokens)\.weight$/,
    },
    {
      name: 'granite, its embedding, times a number',
      options: {
        seed: 67,
        config: {
          model_type: 'granite',
          embedding_multiplier: 12,
          attention_multiplier: 0.25,
          residual_multiplier: 0.22,
          logits_scaling: 6,
          tie_word_embeddings: false,
        },
      },
      targets: /(q_proj|embed_tokens)\.weight$/,
    },
    {
      name: 'minicpm3',
      options: { seed: 63, config: { model_type: 'minicpm3', dim_model_base: 256 } },
      targets: /_(proj|mqa)\.weight$/,
      apart: true,
    },
    {
      name: 'lfm2',
      options: { seed: 64, config: { ...lfm2, head_dim: undefined, num_attention_heads: 8, num_key_value_heads: 4 } },
      targets: /(_proj|\.w[123])\.weight$/,
    },
    {
      name: 'qwen3_5, whose value heads are in another order',
      options: {
        seed: 65,
        config: {
          model_type: 'qwen3_5_text',
          num_hidden_layers: 4,
          head_dim: 32,
          linear_num_key_heads: 2,
          linear_num_value_heads: 6,
          linear_key_head_dim: 16,
          linear_value_head_dim: 16,
          linear_conv_kernel_dim: 4,
        },
      },
      targets: /(out|o|down)_proj\.weight$/,
    },
    {
      name: 'qwen3_moe, stacks of experts',
      options: {
        seed: 66,
        config: {
          model_type: 'qwen3_moe',
          num_experts: 6,
          num_experts_per_tok: 6,
          moe_intermediate_size: 24,
          norm_topk_prob: true,
        },
      },
      targets: /(gate|o_proj|experts\.\d\.\w+_proj)\.weight$/,
    },
  ];
  test.each(models)("as llama.cpp's: $name", { timeout: 120_000 }, async ({ options, targets, apart }) => {
    const base = makeRandomModel(options);
    const own = randomAdapter(base, { seed: 9, ...(targets && { targets }) });
    const [modelPath, adapterPath] = ['model', 'adapter'].map((part) =>
      join(folder, `${options.seed}-${part}.gguf`),
    ) as [string, string];
    await writeFile(modelPath, modelToGguf(base.config, base.weights));
    await writeFile(adapterPath, adapterToGguf(base, own, 6));
    const tokens = somePrompt(24);
    const logits = async (where: Parameters<typeof load>[0], from: string | File[], scale: number) => {
      const model = await load(where, { ...common, kv: 'f32', adapters: { own: { from, scale } } });
      try {
        return (await model.logits(tokens, { all: true, adapter: 'own' })).rows;
      } finally {
        await model.dispose();
      }
    };
    const rows = await logits(modelPath, adapterPath, 0.5);
    // PEFT's alpha / rank is 2, of the file's 1.5.
    expect(await logits(filesOf(base.files), filesOf(own.files), 0.375)).toEqual(rows);
    if (typeof llama === 'string') return;
    const theirs = await llamaCppLogits(llama, modelPath, tokens, { filePath: adapterPath, scale: 0.5 });
    const merged = join(folder, `${options.seed}-merged.gguf`);
    await writeFile(merged, modelToGguf(base.config, mergedWeights(base.weights, own, 0.75)));
    const expected = await llamaCppLogits(llama, merged, tokens);
    const largest = Math.max(...expected.flatMap((row) => [...row]).map(Math.abs));
    const worst = (of: readonly Float32Array[]): number =>
      Math.max(...of.flatMap((row, at) => [...row].map((value, id) => Math.abs(value - expected[at]![id]!)))) / largest;
    expect(worst(rows)).toBeLessThan(1e-4);
    // llama.cpp multiplies by the matrices of latent attention without their adapters.
    if (apart) expect(worst(theirs)).toBeGreaterThan(0.01);
    else expect(worst(theirs)).toBeLessThan(1e-4);
  });

  test('of another kind are refused', async () => {
    const path = join(folder, 'model.gguf');
    await writeFile(path, modelToGguf(made.config, made.weights));
    await expect(open({ adapters: { own: path } })).rejects.toThrow(/general.type is null; expected 'adapter'/);
  });
});
