import { Random } from '../../base/random.js';
import { range } from '../../base/lists.js';
import { writeSafetensors } from '../../loader/testing/write_safetensors.js';
import { byteLevelTokenizer } from '../../tokenizer/testing/tiny_tokenizers.js';
import type { ModelConfig } from '../config/model_config.js';
import { parseModelConfig } from '../families/registry.js';
import { makeRandomModel } from './random_model.js';
import type { ReferenceTensor, WeightMap } from './reference/reference.js';
import type { ReferenceTower } from './reference/vision.js';

/** A small SmolVLM, or Gemma 3, of random weights. */
export interface RandomVision {
  config: ModelConfig;
  /** The text part's config.json. */
  text: Record<string, unknown>;
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /** As stored, under transformers' names; those of the text part as a Llama's by itself. */
  weights: WeightMap;
  tower: ReferenceTower;
  scale: number;
}

export interface RandomVisionOptions {
  kind?: 'idefics3' | 'gemma3';
  seed?: number;
  /** Of the text part's config.json. */
  text?: Record<string, unknown>;
  tower?: Partial<ReferenceTower>;
  scale?: number;
  imageToken?: number;
}

/** A template of SmolVLM's kind: of messages of parts. */
const TEMPLATE =
  "{{ bos_token }}{% for m in messages %}{{ m['role'] | capitalize }}{% if m['content'][0]['type'] == 'image' %}{{ ':' }}" +
  "{% else %}{{ ': ' }}{% endif %}{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}" +
  "{% elif part['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<|end|>\n{% endfor %}" +
  "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

/** Of a Gemma 3's text part. */
const GEMMA = {
  model_type: 'gemma3_text',
  hidden_act: undefined,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
  query_pre_attn_scalar: 16,
  num_hidden_layers: 3,
  sliding_window: 9,
  sliding_window_pattern: 3,
};

/** What is special in a family's texts, the placeholder first. */
const SPECIAL = {
  idefics3: [
    '<image>',
    '<fake_token_around_image>',
    '<global-img>',
    ...range(1, 4).flatMap((row) => range(1, 4).map((column) => `<row_${row}_col_${column}>`)),
  ],
  gemma3: ['<image_soft_token>', '<start_of_image>', '<end_of_image>'],
};

function addedTokens({ added_tokens: before }: Record<string, unknown>, first: number, own: string[]): unknown[] {
  const more = own.map((content, at) => {
    return {
      id: first + at,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    };
  });
  return [...(before as unknown[]), ...more];
}

