import { beforeAll, expect, test } from 'vitest';
import { loadFamilies, parseModelConfig } from '../families/registry.js';
import { PUBLISHED } from '../testing/published_configs.js';
import { embedderSpecs } from '../vision/embedder_specs.js';
import { encoderSpecs, placesTable } from '../vision/encoder_specs.js';
import type { SamplesConfig } from './sound_config.js';
import { weightBytes } from '../weights/model_map.js';
import { expectedTensors, specsIn } from '../weights/weight_map.js';
import type { GqaConfig } from './model_config.js';
import { imageRows, patchesOf, patchOrder, windowsOf } from './vision_config.js';

beforeAll(loadFamilies);

const text = {
  model_type: 'llama',
  architectures: ['VLlama3ForCausalLM'],
  head_dim: 64,
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-5,
  rope_interleaved: false,
  pixel_shuffle_factor: 4,
  use_resampler: false,
  qk_layer_norms: false,
};
/** What the keys that matter here say, as published. */
const models = {
  'SmolVLM 256M': {
    config: {
      model_type: 'idefics3',
      architectures: ['Idefics3ForConditionalGeneration'],
      image_token_id: 49190,
      scale_factor: 4,
      tie_word_embeddings: false,
      text_config: {
        ...text,
        hidden_size: 576,
        intermediate_size: 1536,
        num_hidden_layers: 30,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        rope_theta: 100000,
        vocab_size: 49280,
      },
      vision_config: {
        model_type: 'idefics3',
        hidden_size: 768,
        image_size: 512,
        max_image_size: { longest_edge: 512 },
        num_attention_heads: 12,
        patch_size: 16,
        size: { longest_edge: 2048 },
        use_base_siglip: false,
      },
    },
    rows: 64,
    patches: 1024,
    encoder: 86,
    millions: 163,
  },
  'SmolVLM 2.2B': {
    config: {
      model_type: 'smolvlm',
      architectures: ['SmolVLMForConditionalGeneration'],
      image_token_id: 49153,
      scale_factor: 3,
      text_config: {
        ...text,
        hidden_size: 2048,
        intermediate_size: 8192,
        num_hidden_layers: 24,
        num_attention_heads: 32,
        num_key_value_heads: 32,
        vocab_size: 49155,
      },
      vision_config: {
        image_size: [384, 384],
        intermediate_size: 4304,
        num_hidden_layers: 27,
        patch_size: 14,
      },
    },
    rows: 81,
    patches: 729,
    encoder: 413,
    millions: 1812,
  },
  'Gemma 3 4B': {
    config: {
      model_type: 'gemma3',
      architectures: ['Gemma3ForConditionalGeneration'],
      boi_token_index: 255999,
      eoi_token_index: 256000,
      eos_token_id: [1, 106],
      image_token_id: 262144,
      image_token_index: 262144,
      mm_tokens_per_image: 256,
      text_config: {
        model_type: 'gemma3_text',
        hidden_size: 2560,
        intermediate_size: 10240,
        num_hidden_layers: 34,
        rope_scaling: { factor: 8, rope_type: 'linear' },
        sliding_window: 1024,
      },
      vision_config: {
        model_type: 'siglip_vision_model',
        hidden_size: 1152,
        image_size: 896,
        intermediate_size: 4304,
        num_attention_heads: 16,
        num_hidden_layers: 27,
        patch_size: 14,
        vision_use_head: false,
      },
    },
    rows: 256,
    patches: 4096,
    encoder: 417,
    millions: 3880,
  },
  // An older file: its type, and the placeholder's key.
  'LFM2-VL 450M': {
    config: {
      architectures: ['Lfm2VlForConditionalGeneration'],
      model_type: 'lfm2-vl',
      image_token_index: 396,
      image_token_id: 396,
      downsample_factor: 2,
      projector_hidden_size: 2560,
      projector_hidden_act: 'gelu',
      projector_bias: true,
      vision_feature_layer: -1,
      text_config: PUBLISHED['lfm2-350m']!.config,
      vision_config: {
        model_type: 'siglip2_vision_model',
        attention_dropout: 0,
        hidden_act: 'gelu_pytorch_tanh',
        hidden_size: 768,
        intermediate_size: 3072,
        layer_norm_eps: 1e-6,
        num_attention_heads: 12,
        num_channels: 3,
        num_hidden_layers: 12,
        num_patches: 256,
        patch_size: 16,
        vision_use_head: false,
      },
    },
    rows: 256,
    patches: 1024,
    encoder: 86,
    millions: 354,
  },
  // As transformers writes both; a picture has 280 rows at most.
  'Gemma 4 E2B': {
    config: {
      ...PUBLISHED['gemma-4-e2b-it']!.config,
      image_token_id: 258880,
      vision_soft_tokens_per_image: 280,
      vision_config: {
        model_type: 'gemma4_vision',
        attention_bias: false,
        global_head_dim: 64,
        head_dim: 64,
        hidden_activation: 'gelu_pytorch_tanh',
        hidden_size: 768,
        intermediate_size: 3072,
        max_position_embeddings: 131072,
        num_attention_heads: 12,
        num_hidden_layers: 16,
        num_key_value_heads: 12,
        patch_size: 16,
        pooling_kernel_size: 3,
        position_embedding_size: 10240,
        rms_norm_eps: 1e-6,
        rope_parameters: { rope_theta: 100, rope_type: 'default' },
        standardize: false,
        use_clipped_linears: true,
      },
    },
    rows: 289,
    patches: 2601,
    encoder: 152,
    millions: 2280,
  },
  'Qwen2.5-VL 3B': {
    // The text part's keys stand beside the encoder's.
    config: {
      architectures: ['Qwen2_5_VLForConditionalGeneration'],
      model_type: 'qwen2_5_vl',
      image_token_id: 151655,
      bos_token_id: 151643,
      eos_token_id: 151645,
      hidden_act: 'silu',
      hidden_size: 2048,
      intermediate_size: 11008,
      max_position_embeddings: 128000,
      max_window_layers: 70,
      num_attention_heads: 16,
      num_hidden_layers: 36,
      num_key_value_heads: 2,
      rms_norm_eps: 1e-6,
      rope_theta: 1000000,
      sliding_window: 32768,
      tie_word_embeddings: true,
      torch_dtype: 'bfloat16',
      use_sliding_window: false,
      vision_config: {
        depth: 32,
        hidden_act: 'silu',
        hidden_size: 1280,
        intermediate_size: 3420,
        num_heads: 16,
        in_chans: 3,
        out_hidden_size: 2048,
        patch_size: 14,
        spatial_merge_size: 2,
        spatial_patch_size: 14,
        window_size: 112,
        fullatt_block_indexes: [7, 15, 23, 31],
        tokens_per_second: 2,
        temporal_patch_size: 2,
      },
      rope_scaling: { type: 'mrope', mrope_section: [16, 24, 24] },
      vocab_size: 151936,
    },
    rows: 1024,
    patches: 4096,
    encoder: 631,
    millions: 3086,
  },
  'Qwen3-VL 2B': {
    config: {
      model_type: 'qwen3_vl',
      architectures: ['Qwen3VLForConditionalGeneration'],
      image_token_id: 151655,
      tie_word_embeddings: true,
      text_config: {
        model_type: 'qwen3_vl_text',
        head_dim: 128,
        hidden_size: 2048,
        intermediate_size: 6144,
        max_position_embeddings: 262144,
        num_attention_heads: 16,
        num_hidden_layers: 28,
        num_key_value_heads: 8,
        rope_theta: 5000000,
        vocab_size: 151936,
      },
      vision_config: {
        model_type: 'qwen3_vl',
        deepstack_visual_indexes: [5, 11, 17],
        depth: 24,
        hidden_act: 'gelu_pytorch_tanh',
        hidden_size: 1024,
        in_channels: 3,
        intermediate_size: 4096,
        num_heads: 16,
        num_position_embeddings: 2304,
        out_hidden_size: 2048,
        patch_size: 16,
        spatial_merge_size: 2,
        temporal_patch_size: 2,
      },
    },
    rows: 1024,
    patches: 4096,
    encoder: 303,
    millions: 1721,
  },
  'Qwen3-VL 30B A3B': {
    config: {
      model_type: 'qwen3_vl_moe',
      architectures: ['Qwen3VLMoeForConditionalGeneration'],
      image_token_id: 151655,
      tie_word_embeddings: false,
      text_config: {
        model_type: 'qwen3_vl_moe_text',
        decoder_sparse_step: 1,
        head_dim: 128,
        hidden_size: 2048,
        intermediate_size: 6144,
        max_position_embeddings: 262144,
        mlp_only_layers: [],
        moe_intermediate_size: 768,
        norm_topk_prob: true,
        num_attention_heads: 32,
        num_experts: 128,
        num_experts_per_tok: 8,
        num_hidden_layers: 48,
        num_key_value_heads: 4,
        rope_theta: 5000000,
        // Not what the whole says.
        tie_word_embeddings: true,
        vocab_size: 151936,
      },
      vision_config: {
        model_type: 'qwen3_vl_moe',
        deepstack_visual_indexes: [8, 16, 24],
        depth: 27,
        hidden_act: 'gelu_pytorch_tanh',
        hidden_size: 1152,
        in_channels: 3,
        intermediate_size: 4304,
        num_heads: 16,
        num_position_embeddings: 2304,
        out_hidden_size: 2048,
        patch_size: 16,
        spatial_merge_size: 2,
        temporal_patch_size: 2,
      },
    },
    rows: 1024,
    patches: 4096,
    encoder: 412,
    millions: 30532,
  },
};

