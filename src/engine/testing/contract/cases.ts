import { modelShape } from '../../../model/shape.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import {
  arrangedPlan,
  bySpeed,
  type CopySharing,
  makePlan,
  type Plan,
  type PlanOptions,
} from '../../../placement/index.js';
import { randomArrangement } from '../../../placement/testing/arrangements.js';
import type { KvType, WeightType } from '../../contracts/api.js';
import { randomFiles } from '../random_source.js';
import { EXPERTS } from '../../../model/testing/small_configs.js';

/**
 * What the numerics contract is tried on: models, and the plans that must give the bits of one rank. The tests draw from these tables,
 * `npm run contract` runs all of them.
 */

const long = { max_position_embeddings: 2304 };

export const contractModels = {
  // Odd widths, three kv heads: no even cut.
  llama: {
    seed: 21,
    config: {
      ...long,
      hidden_size: 72,
      num_attention_heads: 6,
      num_key_value_heads: 3,
      head_dim: 24,
      intermediate_size: 300,
    },
  },
  // Biases, tied embedding, a segment for each of 8 ranks.
  qwen2: {
    seed: 22,
    config: {
      ...long,
      model_type: 'qwen2',
      num_attention_heads: 8,
      num_key_value_heads: 8,
      head_dim: 8,
      intermediate_size: 300,
      vocab_size: 500,
      tie_word_embeddings: true,
    },
  },
  deepseek: { seed: 23, config: { ...long, model_type: 'deepseek_v3' } },
  deepseek_v2: { seed: 26, config: { ...long, model_type: 'deepseek_v2' } },
  minicpm3: { seed: 24, config: { ...long, model_type: 'minicpm3', num_attention_heads: 8 } },
  // Norms of queries and keys, which rotate after them.
  qwen3: {
    seed: 25,
    config: {
      ...long,
      model_type: 'qwen3',
      hidden_size: 72,
      num_attention_heads: 6,
      num_key_value_heads: 2,
      head_dim: 40,
    },
  },
  // A kv head, windows, norms behind halves; fewer heads than ranks.
  gemma3: {
    seed: 28,
    config: {
      ...long,
      model_type: 'gemma3_text',
      hidden_act: undefined,
      query_pre_attn_scalar: 24,
      rope_theta: undefined,
      tie_word_embeddings: undefined,
      num_hidden_layers: 4,
      num_attention_heads: 3,
      num_key_value_heads: 1,
      head_dim: 24,
      intermediate_size: 300,
      sliding_window: 270,
      sliding_window_pattern: 2,
    },
  },
  few_heads_moe: {
    seed: 29,
    config: {
      ...long,
      model_type: 'qwen3_moe',
      num_hidden_layers: 3,
      intermediate_size: 300,
      num_experts: 6,
      num_experts_per_tok: 3,
      moe_intermediate_size: 24,
      norm_topk_prob: true,
      mlp_only_layers: [1],
    },
  },
  few_heads_latent: {
    seed: 30,
    config: { ...long, model_type: 'deepseek_v3', num_attention_heads: 2, intermediate_size: 300 },
  },
  mistral: { seed: 27, config: { ...long, model_type: 'mistral', num_key_value_heads: 4, tie_word_embeddings: true } },
  // Biases everywhere, heads of 24 that cut quantisation blocks, five kv heads: for arranged plans.
  biased: {
    seed: 31,
    config: {
      ...long,
      hidden_size: 72,
      num_hidden_layers: 3,
      num_attention_heads: 10,
      num_key_value_heads: 5,
      head_dim: 24,
      intermediate_size: 300,
      attention_bias: true,
    },
  },
  qwen3_tied: {
    seed: 32,
    config: {
      ...long,
      model_type: 'qwen3',
      num_attention_heads: 8,
      num_key_value_heads: 8,
      head_dim: 8,
      intermediate_size: 300,
      vocab_size: 500,
      tie_word_embeddings: true,
    },
  },
  // Experts with kv heads; a dense layer among them.
  qwen3_moe: {
    seed: 33,
    config: {
      ...long,
      ...EXPERTS,
    },
  },
} satisfies Record<string, RandomModelOptions>;

export type ContractModel = keyof typeof contractModels;

interface PlanCase {
  /** Names the plan in reports. */
  readonly name: string;
  readonly make: (model: ContractModel) => Plan;
  /** A device per rank, instead of one that all share. */
  readonly devices: boolean;
}

/** Plans of a model, over prompts of some lengths. */
export interface Contract {
  readonly model: ContractModel;
  readonly weights: WeightType;
  readonly kv: KvType;
  readonly lengths: readonly number[];
  readonly prefillChunk: number;
  readonly plans: readonly PlanCase[];
}

const shapeOf = (model: ContractModel) => modelShape(randomFiles(contractModels[model]).model.config);