/** Tiles of 32 pixels and 16 patches, of which 4 become a row. */
export function makeRandomVision({
  kind = 'idefics3',
  seed = 1,
  text = {},
  tower: changes = {},
  scale = 2,
  imageToken = 300,
}: RandomVisionOptions = {}): RandomVision {
  const tower = { hidden: 64, heads: 4, layers: 2, width: 96, image: 32, patch: 8, eps: 1e-6, ...changes };
  const { hidden, heads, layers, width, image, patch } = tower;
  const gemma = kind === 'gemma3';
  const decoder = makeRandomModel({ config: { ...(gemma && GEMMA), ...text }, seed });
  const random = new Random(seed + 1000);
  const vision = new Map<string, ReferenceTensor>();
  const add = (name: string, shape: number[], deviation: number, mean = 0): void => {
    const data = random
      .normals(
        shape.reduce((a, b) => a * b),
        deviation,
      )
      .map((value) => value + mean);
    vision.set(name, { shape, data });
  };
  const linear = (name: string, rows: number, columns: number, gain: number): void => {
    add(`${name}.weight`, [rows, columns], gain / Math.sqrt(columns));
    add(`${name}.bias`, [rows], 0.3);
  };
  const norm = (name: string): void => {
    add(`${name}.weight`, [hidden], 0.2, 1);
    add(`${name}.bias`, [hidden], 0.2);
  };
  const prefix = gemma ? 'vision_tower.vision_model' : 'model.vision_model';
  add(`${prefix}.embeddings.patch_embedding.weight`, [hidden, 3, patch, patch], 1 / Math.sqrt(3 * patch * patch));
  add(`${prefix}.embeddings.patch_embedding.bias`, [hidden], 0.3);
  add(`${prefix}.embeddings.position_embedding.weight`, [Math.floor(image / patch) ** 2, hidden], 1);
  for (let layer = 0; layer < layers; layer++) {
    const at = `${prefix}.encoder.layers.${layer}`;
    norm(`${at}.layer_norm1`);
    for (const part of ['q', 'k']) linear(`${at}.self_attn.${part}_proj`, hidden, hidden, 1.5);
    for (const part of ['v', 'out']) linear(`${at}.self_attn.${part}_proj`, hidden, hidden, 1);
    norm(`${at}.layer_norm2`);
    linear(`${at}.mlp.fc1`, width, hidden, 1.5);
    linear(`${at}.mlp.fc2`, hidden, width, 1);
  }
  norm(`${prefix}.post_layernorm`);
  const textWidth = decoder.config.hiddenSize;
  if (gemma) {
    add('multi_modal_projector.mm_input_projection_weight', [hidden, textWidth], 3 / Math.sqrt(hidden));
    add('multi_modal_projector.mm_soft_emb_norm.weight', [hidden], 0.3);
  } else
    add(
      'model.connector.modality_projection.proj.weight',
      [textWidth, hidden * scale * scale],
      1 / (Math.sqrt(hidden) * scale),
    );
  const own = JSON.parse(new TextDecoder().decode(decoder.files.get('config.json'))) as Record<string, unknown>;
  const rows = (Math.floor(image / patch) / scale) ** 2;
  const wrapper = gemma
    ? {
        model_type: 'gemma3',
        architectures: ['Gemma3ForConditionalGeneration'],
        image_token_index: imageToken,
        boi_token_index: imageToken + 1,
        mm_tokens_per_image: rows,
      }
    : {
        model_type: 'idefics3',
        architectures: ['Idefics3ForConditionalGeneration'],
        image_token_id: imageToken,
        scale_factor: scale,
        tie_word_embeddings: false,
      };
  const raw = {
    ...wrapper,
    text_config: own,
    vision_config: {
      model_type: gemma ? 'siglip_vision_model' : 'idefics3',
      hidden_size: hidden,
      intermediate_size: width,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      image_size: image,
      patch_size: patch,
      layer_norm_eps: tower.eps,
    },
  };
  const stored = [
    ...[...decoder.weights].map(
      ([name, tensor]) =>
        [gemma ? `language_model.${name}` : name.replace(/^model\./, 'model.text_model.'), tensor] as const,
    ),
    ...vision,
  ].map(([name, { shape, data }]) => ({
    name,
    dtype: 'F32' as const,
    shape: [...shape],
    data: new Uint8Array(Float32Array.from(data).buffer),
  }));
  const files = new Map(decoder.files);
  const json = (value: unknown): Uint8Array<ArrayBuffer> => new TextEncoder().encode(JSON.stringify(value));
  // Tiles of the encoder's size, at most three by three.
  files.set(
    'preprocessor_config.json',
    json(
      gemma
        ? { size: { height: image, width: image }, resample: 2, do_pan_and_scan: null }
        : { size: { longest_edge: 3 * image }, max_image_size: { longest_edge: image }, resample: 1 },
    ),
  );
  const { json: tokenizer, config: words } = byteLevelTokenizer(imageToken);
  files.set('tokenizer.json', json({ ...tokenizer, added_tokens: addedTokens(tokenizer, imageToken, SPECIAL[kind]) }));
  files.set(
    'tokenizer_config.json',
    json({ ...words, chat_template: gemma ? TEMPLATE.replace('<image>', '<start_of_image>') : TEMPLATE }),
  );
  files.set('config.json', new TextEncoder().encode(JSON.stringify(raw)));
  files.set('model.safetensors', writeSafetensors(stored, { format: 'pt' }));
  return {
    config: parseModelConfig(raw),
    text: own,
    files,
    weights: new Map([...decoder.weights, ...vision]),
    tower,
    scale,
  };
}
