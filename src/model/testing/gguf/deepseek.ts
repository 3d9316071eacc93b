import { expertsOf, type MlaConfig, type ModelConfig } from '../../config/model_config.js';
import type { GgufParts } from './model.js';
import { f32, type GgufTensor, type GgufValue, text, u32 } from './file.js';
import type { ReferenceTensor, WeightMap } from '../reference/reference.js';

/**
 * 'deepseek2' (V2 and V3: llama.cpp attends over the latent, with kv_b_proj cut into attn_k_b and attn_v_b) or 'minicpm3'. The
 * former turns neighbouring pairs, as the checkpoints do, the latter halves.
 */
export function deepseekParts(config: ModelConfig, attention: MlaConfig, weights: WeightMap): GgufParts {
  if (attention.bias) throw new Error('llama.cpp has no bias in latent attention');
  return config.architecture === 'minicpm3'
    ? minicpmParts(config, attention, weights)
    : deepseek2Parts(config, attention, weights);
}

function deepseek2Parts(config: ModelConfig, attention: MlaConfig, weights: WeightMap): GgufParts {
  const { kvLoraRank, qkNopeHeadDim: nope, qkRopeHeadDim: rope, vHeadDim } = attention;
  if (attention.qLoraRank === null && config.layers.length !== 27)
    throw new Error('llama.cpp reads a model without q_lora only where it has 27 layers, as V2-Lite');
  const metadata = {
    ...latentMetadata(attention),
    // Attention over the latent is multi-query attention of wide heads.
    'attention.head_count_kv': u32(1),
    'attention.key_length': u32(kvLoraRank + rope),
    'attention.value_length': u32(kvLoraRank),
    'attention.key_length_mla': u32(nope + rope),
    'attention.value_length_mla': u32(vHeadDim),
    ...expertMetadata(config),
    ...yarnMetadata(attention),
  };
  const tensors: GgufTensor[] = [];
  for (const [name, tensor] of weights) {
    if (/\.experts\.\d+\./.test(name)) continue;
    if (name.endsWith('kv_b_proj.weight')) tensors.push(...splitKvB(attention, name, tensor));
    else tensors.push({ name, shape: tensor.shape, data: pairRotaryRows(attention, name, tensor) });
  }
  return { arch: 'deepseek2', metadata, tensors: [...tensors, ...stackExperts(config, weights)] };
}

function minicpmParts(config: ModelConfig, attention: MlaConfig, weights: WeightMap): GgufParts {
  const { layers, embeddingScale, residualScale, logitScale, hiddenSize } = config;
  const { scaling } = attention.rope;
  const near = (a: number, b: number) => Math.abs(a - b) < 1e-9;
  if (
    embeddingScale !== 12 ||
    !near(residualScale, 1.4 / Math.sqrt(layers.length)) ||
    !near(logitScale, 256 / hiddenSize)
  )
    throw new Error('llama.cpp knows scale_emb 12, scale_depth 1.4 and dim_model_base 256 only');
  const metadata: Record<string, GgufValue> = {
    ...latentMetadata(attention),
    'attention.head_count_kv': u32(attention.heads),
    'attention.key_length': u32(attention.qkNopeHeadDim + attention.qkRopeHeadDim),
    'attention.value_length': u32(attention.vHeadDim),
  };
  const tensors = [...weights].map(([name, { shape, data }]): GgufTensor => ({ name, shape, data }));
  if (scaling?.type === 'longrope') {
    metadata['rope.scaling.original_context_length'] = u32(scaling.originalMaxPositions);
    metadata['rope.scaling.attn_factor'] = f32(scaling.attentionFactor);
    for (const length of ['long', 'short'] as const) {
      const data = Float32Array.from(scaling[`${length}Factor`]);
      tensors.push({ name: `rope_factors_${length}.weight`, shape: [data.length], data });
    }
  }
  return { arch: 'minicpm3', metadata, tensors };
}

const latentMetadata = ({ qLoraRank, kvLoraRank, qkRopeHeadDim }: MlaConfig): Record<string, GgufValue> => ({
  ...(qLoraRank === null ? {} : { 'attention.q_lora_rank': u32(qLoraRank) }),
  'attention.kv_lora_rank': u32(kvLoraRank),
  'rope.dimension_count': u32(qkRopeHeadDim),
});