const of = (
  policy: string,
  ranks: number,
  { devices = false, ...options }: PlanOptions & { readonly devices?: boolean } = {},
): PlanCase => ({
  name: `${policy} on ${ranks}${devices ? ' devices' : ''}`,
  make: (model) => makePlan(policy, ranks, shapeOf(model), options),
  devices,
});

const anywhere = (ranks: number, copies = 0, sharing: CopySharing = 'lanes', pipeline = 1): PlanCase => ({
  name: `${pipeline > 1 ? 'pp x ' : ''}arranged on ${ranks}${copies > 0 ? `, ${copies} copies by ${sharing}` : ''}`,
  make: (model) => {
    const shape = shapeOf(model);
    const options = { pipeline, ...(copies > 0 ? { seed: 40 + ranks, copies, sharing } : { seed: ranks }) };
    return arrangedPlan(randomArrangement(shape, ranks, options), shape, sharing);
  },
  devices: false,
});

/** On ranks of these speeds: the faster ones have more. */
const unlike = (policy: string, speeds: readonly number[]): PlanCase => ({
  name: `${policy} on ranks as fast as ${speeds.join(' : ')}`,
  make: (model) => bySpeed(makePlan(policy, speeds.length, shapeOf(model)), shapeOf(model), speeds).at(-1)!,
  devices: false,
});