test.each(Object.entries(models))('%s, as published', (_, { config: raw, rows, patches, encoder, millions }) => {
  const config = parseModelConfig(raw);
  const vision = config.vision!;
  expect([patchesOf(vision), imageRows(vision), vision.imageToken]).toEqual([patches, rows, raw.image_token_id]);
  // Without what joins it to the text, and tables that stay with the host.
  const specs = [...specsIn({ ...encoderSpecs(vision, config.hiddenSize), project: undefined, mergers: [] })];
  const numbers = [...expectedTensors(specs).values()].reduce((sum, each) => sum + each.numbers, 0);
  expect(numbers / 1e6).toBeCloseTo(encoder, -1);
  expect(Math.abs(numbers / 1e6 - encoder)).toBeLessThan(1);
  expect(Math.abs(weightBytes(config, 'f16').parameters / 1e6 - millions)).toBeLessThan(1);
});

/** As published, but for what doesn't count. */
const unified = {
  model_type: 'gemma4_unified',
  image_token_id: 258880,
  audio_token_id: 258881,
  text_config: {
    model_type: 'gemma4_unified_text',
    attention_k_eq_v: true,
    global_head_dim: 512,
    head_dim: 256,
    hidden_size: 3840,
    hidden_size_per_layer_input: 0,
    intermediate_size: 15360,
    num_attention_heads: 16,
    num_global_key_value_heads: 1,
    num_hidden_layers: 48,
    num_key_value_heads: 8,
    sliding_window: 1024,
    use_bidirectional_attention: 'vision',
    vocab_size: 262144,
  },
  vision_config: {
    mm_embed_dim: 3840,
    mm_posemb_size: 1120,
    model_patch_size: 48,
    num_soft_tokens: 280,
    output_proj_dims: 3840,
    patch_size: 16,
    pooling_kernel_size: 3,
  },
  audio_config: { audio_embed_dim: 640 },
};