function expertMetadata(config: ModelConfig): Record<string, GgufValue> {
  const moe = expertsOf(config);
  const dense = config.layers.findIndex(({ mlp }) => mlp.kind === 'experts');
  const alternates = config.layers.slice(dense).some(({ mlp }) => mlp.kind !== 'experts');
  if (!moe || alternates || moe.sharedWidth === 0)
    throw new Error('llama.cpp wants experts in every layer after the dense ones, and shared experts');
  if (moe.method === 'group_limited_greedy')
    throw new Error('llama.cpp scores groups as noaux_tc does, by their two best experts');
  return {
    leading_dense_block_count: u32(dense),
    expert_count: u32(moe.numExperts),
    expert_used_count: u32(moe.expertsPerToken),
    expert_feed_forward_length: u32(moe.width),
    expert_shared_count: u32(moe.sharedWidth / moe.width),
    expert_weights_scale: f32(moe.routedScalingFactor),
    expert_weights_norm: { type: 'bool', value: moe.normTopkProb },
    expert_gating_func: u32(moe.scoring === 'softmax' ? 1 : 2),
    expert_group_count: u32(moe.numGroups),
    expert_group_used_count: u32(moe.topkGroups),
  };
}

function yarnMetadata({ rope: { scaling } }: MlaConfig): Record<string, GgufValue> {
  if (scaling?.type !== 'yarn') return {};
  const { factor, originalMaxPositions, betaFast, betaSlow, mscaleAllDim, attentionFactor } = scaling;
  if (betaFast !== 32 || betaSlow !== 1 || attentionFactor !== 1)
    throw new Error('llama.cpp is given beta_fast 32, beta_slow 1 and mscale equal to mscale_all_dim');
  return {
    'rope.scaling.type': text('yarn'),
    'rope.scaling.factor': f32(factor),
    'rope.scaling.original_context_length': u32(originalMaxPositions),
    'rope.scaling.yarn_log_multiplier': f32(0.1 * mscaleAllDim),
  };
}

/** kv_b_proj [heads][nope + v][latent] as attn_k_b [heads][latent][nope] and attn_v_b [heads][v][latent]. */
function splitKvB(config: MlaConfig, name: string, { data }: ReferenceTensor): GgufTensor[] {
  const { heads: numHeads, kvLoraRank, qkNopeHeadDim: nope, vHeadDim } = config;
  const k = new Float32Array(numHeads * kvLoraRank * nope);
  const v = new Float32Array(numHeads * vHeadDim * kvLoraRank);
  for (let head = 0; head < numHeads; head++) {
    const at = head * (nope + vHeadDim) * kvLoraRank;
    for (let row = 0; row < nope; row++) {
      for (let r = 0; r < kvLoraRank; r++) k[(head * kvLoraRank + r) * nope + row] = data[at + row * kvLoraRank + r]!;
    }
    v.set(data.subarray(at + nope * kvLoraRank, at + (nope + vHeadDim) * kvLoraRank), head * vHeadDim * kvLoraRank);
  }
  const block = name.replace(/^model\.layers\.(\d+)\..*/, 'blk.$1.');
  return [
    { name: `${block}attn_k_b.weight`, shape: [numHeads, kvLoraRank, nope], data: k },
    { name: `${block}attn_v_b.weight`, shape: [numHeads, vHeadDim, kvLoraRank], data: v },
  ];
}

/** mlp.experts.E.* of each layer as one tensor [experts][rows][columns]. */
export function stackExperts(config: ModelConfig, weights: WeightMap): GgufTensor[] {
  const tensors: GgufTensor[] = [];
  const moe = expertsOf(config);
  for (let layer = 0; layer < config.layers.length; layer++) {
    for (const part of ['gate', 'up', 'down']) {
      const all = Array.from({ length: moe?.numExperts ?? 0 }, (_, expert) =>
        weights.get(`model.layers.${layer}.mlp.experts.${expert}.${part}_proj.weight`),
      ).filter((tensor) => tensor !== undefined);
      if (all.length === 0) continue;
      const size = all[0]!.data.length;
      const data = new Float32Array(all.length * size);
      all.forEach((tensor, expert) => data.set(tensor.data, expert * size));
      tensors.push({ name: `blk.${layer}.ffn_${part}_exps.weight`, shape: [all.length, ...all[0]!.shape], data });
    }
  }
  return tensors;
}

/** Where a checkpoint's rotary rows are in halves (rope_interleave false), puts them in neighbouring pairs. */
function pairRotaryRows(config: MlaConfig, name: string, { shape, data }: ReferenceTensor): Float32Array {
  const { qkNopeHeadDim: nope, qkRopeHeadDim: rope, kvLoraRank, rope: rotary } = config;
  const isQuery = /\.q_(b_)?proj\./.test(name);
  if (rotary.interleaved || (!isQuery && !name.includes('.kv_a_proj_with_mqa.'))) return data;
  const [rows, columns] = [shape[0]!, shape[1]!];
  const [fixed, width] = isQuery ? [nope, nope + rope] : [kvLoraRank, kvLoraRank + rope];
  const out = new Float32Array(data.length);
  for (let row = 0; row < rows; row++) {
    const i = (row % width) - fixed;
    const to = i < 0 ? row : row - i + (i % (rope / 2)) * 2 + Math.floor(i / (rope / 2));
    out.set(data.subarray(row * columns, (row + 1) * columns), to * columns);
  }
  return out;
}
