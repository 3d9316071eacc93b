import {
  type ConvConfig,
  type DeltaConfig,
  expertsOf,
  type GqaConfig,
  type ModelConfig,
} from '../../config/model_config.js';
import type { RopeConfig } from '../../config/rope_config.js';
import type { WeightMap } from '../reference/reference.js';
import { encoderParts } from './encoders.js';
import { stackExperts } from './deepseek.js';
import { pairedRows } from './granite.js';
import { f32, type GgufTensor, type GgufValue, u32 } from './file.js';
import type { GgufParts } from './model.js';

/** Families whose tensors or keys aren't Llama's, as convert_hf_to_gguf.py writes them; undefined for the others. */
export function familyParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts | undefined {
  switch (config.architecture) {
    case 'bert':
    case 'roberta':
    case 'xlm-roberta':
    case 'modernbert':
      return encoderParts(config, weights);
    case 'gemma2':
    case 'gemma3_text':
      return gemmaParts(config, attention, weights);
    case 'gemma':
      return plainGemmaParts(attention, weights);
    case 'mixtral':
      return mixtralParts(config, attention, weights);
    case 'gemma4_text':
    case 'gemma4_unified_text':
      return gemma4Parts(config, weights);
    case 'phi3':
      return phi3Parts(attention, weights);
    case 'olmo2':
    case 'olmo3':
      return olmoParts(config, attention, weights);
    case 'starcoder2':
      return starcoder2Parts(config, attention, weights);
    case 'glm4':
      return glm4Parts(attention, weights);
    case 'cohere2':
      return cohere2Parts(config, attention, weights);
    case 'lfm2':
    case 'lfm2_moe':
      return lfm2Parts(config, attention, weights);
    case 'qwen3_5_text':
    case 'qwen3_5_moe_text':
    case 'qwen3_next':
      return qwen35Parts(config, attention, weights);
    case 'gpt_oss':
      return gptOssParts(config, attention, weights);
    case 'qwen3_moe':
    case 'qwen3_vl_moe_text':
      return qwen3MoeParts(config, attention, weights);
    default:
      return undefined;
  }
}

const heads = ({ kvHeads, headDim }: GqaConfig): Record<string, GgufValue> => ({
  'attention.head_count_kv': u32(kvHeads),
  'attention.key_length': u32(headDim),
  'attention.value_length': u32(headDim),
});

const asTheyAre = (weights: WeightMap): GgufTensor[] =>
  [...weights].map(([name, { shape, data }]) => ({ name, shape, data }));

/** Norms have 1 added. */
const plusOne = (weights: WeightMap): GgufTensor[] =>
  asTheyAre(weights).map((tensor) =>
    tensor.name.includes('norm') ? { ...tensor, data: tensor.data.map((w) => w + 1) } : tensor,
  );

/** Rows stay as they are. */
function gemmaParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const windows = config.layers.map((layer) => (layer.attention as GqaConfig).window);
  const sliding = config.layers[windows.findIndex((window) => window !== undefined)]!.attention as GqaConfig;
  const norms: [from: RegExp, to: string][] = [
    [/post_attention_layernorm\./, 'post_attention_norm.'],
    [/pre_feedforward_layernorm\./, 'ffn_norm.'],
    [/post_feedforward_layernorm\./, 'post_ffw_norm.'],
  ];
  const gemma2 = config.architecture === 'gemma2';
  const { bothWays } = attention;
  return {
    arch: gemma2 ? 'gemma2' : bothWays ? 'gemma-embedding' : 'gemma3',
    metadata: {
      ...heads(attention),
      'attention.sliding_window': u32(bothWays ? 2 * (sliding.window! - 1) : sliding.window!),
      ...(bothWays && { pooling_type: u32(1) }),
      ...(gemma2
        ? {
            attn_logit_softcapping: f32(attention.softcap!),
            final_logit_softcapping: f32(config.logitCap!),
          }
        : {
            'attention.sliding_window_pattern': u32(windows.indexOf(undefined) + 1),
            'rope.freq_base_swa': f32(sliding.rope!.theta),
          }),
    },
    tensors: plusOne(weights),
    rename: (name) => norms.reduce((text, [from, to]) => text.replace(from, to), name),
  };
}

const plainGemmaParts = (attention: GqaConfig, weights: WeightMap): GgufParts => ({
  arch: 'gemma',
  metadata: heads(attention),
  tensors: plusOne(weights),
});

