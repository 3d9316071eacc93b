import type { GqaConfig, ModelConfig } from '../../config/model_config.js';
import type { WeightMap } from '../reference/reference.js';
import { f32, type GgufTensor, type GgufValue, u32 } from './file.js';
import type { GgufParts } from './model.js';

/** llama.cpp's names, by what a name of the checkpoint's ends with, of a layer or of the whole. */
const BERT: readonly (readonly [from: RegExp, to: string])[] = [
  [/^encoder\.layer\.(\d+)\./, 'blk.$1.'],
  [/attention\.self\.query\./, 'attn_q.'],
  [/attention\.self\.key\./, 'attn_k.'],
  [/attention\.self\.value\./, 'attn_v.'],
  [/attention\.output\.dense\./, 'attn_output.'],
  [/attention\.output\.LayerNorm\./, 'attn_output_norm.'],
  [/intermediate\.dense\./, 'ffn_up.'],
  [/^(blk\.\d+)\.output\.dense\./, '$1.ffn_down.'],
  [/^(blk\.\d+)\.output\.LayerNorm\./, '$1.layer_output_norm.'],
  [/^embeddings\.word_embeddings\./, 'token_embd.'],
  [/^embeddings\.position_embeddings\./, 'position_embd.'],
  [/^embeddings\.token_type_embeddings\./, 'token_types.'],
  [/^embeddings\.LayerNorm\./, 'token_embd_norm.'],
];
const MODERN: readonly (readonly [from: RegExp, to: string])[] = [
  [/^model\.layers\.(\d+)\./, 'blk.$1.'],
  [/attn\.Wqkv\./, 'attn_qkv.'],
  [/attn\.Wo\./, 'attn_output.'],
  [/\.mlp_norm\./, '.ffn_norm.'],
  [/mlp\.Wi\./, 'ffn_up.'],
  [/mlp\.Wo\./, 'ffn_down.'],
  [/^model\.embeddings\.tok_embeddings\./, 'token_embd.'],
  [/^model\.embeddings\.norm\./, 'token_embd_norm.'],
  [/^model\.final_norm\./, 'output_norm.'],
];

/** As convert_hf_to_gguf.py writes encoders. Rows of positions before the first are left out. */
export function encoderParts(config: ModelConfig, weights: WeightMap): GgufParts {
  const modern = config.architecture === 'modernbert';
  const names = modern ? MODERN : BERT;
  const { rows = 0, first = 0 } = config.inputs?.positions ?? {};
  const [full, sliding] = [false, true].map((slides) =>
    config.layers.map((layer) => layer.attention as GqaConfig).find(({ window }) => (window !== undefined) === slides),
  );
  const tensors = [...weights].map(([name, { shape, data }]): GgufTensor => {
    if (!name.includes('position_embeddings')) return { name, shape, data };
    return { name, shape: [rows - first, config.hiddenSize], data: data.slice(first * config.hiddenSize) };
  });
  const metadata: Record<string, GgufValue> = {
    'attention.layer_norm_epsilon': f32(config.norm.eps),
    'attention.causal': { type: 'bool', value: false },
    pooling_type: u32(1),
    ...(modern && {
      'rope.freq_base': f32(full!.rope!.theta),
      'rope.freq_base_swa': f32(sliding!.rope!.theta),
      'attention.sliding_window': u32(2 * (sliding!.window! - 1)),
      'attention.sliding_window_pattern': u32(3),
    }),
  };
  const arch = modern ? 'modern-bert' : 'bert';
  const rename = (name: string): string => names.reduce((text, [from, to]) => text.replace(from, to), name);
  return { arch, metadata, tensors, rename, types: config.inputs?.types };
}