test('Gemma 4 12B: each of its numbers is read', () => {
  const config = parseModelConfig(unified);
  const [vision, sound] = [config.vision!, config.sound as SamplesConfig];
  const specs = [vision, sound].flatMap((of) => [...specsIn(embedderSpecs(of, config.hiddenSize))]);
  const numbers = [...expectedTensors(specs).values()].reduce((sum, each) => sum + each.numbers, 0);
  const places = placesTable(vision)!.shape.reduce((a, b) => a * b);
  // Keys that are values are held twice.
  const twice = 8 * 512 * 3840;
  // As the Hub counts them.
  expect(weightBytes(config, 'f16').parameters - twice + numbers + places).toBe(11_959_730_224);
  expect(vision).toMatchObject({ patch: 48, merge: 1, runs: 280, windowedRuns: true });
  const { use_bidirectional_attention: _, ...text } = unified.text_config;
  expect(parseModelConfig({ ...unified, text_config: text }).vision).toHaveProperty('runs');
  const causal = { ...text, use_bidirectional_attention: null };
  expect(parseModelConfig({ ...unified, text_config: causal }).vision).not.toHaveProperty('runs');
});

test('windows of rows', () => {
  const shape = { image: 8, patch: 1, merge: 2, window: 2 };
  expect(windowsOf(shape, [4, 6])).toEqual([
    [0, 1, 3, 4],
    [2, 5],
  ]);
  expect(patchOrder(shape, [2, 6])).toEqual([0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
  expect(patchOrder(shape, [4, 6]).slice(4, 12)).toEqual([2, 3, 8, 9, 12, 13, 18, 19]);
  const { config } = models['Qwen2.5-VL 3B'];
  const { window, tower } = parseModelConfig(config).vision!;
  const whole = tower.layers.flatMap(({ attention }, at) => ((attention as GqaConfig).bothWays === true ? [at] : []));
  expect([window, whole]).toEqual([4, [7, 15, 23, 31]]);
});

test('patches that are joined lie side by side', () => {
  const shape = { image: 4, patch: 1, merge: 2 };
  expect(patchOrder(shape, [4, 4])).toEqual([0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]);
  expect(patchOrder(shape, [2, 6])).toEqual([0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
  // Of averages: the first of each, then the second; with room for as many as there may be.
  const average = { norm: { kind: 'rms', eps: 1 }, scale: 1 } as const;
  const averaged = { ...shape, average };
  expect(patchOrder(averaged, [4, 4])).toEqual([0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15]);
  expect(patchOrder(averaged, [2, 6])).toEqual([0, 2, 4, -1, 1, 3, 5, -1, 6, 8, 10, -1, 7, 9, 11, -1]);
  const order = patchOrder({ image: 27, patch: 1, merge: 3 }, [27, 27]);
  expect(order.toSorted((a, b) => a - b)).toEqual(order.map((_, at) => at));
  expect(order.slice(9, 12)).toEqual([3, 4, 5]);
});

test('what is refused of an encoder: texts are not', () => {
  const { config } = models['SmolVLM 256M'];
  const misfit = (of: Parameters<typeof parseModelConfig>[0]): string => {
    const { vision, visionMisfit = '' } = parseModelConfig(of);
    expect(vision).toBeUndefined();
    return visionMisfit;
  };
  const changed = (changes: object) => ({ ...config, vision_config: { ...config.vision_config, ...changes } });
  const change = (changes: object): string => misfit(changed(changes));
  expect(change({ hidden_size: 100 })).toMatch(/vision_config: hidden_size 100 .* a multiple of 64/);
  expect(change({ hidden_act: 'quick_gelu' })).toMatch(/only 'gelu_pytorch_tanh'/);
  expect(change({ image_size: [512, 256] })).toMatch(/squares only/);
  expect(change({ image_size: 500 })).toMatch(/multiple of 4/);
  expect(() => parseModelConfig(changed({ num_attention_heads: 7 }))).toThrow(/heads of whole eights/);
  const gemma = models['Gemma 3 4B'].config;
  expect(misfit({ ...gemma, mm_tokens_per_image: 1156 })).toMatch(/at most the window of 1024/);
  expect(misfit({ ...gemma, mm_tokens_per_image: 100 })).toMatch(/image_size/);
  expect(parseModelConfig({ ...gemma, vision_config: undefined }).vision).toBeUndefined();
  const gemma4 = models['Gemma 4 E2B'].config;
  const text = { ...(gemma4 as { text_config?: object }).text_config, use_bidirectional_attention: 'vision' };
  const seen = { ...gemma4, text_config: { ...text, sliding_window: 200 } };
  expect(misfit(seen)).toMatch(/vision_soft_tokens_per_image 280 .* at most the window of 200/);
  expect(parseModelConfig({ ...gemma4, text_config: text }).vision).toMatchObject({ runs: 280, windowedRuns: true });
  expect(parseModelConfig(gemma4).vision).not.toHaveProperty('runs');
  expect(misfit({ ...gemma4, text_config: { ...text, pad_token_id: 3 } })).toMatch(/pad_token_id 3 /);
  const narrow = { ...gemma4.vision_config, position_embedding_size: 100 };
  expect(() => parseModelConfig({ ...gemma4, vision_config: narrow })).toThrow(/position_embedding_size is 100/);
  const patches = { ...unified.vision_config, output_proj_dims: 2048 };
  expect(misfit({ ...unified, vision_config: patches })).toMatch(/output_proj_dims 2048 .* 3840/);
  const wide = { ...unified.vision_config, num_soft_tokens: 1120 };
  expect(misfit({ ...unified, vision_config: wide })).toMatch(/num_soft_tokens 1120 .* at most the window of 1024/);
  const lfm2 = models['LFM2-VL 450M'].config;
  expect(misfit({ ...lfm2, projector_hidden_act: 'relu' })).toMatch(/projector_hidden_act "relu" .* is gelu/);
  expect(misfit({ ...lfm2, vision_feature_layer: -2 })).toMatch(/vision_feature_layer -2 .* all layers/);
  expect(() => parseModelConfig({ ...lfm2, vision_config: { ...lfm2.vision_config, num_patches: 250 } })).toThrow(
    /num_patches is 250; expected the square of a side/,
  );
  expect(() => parseModelConfig({ ...config, vision_config: undefined })).toThrow(/'vision_config' is missing/);
});