/** Of llama.cpp it is Llama, whose rows of q and k lie in pairs. */
function mixtralParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const { numExperts, expertsPerToken, width } = expertsOf(config)!;
  const parts: Readonly<Record<string, string>> = { w1: 'gate', w3: 'up', w2: 'down' };
  const usual = new Map(
    [...weights].map(([name, own]) => [
      name.replace('.block_sparse_moe.', '.mlp.').replace(/\.(w[123])\./, (_, part: string) => `.${parts[part]}_proj.`),
      own,
    ]),
  );
  return {
    arch: 'llama',
    metadata: {
      ...heads(attention),
      'rope.dimension_count': u32(attention.headDim),
      feed_forward_length: u32(width),
      expert_count: u32(numExperts),
      expert_used_count: u32(expertsPerToken),
    },
    tensors: [
      ...asTheyAre(usual)
        .filter(({ name }) => !/\.experts\.\d+\./.test(name))
        .map((tensor) => ({ ...tensor, data: pairedRows(tensor.name, tensor.data, attention) })),
      ...stackExperts(config, usual),
    ],
  };
}

/** Heads are those of layers without a window; pairs that stand still have a divisor. */
function gemma4Parts(config: ModelConfig, weights: WeightMap): GgufParts {
  const attentions = config.layers.map((layer) => layer.attention as GqaConfig);
  const slides = attentions.map(({ window }) => window !== undefined);
  const sliding = attentions[slides.indexOf(true)]!;
  const full = attentions[slides.indexOf(false)]!;
  const scaling = full.rope!.scaling;
  const experts = expertsOf(config);
  const divisors = scaling?.type === 'longrope' ? scaling.longFactor : Array<number>(full.headDim / 2).fill(1);
  return {
    arch: 'gemma4',
    metadata: {
      'attention.head_count_kv': { type: 'i32[]', value: attentions.map(({ kvHeads }) => kvHeads) },
      'attention.key_length': u32(full.headDim),
      'attention.value_length': u32(full.headDim),
      'attention.key_length_swa': u32(sliding.headDim),
      'attention.value_length_swa': u32(sliding.headDim),
      'rope.dimension_count': u32(full.headDim),
      'rope.dimension_count_swa': u32(sliding.headDim),
      'rope.freq_base_swa': f32(sliding.rope!.theta),
      'attention.sliding_window': u32(sliding.window!),
      'attention.sliding_window_pattern': { type: 'bool[]', value: slides },
      'attention.shared_kv_layers': u32(attentions.filter(({ sharesKv }) => sharesKv !== undefined).length),
      embedding_length_per_layer_input: u32(config.layers[0]!.perLayer?.width ?? 0),
      feed_forward_length: {
        type: 'i32[]',
        value: config.layers.map(({ mlp }) => (mlp.kind === 'experts' ? mlp.beside! : mlp).width),
      },
      ...(experts && {
        expert_count: u32(experts.numExperts),
        expert_used_count: u32(experts.expertsPerToken),
        expert_feed_forward_length: u32(experts.width),
      }),
      ...(config.logitCap !== undefined && { final_logit_softcapping: f32(config.logitCap) }),
    },
    tensors: [
      ...asTheyAre(weights).filter(({ name }) => !/\.experts\.\d+\./.test(name)),
      ...stackExperts(
        config,
        new Map([...weights].map(([name, own]) => [name.replace('.experts.', '.mlp.experts.'), own])),
      ),
      { name: 'rope_freqs.weight', shape: [divisors.length], data: Float32Array.from(divisors) },
    ],
    rename: renamed([
      [/post_attention_layernorm\./, 'post_attention_norm.'],
      [/pre_feedforward_layernorm\./, 'ffn_norm.'],
      [/post_feedforward_layernorm\./, 'post_ffw_norm.'],
      [/post_feedforward_layernorm_([12])\./, 'post_ffw_norm_$1.'],
      [/pre_feedforward_layernorm_2\./, 'pre_ffw_norm_2.'],
      [/router\.proj\./, 'ffn_gate_inp.'],
      [/router\.scale$/, 'ffn_gate_inp.scale'],
      [/router\.per_expert_scale$/, 'ffn_down_exps.scale'],
      [/layer_scalar$/, 'layer_output_scale.weight'],
      [/^model\.embed_tokens_per_layer\./, 'per_layer_token_embd.'],
      [/^model\.per_layer_model_projection\./, 'per_layer_model_proj.'],
      [/^model\.per_layer_projection_norm\./, 'per_layer_proj_norm.'],
      [/per_layer_input_gate\./, 'inp_gate.'],
      [/post_per_layer_input_norm\./, 'post_norm.'],
      [/per_layer_projection\./, 'proj.'],
    ]),
  };
}

