import { expertsOf, type GqaConfig, type ModelConfig } from '../../config/model_config.js';
import type { ReferenceTensor, WeightMap } from '../reference/reference.js';
import { stackExperts } from './deepseek.js';
import { f32, type GgufTensor, type GgufValue, u32 } from './file.js';
import type { GgufParts } from './model.js';

/** Families whose tensors or keys aren't Llama's, as convert_hf_to_gguf.py writes them; undefined for the others. */
export function familyParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts | undefined {
  switch (config.architecture) {
    case 'gemma2':
    case 'gemma3_text':
      return gemmaParts(config, attention, weights);
    case 'phi3':
      return phi3Parts(attention, weights);
    case 'qwen3_moe':
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

/** Norms have 1 added; rows stay as they are. */
function gemmaParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const windows = config.layers.map((layer) => (layer.attention as GqaConfig).window);
  const sliding = config.layers[windows.findIndex((window) => window !== undefined)]!.attention as GqaConfig;
  const norms: [from: RegExp, to: string][] = [
    [/post_attention_layernorm\./, 'post_attention_norm.'],
    [/pre_feedforward_layernorm\./, 'ffn_norm.'],
    [/post_feedforward_layernorm\./, 'post_ffw_norm.'],
  ];
  const gemma2 = config.architecture === 'gemma2';
  return {
    arch: gemma2 ? 'gemma2' : 'gemma3',
    metadata: {
      ...heads(attention),
      'attention.sliding_window': u32(sliding.window!),
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
    tensors: asTheyAre(weights).map((tensor) =>
      tensor.name.includes('norm') ? { ...tensor, data: tensor.data.map((w) => w + 1) } : tensor,
    ),
    rename: (name) => norms.reduce((text, [from, to]) => text.replace(from, to), name),
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

function qwen3MoeParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const { numExperts, expertsPerToken, width } = expertsOf(config)!;
  return {
    arch: 'qwen3moe',
    metadata: {
      ...heads(attention),
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

/** Granite 4's MLP under Llama's names, gate and up apart. */
export function sharedMlpApart(weights: WeightMap): WeightMap {
  return new Map(
    [...weights].flatMap(([name, { shape, data }]): [string, ReferenceTensor][] => {
      const at = name.replace('shared_mlp.', 'mlp.').replace('output_linear', 'down_proj');
      if (!at.includes('input_linear')) return [[at, { shape, data }]];
      const [rows, columns] = [shape[0]! / 2, shape[1]!];
      return ['gate_proj', 'up_proj'].map((part, half) => [
        at.replace('input_linear', part),
        { shape: [rows, columns], data: data.slice(half * rows * columns, (half + 1) * rows * columns) },
      ]);
    }),
  );
}