export const contracts: readonly Contract[] = [
  {
    model: 'llama',
    weights: 'f32',
    kv: 'f32',
    lengths: [1, 255, 256, 257, 700],
    prefillChunk: 512,
    plans: [
      of('tp', 2),
      of('sp', 2),
      of('tp', 3),
      of('sp', 3),
      of('tp+sp', 6),
      of('sp', 4, { devices: true }),
      of('sp', 8),
      of('tp+sp', 2, { devices: true }),
      of('pp', 2),
      of('token', 2, { devices: true }),
      of('adp', 2, { devices: true }),
      of('adp', 3),
      of('adp x tp', 6),
      of('adp x sp', 4),
      of('adp x tp+sp', 4, { devices: true }),
    ],
  },
  {
    model: 'llama',
    weights: 'f32',
    kv: 'f32',
    lengths: [1, 257, 700],
    // Prompt steps that end within chunks and blocks.
    prefillChunk: 208,
    plans: [
      of('token x sp', 2),
      of('token x sp', 4),
      of('token x sp', 5, { sequence: 2 }),
      of('pp x token x sp', 4),
      of('token x sp', 3, { devices: true }),
    ],
  },
  {
    model: 'qwen2',
    weights: 'q4',
    kv: 'f16',
    lengths: [257, 2100],
    prefillChunk: 512,
    plans: [
      of('tp', 8),
      of('tp', 4),
      of('sp', 2),
      of('tp x sp', 4),
      of('sp', 5),
      of('tp+sp', 6, { tensor: 2 }),
      of('sp', 11),
      of('tp+sp', 8),
      of('pp x tp', 4, { devices: true }),
      of('pp x sp', 4),
      of('tp x token', 4),
      of('pp x token', 4),
      of('pp x tp x token', 8),
      of('adp', 4),
      of('adp x tp+sp', 8),
      of('pp x adp', 4),
      of('pp x adp x tp', 8, { data: 2 }),
    ],
  },
  {
    model: 'qwen2',
    weights: 'f32',
    kv: 'f16',
    lengths: [700],
    prefillChunk: 208,
    plans: [of('token x sp', 3), of('token x sp', 8), of('tp x token x sp', 4), of('pp x tp x token x sp', 8)],
  },
  {
    model: 'qwen3',
    weights: 'f32',
    kv: 'f16',
    lengths: [1, 300],
    prefillChunk: 208,
    plans: [of('token', 2), of('tp x token', 4), of('tp', 2), of('sp', 4), of('adp', 2)],
  },
  // More ranks than kv heads.
  {
    model: 'qwen3',
    weights: 'q8',
    kv: 'q8',
    lengths: [1, 257, 700],
    prefillChunk: 208,
    plans: [of('tp', 3), of('tp', 4), of('adp x tp', 6), of('pp x tp', 6, { devices: true })],
  },
  {
    model: 'gemma3',
    weights: 'f32',
    kv: 'f16',
    lengths: [1, 257, 700],
    prefillChunk: 208,
    plans: [of('tp', 2, { devices: true }), of('tp', 3), of('tp', 4), of('tp', 8), of('pp x tp', 4), of('adp x tp', 4)],
  },
  ...(['few_heads_moe', 'few_heads_latent'] as const).map((model): Contract => ({
    model,
    weights: 'f32',
    kv: 'f16',
    lengths: [1, 300],
    prefillChunk: 208,
    plans: [of('tp', 3), of('tp', 4), of('tp', 8), of('adp x tp', 6)],
  })),
  {
    model: 'deepseek',
    weights: 'q8',
    kv: 'f32',
    lengths: [1, 300],
    prefillChunk: 512,
    plans: [
      of('tp', 2),
      of('sp', 2, { devices: true }),
      of('ep', 4),
      of('adp', 2, { devices: true }),
      of('adp', 4),
      of('adp x tp', 4),
      of('adp x sp', 4, { devices: true }),
      of('tp+sp', 4),
      of('tp', 3, { devices: true }),
      of('ep', 6),
      of('tp', 9),
      of('pp', 3),
    ],
  },
  {
    model: 'deepseek',
    weights: 'f32',
    kv: 'f32',
    lengths: [1, 300],
    prefillChunk: 208,
    plans: [
      of('pp x token', 4),
      of('token x sp', 3),
      of('token', 3, { devices: true }),
      of('tp x token', 3),
      of('tp x token', 4, { devices: true }),
      of('tp x token x sp', 6, { tensor: 2, sequence: 4 }),
      of('pp x tp x token', 6),
    ],
  },
  {
    model: 'minicpm3',
    weights: 'f16',
    kv: 'f16',
    lengths: [256, 700],
    prefillChunk: 512,
    plans: [
      of('tp+sp', 8),
      of('tp+sp', 2, { devices: true }),
      of('tp', 5),
      of('tp+sp', 7),
      of('sp', 4),
      of('pp x tp', 4),
      of('adp', 3),
      of('adp x tp+sp', 4),
    ],
  },
  {
    model: 'minicpm3',
    weights: 'f32',
    kv: 'f16',
    lengths: [700],
    prefillChunk: 208,
    plans: [
      of('token', 2),
      of('token x sp', 4),
      of('token x sp', 7, { sequence: 3 }),
      of('tp x token', 4, { tensor: 3 }),
      of('tp x token', 8),
      of('tp x token x sp', 8, { tensor: 3, sequence: 2 }),
    ],
  },
  // A turn of the lanes and more.
  {
    model: 'minicpm3',
    weights: 'f32',
    kv: 'f32',
    lengths: [2047, 2049, 2300],
    prefillChunk: 512,
    plans: [of('tp', 3), of('tp+sp', 6), of('sp', 9), of('tp', 16)],
  },
  {
    model: 'llama',
    weights: 'f32',
    kv: 'q8',
    lengths: [1, 300],
    prefillChunk: 208,
    plans: [of('tp x token', 6), of('sp', 4), of('adp', 4), of('pp x token', 4)],
  },
  {
    model: 'deepseek_v2',
    weights: 'f32',
    kv: 'q8',
    lengths: [1, 300],
    prefillChunk: 208,
    plans: [of('token x sp', 4), of('tp', 2), of('adp', 3), of('tp x token', 5)],
  },
  {
    model: 'biased',
    weights: 'f32',
    kv: 'q8',
    lengths: [300],
    prefillChunk: 208,
    plans: [anywhere(3), anywhere(4, 3), anywhere(4, 3, 'sequences')],
  },
  {
    model: 'biased',
    weights: 'f32',
    kv: 'f32',
    lengths: [1, 255, 256, 257, 700],
    prefillChunk: 512,
    plans: [
      anywhere(2),
      anywhere(4),
      anywhere(3, 3),
      anywhere(3, 3, 'sequences'),
      anywhere(4, 0, 'lanes', 2),
      anywhere(6, 2, 'lanes', 2),
      anywhere(6, 2, 'sequences', 3),
    ],
  },
  { model: 'biased', weights: 'q8', kv: 'f16', lengths: [300], prefillChunk: 512, plans: [anywhere(8)] },
  {
    model: 'qwen3_tied',
    weights: 'q4',
    kv: 'f16',
    lengths: [257, 700],
    prefillChunk: 512,
    plans: [anywhere(3), anywhere(8), anywhere(8, 3)],
  },
  {
    model: 'qwen2',
    weights: 'q8',
    kv: 'f16',
    lengths: [257, 2100],
    prefillChunk: 512,
    plans: [
      unlike('tp', [10, 6]),
      unlike('sp', [10, 6]),
      unlike('tp', [5, 1, 1]),
      unlike('tp+sp', [3, 1, 2, 2]),
      unlike('tp', [5, 1, 1, 1, 2, 2, 1, 1]),
      unlike('adp', [10, 6]),
      unlike('adp x tp', [3, 2, 1, 1]),
      unlike('pp x sp', [1, 2, 3, 1]),
    ],
  },
  {
    model: 'deepseek',
    weights: 'f32',
    kv: 'f32',
    lengths: [257, 700],
    prefillChunk: 512,
    plans: [unlike('tp', [3, 1]), unlike('adp', [1, 2, 3]), unlike('ep', [3, 1])],
  },
  {
    model: 'qwen3_moe',
    weights: 'f32',
    kv: 'f16',
    lengths: [1, 300],
    prefillChunk: 208,
    plans: [
      of('tp', 2),
      anywhere(2),
      anywhere(3, 2),
      anywhere(4, 2, 'sequences'),
      anywhere(8, 2, 'sequences'),
      anywhere(4, 2, 'sequences', 2),
    ],
  },
];