const renamed =
  (names: readonly (readonly [from: RegExp, to: string])[]) =>
  (name: string): string => {
    const [from, to] = names.find(([one]) => one.test(name)) ?? [];
    return from ? name.replace(from, to!) : name;
  };

/** Both by one name: OLMo 3 has windows, by a list that says which layers, and beside YaRN's factor what follows from it. */
function olmoParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const windows = config.layers.map((layer) => (layer.attention as GqaConfig).window);
  const full = config.layers[windows.indexOf(undefined)]?.attention as GqaConfig | undefined;
  const scaling = full?.rope?.scaling;
  const window = windows.find((one) => one !== undefined);
  return {
    arch: 'olmo2',
    metadata: {
      ...heads(attention),
      ...(window !== undefined && {
        'attention.sliding_window': u32(window),
        'attention.sliding_window_pattern': { type: 'bool[]', value: windows.map((one) => one !== undefined) },
      }),
      ...(scaling?.type === 'yarn' && {
        'rope.scaling.type': { type: 'string' as const, value: 'yarn' },
        'rope.scaling.factor': f32(scaling.factor),
        'rope.scaling.original_context_length': u32(scaling.originalMaxPositions),
        'rope.scaling.yarn_attn_factor': f32(scaling.attentionFactor),
        'rope.scaling.yarn_beta_fast': f32(scaling.betaFast),
        'rope.scaling.yarn_beta_slow': f32(scaling.betaSlow),
      }),
    },
    tensors: asTheyAre(weights),
    rename: renamed([
      [/post_attention_layernorm\./, 'post_attention_norm.'],
      [/post_feedforward_layernorm\./, 'post_ffw_norm.'],
    ]),
  };
}

/** Of the window nothing is written. */
const starcoder2Parts = (config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts => ({
  arch: 'starcoder2',
  metadata: { ...heads(attention), 'attention.layer_norm_epsilon': f32(config.norm.eps) },
  tensors: asTheyAre(weights),
  rename: renamed([
    [/mlp\.c_fc/, 'ffn_up'],
    [/mlp\.c_proj/, 'ffn_down'],
  ]),
});

const glm4Parts = (attention: GqaConfig, weights: WeightMap): GgufParts => ({
  arch: 'glm4',
  metadata: { ...heads(attention), 'rope.dimension_count': u32(attention.rope!.dims) },
  tensors: asTheyAre(weights),
  rename: renamed([
    [/post_self_attn_layernorm\./, 'post_attention_norm.'],
    [/post_attention_layernorm\./, 'ffn_norm.'],
    [/post_mlp_layernorm\./, 'post_ffw_norm.'],
    [/mlp\.gate_up_proj/, 'ffn_up'],
  ]),
});

function cohere2Parts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const windows = config.layers.map((layer) => (layer.attention as GqaConfig).window);
  return {
    arch: 'cohere2',
    metadata: {
      ...heads(attention),
      'attention.layer_norm_epsilon': f32(config.norm.eps),
      'attention.sliding_window': u32(windows.find((one) => one !== undefined)!),
      'attention.sliding_window_pattern': u32(windows.indexOf(undefined) + 1),
      'rope.dimension_count': u32(attention.headDim),
      'rope.freq_base': f32(config.layers.flatMap((layer) => (layer.attention as GqaConfig).rope ?? [])[0]!.theta),
      'rope.scaling.type': { type: 'string', value: 'none' },
      logit_scale: f32(config.logitScale),
    },
    tensors: asTheyAre(weights),
  };
}

