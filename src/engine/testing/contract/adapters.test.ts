import { describe, expect, test } from 'vitest';
import { roundWeights } from '../../../../shaders/linear/round_weights.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn } from '../../../gpu/testing/draw.js';
import { nth } from '../../../base/lists.js';
import { makeRandomModel, type RandomModel, type RandomModelOptions } from '../../../model/testing/random_model.js';
import { mergedWeights, randomAdapter, type RandomAdapterOptions } from '../../../model/testing/random_adapter.js';
import { STATE_SPACE } from '../../../model/testing/small_configs.js';
import { familyLogits } from '../../../model/testing/reference/families.js';
import { referenceLogits, type WeightMap } from '../../../model/testing/reference/reference.js';
import type { LoadOptions, Model, WeightType } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { contractModels } from './cases.js';
import { somePrompt } from '../run_bits.js';

const filesOf = (files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>): File[] =>
  [...files].map(([name, bytes]) => new File([bytes], name));

/** The quickest. */
const adapter = (await testAdapters()).at(-1)!.name;

const open = (options: RandomModelOptions, more: LoadOptions): Promise<Model> =>
  load(filesOf(makeRandomModel(options).files), {
    adapter,
    kv: 'f32',
    contextLength: 512,
    prefillChunk: 64,
    virtualRanks: true,
    ...more,
  });

/** Of prompt rows, then of rows as if generated. */
async function logits(model: Model, length: number, of?: string): Promise<Float32Array[]> {
  const options = { all: true, promptLength: length - 6, ...(of !== undefined && { adapter: of }) };
  return [...(await model.logits(somePrompt(length), options)).rows];
}

/** As the runtime keeps them: routers and gates of one row in f32, kv_b_proj at least in f16, the rest as asked. */
const rounded = (weights: WeightMap, type: WeightType): WeightMap =>
  new Map(
    [...weights].map(([name, { shape, data }]) => {
      if (shape.length !== 2 || /\.(gate|shared_expert_gate)\.weight$/.test(name)) return [name, { shape, data }];
      const kept = name.endsWith('kv_b_proj.weight') && type !== 'f32' ? 'f16' : type;
      return [name, { shape, data: roundWeights(kept, data, shape[0]!, shape[1]!) }];
    }),
  );

function worst(rows: readonly Float32Array[], expected: readonly Float64Array[]): number {
  const largest = Math.max(...expected.flatMap((row) => [...row]).map(Math.abs));
  return (
    Math.max(...rows.flatMap((row, at) => [...row].map((value, id) => Math.abs(value - expected[at]![id]!)))) / largest
  );
}

/** The same model with a head of its own, which is what an adapter of a tied one changes. */
const untied = ({ config, weights }: RandomModel): Pick<RandomModel, 'config' | 'weights'> => ({
  config: { ...config, tieWordEmbeddings: false },
  weights: config.tieWordEmbeddings
    ? new Map([...weights, ['lm_head.weight', weights.get('model.embed_tokens.weight')!]])
    : weights,
});

const sameBits = (a: readonly Float32Array[], b: readonly Float32Array[]): boolean =>
  a.length === b.length && a.every((row, at) => Buffer.from(row.buffer).equals(Buffer.from(nth(b, at).buffer)));

/** All that mixes tokens, and dense MLPs. */
const ALL =
  /layers\.\d+\.((self_attn|linear_attn|conv|mamba)\.\w*_(proj\w*|qkv|z|b|a|qkvz|ba|mqa)|(mlp|feed_forward|shared_mlp)\.\w+)\.weight$/;