/** LongRoPE's lists are tensors; nothing says that they are meant. */
function phi3Parts(attention: GqaConfig, weights: WeightMap): GgufParts {
  const { dims, scaling } = attention.rope!;
  const tensors = asTheyAre(weights);
  const metadata = { 'attention.head_count_kv': u32(attention.kvHeads), 'rope.dimension_count': u32(dims) };
  if (scaling?.type !== 'longrope') return { arch: 'phi3', metadata, tensors };
  for (const length of ['long', 'short'] as const) {
    const data = Float32Array.from(scaling[`${length}Factor`]);
    tensors.push({ name: `rope_factors_${length}.weight`, shape: [data.length], data });
  }
  return {
    arch: 'phi3',
    metadata: {
      ...metadata,
      'rope.scaling.original_context_length': u32(scaling.originalMaxPositions),
      'rope.scaling.attn_factor': f32(scaling.attentionFactor),
      ...(attention.window !== undefined && { 'attention.sliding_window': u32(attention.window) }),
    },
    tensors,
  };
}

/** A kv head count for each layer, 0 where it has a convolution; the final norm's name is an old one. */
function lfm2Parts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const experts = expertsOf(config);
  const conv = config.layers.map((layer) => layer.attention).find(({ kind }) => kind === 'conv') as ConvConfig;
  const names: [from: RegExp, to: string][] = [
    [/operator_norm/, 'attn_norm'],
    [/self_attn\.out_proj/, 'attn_output'],
    [/self_attn\.([qk])_layernorm/, 'attn_$1_norm'],
    [/\.conv\.(in_proj|out_proj|conv)\./, '.shortconv.$1.'],
    [/model\.embedding_norm/, 'token_embd_norm'],
    [/feed_forward\.expert_bias/, 'exp_probs_b.bias'],
    [/feed_forward\.gate\./, 'ffn_gate_inp.'],
    [/feed_forward\.w1/, 'ffn_gate'],
    [/feed_forward\.w3/, 'ffn_up'],
    [/feed_forward\.w2/, 'ffn_down'],
  ];
  const usual = [
    [/\.w1\./, '.gate_proj.'],
    [/\.w3\./, '.up_proj.'],
    [/\.w2\./, '.down_proj.'],
    [/feed_forward/, 'mlp'],
  ] as const;
  const stacks = experts
    ? stackExperts(
        config,
        new Map(
          [...weights].map(([name, tensor]) => [
            usual.reduce((text, [own, to]) => text.replace(own, to), name),
            tensor,
          ]),
        ),
      )
    : [];
  return {
    arch: experts ? 'lfm2moe' : 'lfm2',
    metadata: {
      ...heads(attention),
      'attention.head_count_kv': {
        type: 'i32[]',
        value: config.layers.map((layer) => (layer.attention.kind === 'conv' ? 0 : attention.kvHeads)),
      },
      'shortconv.l_cache': u32(conv.taps),
      ...(experts && {
        leading_dense_block_count: u32(config.layers.findIndex(({ mlp }) => mlp.kind === 'experts')),
        expert_count: u32(experts.numExperts),
        expert_used_count: u32(experts.expertsPerToken),
        expert_feed_forward_length: u32(experts.width),
        expert_gating_func: u32(2),
      }),
    },
    tensors: [
      ...asTheyAre(weights)
        .filter(({ name }) => !/\.experts\.\d+\./.test(name))
        .map((tensor) => squeezed(tensor)),
      ...stacks,
    ],
    rename: (name) => names.reduce((text, [from, to]) => text.replace(from, to), name),
  };
}

/** Without the axis of a convolution's inputs, of which each channel has one. */
const squeezed = (tensor: GgufTensor): GgufTensor =>
  tensor.shape.length === 3 ? { ...tensor, shape: [tensor.shape[0]!, tensor.shape[2]!] } : tensor;

/**
 * Norms but linear attention's own have 1 added; A is negative; value heads lie by their place in a key head, then by key head, but in
 * Qwen3-Next, whose q, k, v and z come apart.
 */