const recurrentModels = {
  lfm2: {
    seed: 46,
    config: {
      model_type: 'lfm2',
      num_hidden_layers: 3,
      full_attn_idxs: [1],
      num_attention_heads: 8,
      num_key_value_heads: 4,
      tie_word_embeddings: undefined,
    },
  },
  qwen3_5: {
    seed: 47,
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
  granite: { seed: 50, config: STATE_SPACE },
} satisfies Record<string, RandomModelOptions>;

const models = { ...contractModels, ...recurrentModels };

const gemma4 = {
  model_type: 'gemma4_text',
  hidden_act: undefined,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
  hidden_size_per_layer_input: 0,
  final_logit_softcapping: 30,
  head_dim: 16,
  global_head_dim: 32,
  sliding_window: 9,
};

interface MergedCase {
  readonly name: string;
  readonly model: RandomModelOptions;
  readonly of: RandomAdapterOptions;
  /** alpha / rank, or as the config says. */
  readonly scale: number;
  readonly weights?: WeightType;
  readonly load?: LoadOptions;
}

const HEAD = /(\.\w+_proj|^lm_head|embed_tokens)\.weight$/;

const merged: readonly MergedCase[] = [
  {
    name: 'llama, all projections and the head, three ranks',
    model: contractModels.llama,
    of: { seed: 1, targets: HEAD },
    scale: 2,
    load: { plan: 'tp', ranks: 3 },
  },
  {
    name: 'qwen2, a tied head alone, q8, four ranks',
    model: contractModels.qwen2,
    of: { seed: 20, rank: 7, targets: /^lm_head\.weight$/ },
    scale: 2,
    weights: 'q8',
    load: { plan: 'tp', ranks: 4 },
  },
  {
    name: 'qwen2, the embedding alone, whose head is tied, q8, three ranks',
    model: contractModels.qwen2,
    of: { seed: 22, rank: 5, targets: /embed_tokens\.weight$/ },
    scale: 2,
    weights: 'q8',
    load: { plan: 'tp', ranks: 3 },
  },
  {
    name: 'qwen3_moe, stacks of experts, two ranks',
    model: { ...contractModels.qwen3_moe, config: { ...contractModels.qwen3_moe.config, num_experts_per_tok: 6 } },
    of: { seed: 23, rank: 3, targets: /(experts\.\d+\.\w+_proj|embed_tokens)\.weight$/, stacked: true },
    scale: 2,
    load: { plan: 'ep', ranks: 2 },
  },
  {
    name: 'gemma4, a tied head whose logits are bounded, variants for GPUs',
    model: {
      seed: 52,
      config: { ...gemma4, num_hidden_layers: 2, layer_types: ['sliding_attention', 'full_attention'] },
    },
    of: { seed: 21, targets: HEAD },
    scale: 2,
    load: { variants: 'hardware' },
  },
  {
    name: 'qwen2 with biases, rank-stabilised, f16',
    model: contractModels.qwen2,
    of: { seed: 2, rank: 9, dtype: 'F16', config: { use_rslora: true, lora_alpha: 6 } },
    scale: 2,
  },
  {
    name: 'qwen3, q and v alone, q4, alphas of their own',
    model: contractModels.qwen3,
    of: { seed: 3, targets: /[qv]_proj\.weight$/, config: { alpha_pattern: { '.*\\.q_proj': 12, v_proj: 12 } } },
    scale: 3,
    weights: 'q4',
  },
  {
    name: 'phi3, fused tensors, variants for GPUs',
    model: { seed: 41, config: { model_type: 'phi3', sliding_window: null, pad_token_id: 0 } },
    of: { seed: 4, rank: 3 },
    scale: 2,
    load: { variants: 'hardware' },
  },
  {
    name: 'starcoder2, a plain MLP, layer norms',
    model: { seed: 42, config: { model_type: 'starcoder2', hidden_act: 'gelu_pytorch_tanh', norm_epsilon: 1e-5 } },
    of: { seed: 5, targets: /(_proj|c_fc)\.weight$/ },
    scale: 2,
  },
  {
    name: 'gemma3, norms on both sides, variants for GPUs',
    model: {
      seed: 43,
      config: {
        model_type: 'gemma3_text',
        hidden_act: undefined,
        query_pre_attn_scalar: 24,
        rope_theta: undefined,
        tie_word_embeddings: undefined,
        sliding_window: 5,
      },
    },
    of: { seed: 6 },
    scale: 2,
    load: { variants: 'hardware' },
  },
  {
    name: 'minicpm3, latent attention with a bottleneck, q4, three ranks',
    model: contractModels.minicpm3,
    of: { seed: 11, targets: ALL },
    scale: 2,
    weights: 'q4',
    load: { plan: 'tp', ranks: 3 },
  },
  {
    name: 'minicpm3, q_b_proj alone, variants for GPUs',
    model: { seed: 44, config: { model_type: 'minicpm3' } },
    of: { seed: 12, rank: 7, targets: /q_b_proj\.weight$/ },
    scale: 2,
    load: { variants: 'hardware' },
  },
  {
    name: 'deepseek_v2, kv_b_proj alone, variants for GPUs',
    model: { seed: 45, config: { model_type: 'deepseek_v2', n_routed_experts: null } },
    of: { seed: 13, targets: /kv_b_proj\.weight$/ },
    scale: 2,
    load: { variants: 'hardware' },
  },
  {
    name: 'lfm2, short convolutions, variants for GPUs',
    model: recurrentModels.lfm2,
    of: { seed: 14, targets: ALL },
    scale: 2,
    load: { variants: 'hardware' },
  },
  {
    name: 'qwen3_5, linear and gated attention, q8, two ranks',
    model: recurrentModels.qwen3_5,
    of: { seed: 15, targets: ALL },
    scale: 2,
    weights: 'q8',
    load: { plan: 'tp', ranks: 2 },
  },
  {
    name: 'granite 4, state spaces, q8, two ranks',
    model: recurrentModels.granite,
    of: { seed: 18, targets: ALL },
    scale: 2,
    weights: 'q8',
    load: { plan: 'tp', ranks: 2 },
  },
  {
    name: 'deepseek_v3, experts of both kinds and routers, two ranks',
    model: { seed: 48, config: { model_type: 'deepseek_v3', num_experts_per_tok: 8, topk_group: 4 } },
    of: { seed: 16, targets: /mlp\.(gate|[\w.]+_proj)\.weight$/ },
    scale: 2,
    load: { plan: 'ep', ranks: 2 },
  },
  {
    name: 'qwen3_next, some experts, q8, variants for GPUs',
    model: {
      seed: 49,
      config: {
        model_type: 'qwen3_next',
        num_hidden_layers: 2,
        head_dim: 32,
        full_attention_interval: 2,
        linear_num_key_heads: 2,
        linear_num_value_heads: 6,
        linear_key_head_dim: 24,
        linear_value_head_dim: 24,
        linear_conv_kernel_dim: 4,
        num_experts: 4,
        num_experts_per_tok: 4,
        moe_intermediate_size: 24,
        shared_expert_intermediate_size: 40,
      },
    },
    of: { seed: 17, targets: /(linear_attn\.\w+|shared_expert(_gate|\.\w+_proj)|experts\.[02]\.\w+_proj)\.weight$/ },
    scale: 2,
    weights: 'q8',
    load: { variants: 'hardware' },
  },
  {
    name: 'gemma4, inputs for each layer',
    model: {
      seed: 50,
      config: {
        ...gemma4,
        num_hidden_layers: 3,
        hidden_size: 72,
        layer_types: ['sliding_attention', 'full_attention', 'sliding_attention'],
        hidden_size_per_layer_input: 64,
        vocab_size_per_layer_input: 320,
      },
    },
    of: { seed: 18, targets: /(layers\.\d+\.(\w+\.\w+_proj|per_layer_\w+)|per_layer_model_projection)\.weight$/ },
    scale: 2,
    load: { variants: 'hardware' },
  },
  {
    name: 'gemma4, experts beside an MLP',
    model: {
      seed: 51,
      config: {
        ...gemma4,
        num_hidden_layers: 2,
        layer_types: ['sliding_attention', 'full_attention'],
        enable_moe_block: true,
        num_experts: 4,
        top_k_experts: 4,
        moe_intermediate_size: 40,
      },
    },
    of: { seed: 19, targets: /layers\.\d+\.[\w.]+_proj\.weight$/ },
    scale: 2,
  },
];

describe('an adapter is as good as merged weights', () => {
  test.each(drawn(merged, 3, 'merged'))(
    '$name',
    { timeout: 300_000 },
    async ({ model: options, of, scale, weights = 'f32', load: more }) => {
      const made = makeRandomModel(options);
      const apart = untied(made);
      const own = randomAdapter(apart, of);
      const json = JSON.parse(new TextDecoder().decode(made.files.get('config.json'))) as Record<string, unknown>;
      const raw = { ...json, tie_word_embeddings: false };
      const base = rounded(apart.weights, weights);
      const model = await open(options, { weights, ...more, adapters: { own: filesOf(own.files) } });
      try {
        const length = 40;
        const logitsOf = (values: WeightMap): Float64Array[] =>
          !/^(phi3|starcoder2|gemma|granitemoe|lfm2|qwen3_5|qwen3_next)/.test(made.config.architecture)
            ? referenceLogits(apart.config, values, somePrompt(length))
            : familyLogits(raw, values, somePrompt(length));
        const expected = logitsOf(mergedWeights(base, own, scale));
        const plain = logitsOf(base);
        const rows = await logits(model, length, 'own');
        expect(worst(rows, expected)).toBeLessThan(1e-4);
        expect(worst(rows, plain)).toBeGreaterThan(0.02); // it matters
        expect(worst(await logits(model, length), plain)).toBeLessThan(1e-4);
        // A lone row's kernels do what is beside a projection, too.
        const options = { adapter: 'own', maxTokens: 12, ignoreEos: true };
        const { tokens } = await model.generate(somePrompt(length), options).result;
        const all = await model.logits([...somePrompt(length), ...tokens.slice(0, -1)], { all: true, adapter: 'own' });
        const best = [...all.rows].slice(length - 1).map((row) => row.indexOf(Math.max(...row)));
        expect(tokens).toEqual(best);
      } finally {
        await model.dispose();
      }
    },
  );
});

const plans: readonly (LoadOptions & { readonly model: keyof typeof models })[] = [
  { model: 'llama', plan: 'tp', ranks: 3 },
  { model: 'qwen3', plan: 'tp', ranks: 4 },
  { model: 'llama', plan: 'sp', ranks: 2 },
  { model: 'qwen2', plan: 'tp+sp', ranks: 8 },
  { model: 'qwen2', plan: 'pp x tp', ranks: 4 },
  { model: 'llama', plan: 'token', ranks: 2 },
  { model: 'qwen2', plan: 'tp x token', ranks: 4 },
  { model: 'qwen2', plan: 'adp', ranks: 2 },
  { model: 'qwen2', plan: 'adp x tp', ranks: 4 },
  { model: 'qwen3_moe', plan: 'adp', ranks: 2 },
  { model: 'qwen3_moe', plan: 'ep', ranks: 2 },
  { model: 'minicpm3', plan: 'tp', ranks: 3 },
  { model: 'minicpm3', plan: 'sp', ranks: 2 },
  { model: 'minicpm3', plan: 'token', ranks: 2 },
  { model: 'deepseek', plan: 'adp x tp', ranks: 4 },
  { model: 'deepseek_v2', plan: 'tp+sp', ranks: 4 },
  { model: 'deepseek', plan: 'ep', ranks: 2 },
  { model: 'lfm2', plan: 'tp', ranks: 2 },
  { model: 'lfm2', plan: 'pp x tp', ranks: 4 },
  { model: 'lfm2', plan: 'token', ranks: 2 },
  { model: 'qwen3_5', plan: 'tp', ranks: 2 },
  { model: 'qwen3_5', plan: 'adp', ranks: 2 },
  { model: 'qwen2', plan: 'tp', ranks: 2, workers: true, virtualRanks: false },
];

describe('the bits of one rank, of rows with adapters and without', () => {
  test.each(drawn(plans, 3, 'plans of adapters'))(
    '$plan of $ranks, $model',
    { timeout: 300_000 },
    async ({ model: name, ...plan }) => {
      const options: RandomModelOptions = models[name];
      const made = makeRandomModel(options);
      const targets =
        /(self_attn\.\w+_(proj|mqa)|linear_attn\.\w+|conv\.\w+_proj|layers\.[01]\.\w+\.\w+_proj|lm_head|embed_tokens)\.weight$/;
      const some = /(experts\.[05]\.down|self_attn\.(q|q_b|kv_b|o)|conv\.in|linear_attn\.out)_proj\.weight$/;
      const adapters = {
        one: filesOf(randomAdapter(untied(made), { seed: 7, targets }).files),
        other: filesOf(randomAdapter(made, { seed: 8, rank: 11, targets: some }).files),
      };
      const of = [undefined, 'one', 'other'] as const;
      const rows = async (more: LoadOptions): Promise<Float32Array[][]> => {
        const model = await open(options, more);
        try {
          const each: Float32Array[][] = [];
          for (const own of more.adapters ? of : [undefined]) each.push(await logits(model, 90, own));
          return each;
        } finally {
          await model.dispose();
        }
      };
      const [base] = await rows({});
      const single = await rows({ adapters });
      const cut = await rows({ ...plan, adapters });
      expect(sameBits(nth(single, 0), base!), 'none').toBe(true);
      for (const [at, own] of of.entries()) expect(sameBits(nth(cut, at), nth(single, at)), String(own)).toBe(true);
      expect(sameBits(nth(single, 1), base!)).toBe(false);
      expect(sameBits(nth(single, 2), nth(single, 1))).toBe(false);
    },
  );
});