function qwen35Parts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const delta = config.layers.map((layer) => layer.attention).find(({ kind }) => kind === 'delta') as DeltaConfig;
  const { keyHeads, valueHeads, keyDim, valueDim } = delta;
  const next = config.architecture === 'qwen3_next';
  const experts = expertsOf(config);
  const ratio = valueHeads / keyHeads;
  /** New head j * keyHeads + i is old head i * ratio + j; rows of `size` numbers a head, after `before` rows. */
  const tiled = (data: Float32Array, size: number, before = 0): Float32Array => {
    const out = data.slice();
    for (let i = 0; i < (next ? 0 : keyHeads); i++) {
      for (let j = 0; j < ratio; j++) {
        const [to, from] = [before + (j * keyHeads + i) * size, before + (i * ratio + j) * size];
        out.set(data.subarray(from, from + size), to);
      }
    }
    return out;
  };
  const keys = 2 * keyHeads * keyDim;
  const { hiddenSize } = config;
  const put = (tensor: GgufTensor): GgufTensor => {
    const { name, data } = tensor;
    const stored = squeezed(tensor);
    if (name.endsWith('shared_expert_gate.weight')) return { ...stored, shape: [hiddenSize] };
    if (name.endsWith('in_proj_qkv.weight'))
      return { ...stored, data: tiled(data, valueDim * hiddenSize, keys * hiddenSize) };
    if (name.endsWith('conv1d.weight'))
      return { ...stored, data: tiled(data, valueDim * delta.taps, keys * delta.taps) };
    if (name.endsWith('in_proj_z.weight')) return { ...stored, data: tiled(data, valueDim * hiddenSize) };
    if (/in_proj_[ab]\.weight$/.test(name)) return { ...stored, data: tiled(data, hiddenSize) };
    if (name.endsWith('A_log')) return { ...stored, data: tiled(data, 1).map((log) => -Math.exp(log)) };
    if (name.endsWith('dt_bias')) return { ...stored, data: tiled(data, 1) };
    if (name.endsWith('linear_attn.out_proj.weight')) {
      const width = valueHeads * valueDim;
      const rows = Array.from({ length: hiddenSize }, (_, row) =>
        tiled(data.subarray(row * width, (row + 1) * width), valueDim),
      );
      return { ...stored, data: Float32Array.from(rows.flatMap((row) => [...row])) };
    }
    if (name.includes('norm') && !name.includes('linear_attn')) return { ...stored, data: data.map((w) => w + 1) };
    return stored;
  };
  /** All heads' q, then k, then v; and z. */
  const apart = (tensor: GgufTensor): GgufTensor[] => {
    if (!tensor.name.endsWith('in_proj_qkvz.weight')) return [tensor];
    const widths = [keyDim, keyDim, ratio * valueDim, ratio * valueDim];
    const each = widths.reduce((sum, width) => sum + width);
    const [q, k, v, z] = widths.map((width, kind) => {
      const first = widths.slice(0, kind).reduce((sum, before) => sum + before, 0);
      const rows = Array.from(
        { length: keyHeads * width },
        (_, i) => Math.floor(i / width) * each + first + (i % width),
      );
      return rows.flatMap((row) => [...tensor.data.subarray(row * hiddenSize, (row + 1) * hiddenSize)]);
    });
    return [['in_proj_qkv', [...q!, ...k!, ...v!]] as const, ['in_proj_z', z!] as const].map(([name, data]) => ({
      name: tensor.name.replace('in_proj_qkvz', name),
      shape: [data.length / hiddenSize, hiddenSize],
      data: Float32Array.from(data),
    }));
  };
  const names: [from: RegExp, to: string][] = [
    [/linear_attn\.in_proj_ba/, 'ssm_ba'],
    [/mlp\.shared_expert_gate/, 'ffn_gate_inp_shexp'],
    [/mlp\.shared_expert\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
    [/linear_attn\.in_proj_qkv/, 'attn_qkv'],
    [/linear_attn\.in_proj_z/, 'attn_gate'],
    [/linear_attn\.in_proj_b/, 'ssm_beta'],
    [/linear_attn\.in_proj_a/, 'ssm_alpha'],
    [/linear_attn\.conv1d/, 'ssm_conv1d'],
    [/linear_attn\.A_log/, 'ssm_a'],
    [/linear_attn\.dt_bias/, 'ssm_dt.bias'],
    [/linear_attn\.norm/, 'ssm_norm'],
    [/linear_attn\.out_proj/, 'ssm_out'],
    [/post_attention_layernorm/, 'post_attention_norm'],
  ];
  return {
    arch: next ? 'qwen3next' : experts ? 'qwen35moe' : 'qwen35',
    metadata: {
      ...heads(attention),
      'ssm.conv_kernel': u32(delta.taps),
      'ssm.state_size': u32(keyDim),
      'ssm.group_count': u32(keyHeads),
      'ssm.time_step_rank': u32(valueHeads),
      'ssm.inner_size': u32(valueHeads * valueDim),
      full_attention_interval: u32(config.layers.findIndex((layer) => layer.attention.kind === 'gqa') + 1),
      'rope.dimension_count': u32(attention.rope!.dims),
      'rope.dimension_sections': sectionsValue(attention.rope!),
      ...(experts && {
        expert_count: u32(experts.numExperts),
        expert_used_count: u32(experts.expertsPerToken),
        expert_feed_forward_length: u32(experts.width),
        expert_shared_feed_forward_length: u32(experts.sharedWidth),
      }),
    },
    tensors: [
      ...asTheyAre(weights)
        .filter(({ name }) => !/\.experts\.\d+\./.test(name))
        .flatMap(apart)
        .map(put),
      ...(experts ? stackExperts(config, weights) : []),
    ],
    rename: (name) => names.reduce((text, [from, to]) => text.replace(from, to), name),
  };
}

/** Pairs of each axis: what is left of the picture's, then lines and columns, where they are as many; otherwise every third. */
export function sectionsValue({ dims, sections }: RopeConfig): GgufValue {
  const { lines = 0, columns = 0 } = sections ?? {};
  const rest = dims / 2 - lines - columns;
  const given = rest > 0 ? [rest, lines, columns] : [0, 1, 2].map((axis) => Math.ceil((dims / 2 - axis) / 3));
  return { type: 'i32[]', value: [...given, 0] };
}

function qwen3MoeParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const { numExperts, expertsPerToken, width } = expertsOf(config)!;
  const { rope } = attention;
  return {
    arch: rope?.sections ? 'qwen3vlmoe' : 'qwen3moe',
    metadata: {
      ...heads(attention),
      ...(rope?.sections && { 'rope.dimension_sections': sectionsValue(rope) }),
      expert_count: u32(numExperts),
      expert_used_count: u32(expertsPerToken),
      expert_feed_forward_length: u32(width),
    },
    tensors: [
      ...asTheyAre(weights).filter(({ name }) => !/\.experts\.\d+\./.test(name)),
      ...stackExperts(config, weights),
    ],
  };
}

/** Where attention has a window, and where YaRN's bounds aren't rounded, nothing says. */
function gptOssParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const { numExperts, expertsPerToken, width } = expertsOf(config)!;
  const window = config.layers.map((layer) => (layer.attention as GqaConfig).window).find((one) => one !== undefined);
  const scaling = attention.rope!.scaling;
  const stacks = new Map<string, { shape: number[]; data: number[] }>();
  for (const [name, { shape, data }] of weights) {
    const [, layer, part] = /layers\.(\d+)\.mlp\.experts\.\d+\.(\w+)_proj\.bias$/.exec(name) ?? [];
    if (layer === undefined) continue;
    const stack = stacks.get(`blk.${layer}.ffn_${part}_exps.bias`) ?? { shape: [0, shape[0]!], data: [] };
    stacks.set(`blk.${layer}.ffn_${part}_exps.bias`, {
      shape: [stack.shape[0]! + 1, shape[0]!],
      data: [...stack.data, ...data],
    });
  }
  return {
    arch: 'gpt-oss',
    metadata: {
      ...heads(attention),
      expert_count: u32(numExperts),
      expert_used_count: u32(expertsPerToken),
      expert_feed_forward_length: u32(width),
      ...(window !== undefined && { 'attention.sliding_window': u32(window) }),
      ...(scaling?.type === 'yarn' && {
        'rope.scaling.type': { type: 'string' as const, value: 'yarn' },
        'rope.scaling.factor': f32(scaling.factor),
        'rope.scaling.original_context_length': u32(scaling.originalMaxPositions),
        'rope.scaling.yarn_beta_fast': f32(scaling.betaFast),
        'rope.scaling.yarn_beta_slow': f32(scaling.betaSlow),
      }),
    },
    tensors: [
      ...asTheyAre(weights).filter(({ name }) => !/\.experts\.\d+\./.test(name)),
      ...stackExperts(config, weights),
      ...[...stacks].map(([name, { shape, data }]) => ({ name, shape, data: Float32Array.from(data) })),
    ],
    rename: (name) =>
      name
        .replace(/self_attn\.sinks$/, 'attn_sinks.weight')
        .replace('mlp.router.', 'ffn_gate_inp.')
        .replace('post_attention_layernorm', 'post_attention_norm'),
  };
}
