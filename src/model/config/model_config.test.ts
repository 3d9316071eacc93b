import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { attentionOf, type DenseMlpConfig, type GqaConfig, type ModelConfig } from './model_config.js';
import { loadFamilies, parseModelConfig } from '../families/registry.js';
import { llamaNames } from './tensor_names.js';

await loadFamilies();

/** The config.json files of published models, shortened to the keys that matter and some that must not. */
const llama32 = {
  architectures: ['LlamaForCausalLM'],
  attention_bias: false,
  attention_dropout: 0.0,
  bos_token_id: 128000,
  eos_token_id: [128001, 128008, 128009],
  head_dim: 64,
  hidden_act: 'silu',
  hidden_size: 2048,
  initializer_range: 0.02,
  intermediate_size: 8192,
  max_position_embeddings: 131072,
  mlp_bias: false,
  model_type: 'llama',
  num_attention_heads: 32,
  num_hidden_layers: 16,
  num_key_value_heads: 8,
  pretraining_tp: 2,
  rms_norm_eps: 1e-5,
  rope_scaling: {
    factor: 32.0,
    high_freq_factor: 4.0,
    low_freq_factor: 1.0,
    original_max_position_embeddings: 8192,
    rope_type: 'llama3',
  },
  rope_theta: 500000.0,
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
  transformers_version: '4.45.0.dev0',
  use_cache: true,
  vocab_size: 128256,
};
const smollm2 = {
  architectures: ['LlamaForCausalLM'],
  bos_token_id: 1,
  eos_token_id: 2,
  hidden_act: 'silu',
  hidden_size: 576,
  intermediate_size: 1536,
  is_llama_config: true,
  max_position_embeddings: 8192,
  model_type: 'llama',
  num_attention_heads: 9,
  num_hidden_layers: 30,
  num_key_value_heads: 3,
  pad_token_id: 2,
  rms_norm_eps: 1e-5,
  rope_interleaved: false,
  rope_scaling: null,
  rope_theta: 100000,
  tie_word_embeddings: true,
  'transformers.js_config': { kv_cache_dtype: { q4f16: 'float16', fp16: 'float16' } },
  torch_dtype: 'bfloat16',
  vocab_size: 49152,
};
const qwen2 = {
  architectures: ['Qwen2ForCausalLM'],
  bos_token_id: 151643,
  eos_token_id: 151645,
  hidden_act: 'silu',
  hidden_size: 896,
  intermediate_size: 4864,
  max_position_embeddings: 32768,
  max_window_layers: 21,
  model_type: 'qwen2',
  num_attention_heads: 14,
  num_hidden_layers: 24,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1000000.0,
  sliding_window: 32768,
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
  use_sliding_window: false,
  vocab_size: 151936,
};
const qwen3 = {
  ...qwen2,
  architectures: ['Qwen3ForCausalLM'],
  attention_bias: false,
  head_dim: 128,
  hidden_size: 1024,
  model_type: 'qwen3',
  num_attention_heads: 16,
  num_key_value_heads: 8,
  sliding_window: null,
};
const mistral = {
  architectures: ['MistralForCausalLM'],
  hidden_act: 'silu',
  hidden_size: 4096,
  intermediate_size: 14336,
  max_position_embeddings: 32768,
  model_type: 'mistral',
  num_attention_heads: 32,
  num_hidden_layers: 32,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-5,
  rope_theta: 1000000.0,
  sliding_window: null,
  vocab_size: 32000,
};

/** Of Gemma 4 26B-A4B. */
const gemma4Experts = {
  attention_k_eq_v: true,
  enable_moe_block: true,
  final_logit_softcapping: 30.0,
  global_head_dim: 512,
  head_dim: 256,
  hidden_activation: 'gelu_pytorch_tanh',
  hidden_size: 2816,
  hidden_size_per_layer_input: 0,
  intermediate_size: 2112,
  max_position_embeddings: 262144,
  model_type: 'gemma4_text',
  moe_intermediate_size: 704,
  num_attention_heads: 16,
  num_experts: 128,
  num_global_key_value_heads: 2,
  num_hidden_layers: 30,
  num_key_value_heads: 8,
  num_kv_shared_layers: 0,
  rms_norm_eps: 1e-6,
  sliding_window: 1024,
  top_k_experts: 8,
  use_bidirectional_attention: 'vision',
  vocab_size: 262144,
};

type Raw = Record<string, unknown>;

describe('Gemma 4', () => {
  const layersOf = (changes: Raw) =>
    parseModelConfig({ model_type: 'gemma4', text_config: { ...gemma4Experts, ...changes } }).layers;

  it('has experts beside an MLP, and few kv heads that are wide where it sees all', () => {
    const [sliding, full] = [0, 5].map((layer) => layersOf({})[layer]!);
    expect(sliding!.attention).toMatchObject({ kvHeads: 8, segments: 2, headDim: 256, window: 1024, scale: 1 });
    expect(sliding!.attention).not.toHaveProperty('keysAreValues');
    expect(full!.attention).toMatchObject({ kvHeads: 2, segments: 2, headDim: 512, keysAreValues: true });
    const { scaling, dims, theta } = (full!.attention as GqaConfig).rope!;
    expect([dims, theta]).toEqual([512, 1e6]);
    // Of 256 pairs 64 are turned.
    expect(scaling).toMatchObject({ longFactor: [...Array(64).fill(1), ...Array(192).fill(1e30)] });
    expect(full!.mlp).toMatchObject({ numExperts: 128, width: 704, normTopkProb: true, beside: { width: 2112 } });
  });

  it('shares the last keys and values of each kind, beside wider MLPs', () => {
    const layers = layersOf({ enable_moe_block: false, num_kv_shared_layers: 12, use_double_wide_mlp: true });
    const shared = layers.map(({ attention }) => (attention as GqaConfig).sharesKv);
    const sliding = [16, 16, 16, 16, 16, 17];
    expect(shared).toEqual([...Array(18).fill(undefined), ...sliding, ...sliding]);
    expect(layers.map(({ mlp }) => mlp.width)).toEqual([...Array(18).fill(2112), ...Array(12).fill(4224)]);
  });

  it('may have heads of each layer by its number, and inputs for each layer', () => {
    const own = { '5': { head_dim: 128, num_key_value_heads: 4 } };
    const layers = layersOf({ enable_moe_block: false, per_layer_config: own, hidden_size_per_layer_input: 256 });
    expect(layers[5]!.attention).toMatchObject({ headDim: 128, kvHeads: 4 });
    expect(layers[0]!.perLayer).toEqual({ width: 256 });
  });
});

const without = (config: Raw, key: string): Raw =>
  Object.fromEntries(Object.entries(config).filter(([name]) => name !== key));

function failure(config: unknown, generation?: unknown): SplitkvError {
  try {
    parseModelConfig(config, generation);
  } catch (error) {
    if (error instanceof SplitkvError) return error;
    throw error;
  }
  throw new Error(`accepted ${JSON.stringify(config)}`);
}

/** The attention of every layer, which must be the same. */
function gqa(raw: Raw): GqaConfig {
  const config = parseModelConfig(raw);
  for (const { attention } of config.layers) expect(attention).toEqual(config.layers[0]!.attention);
  return attentionOf(config, 'gqa');
}
const mlpOf = (config: ModelConfig): DenseMlpConfig => config.layers.at(-1)!.mlp as DenseMlpConfig;

describe('published configurations', () => {
  it('reads Llama 3.2 1B', () => {
    const { layers, ...model } = parseModelConfig(llama32);
    expect(model).toEqual({
      architecture: 'llama',
      hiddenSize: 2048,
      vocabSize: 128256,
      maxPositions: 131072,
      norm: { kind: 'rms', eps: 1e-5 },
      tieWordEmbeddings: true,
      embeddingScale: 1,
      residualScale: 1,
      logitScale: 1,
      eosTokenIds: [128001, 128008, 128009],
      bosTokenId: 128000,
      tensors: llamaNames,
    });
    expect(layers).toHaveLength(16);
    for (const layer of layers) {
      expect(layer).toEqual({
        attention: {
          kind: 'gqa',
          heads: 32,
          kvHeads: 8,
          headDim: 64,
          bias: { q: false, k: false, v: false, o: false },
          qkNorm: false,
          rope: {
            theta: 500000,
            scaling: { type: 'llama3', factor: 32, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 8192 },
            dims: 64,
            interleaved: false,
          },
          scale: 0.125,
        },
        mlp: { kind: 'gated', width: 8192, activation: 'silu', bias: false },
      });
    }
  });

  it('is plain data, which a worker can be sent', () => {
    for (const raw of [llama32, qwen2, qwen3, mistral]) {
      const config = parseModelConfig(raw);
      expect(structuredClone(config)).toEqual(config);
      expect(JSON.parse(JSON.stringify(config))).toEqual(config);
    }
  });

  it('reads SmolLM2, whose head_dim follows from the sizes', () => {
    expect(gqa(smollm2)).toMatchObject({ headDim: 64, kvHeads: 3, rope: { scaling: null } });
    expect(parseModelConfig(smollm2).eosTokenIds).toEqual([2]);
  });

  it('reads Qwen2: biases on q, k and v only, and a window that is switched off', () => {
    const attention = gqa(qwen2);
    expect(parseModelConfig(qwen2)).toMatchObject({ architecture: 'qwen2' });
    expect(attention).toMatchObject({ headDim: 64, qkNorm: false, rope: { theta: 1e6 } });
    expect(attention.bias).toEqual({ q: true, k: true, v: true, o: false });
    expect(attention.window).toBeUndefined();
  });

  it('reads Qwen3: head_dim is not hidden_size / heads, and q and k are normalised', () => {
    expect(parseModelConfig(qwen3)).toMatchObject({ architecture: 'qwen3', hiddenSize: 1024 });
    const attention = gqa(qwen3);
    expect(attention).toMatchObject({ headDim: 128, heads: 16, qkNorm: 'head' });
    expect(attention.scale).toBeCloseTo(1 / Math.sqrt(128), 15);
    expect(attention.bias).toEqual({ q: false, k: false, v: false, o: false });
  });

  it('reads Mistral without a window', () => {
    expect(parseModelConfig(mistral)).toMatchObject({ architecture: 'mistral', tieWordEmbeddings: false });
    expect(gqa(mistral).headDim).toBe(128);
  });

  it('reads JSON text, with a byte order mark too', () => {
    expect(parseModelConfig(`\uFEFF${JSON.stringify(qwen3)}`)).toEqual(parseModelConfig(qwen3));
  });

  it('finds the model type by architectures', () => {
    expect(parseModelConfig(without(qwen3, 'model_type'))).toEqual(parseModelConfig(qwen3));
  });
});

describe('defaults and variants', () => {
  it('takes as many kv heads as heads where llama names none', () => {
    expect(gqa(without(smollm2, 'num_key_value_heads')).kvHeads).toBe(9);
  });

  it("doesn't tie the head where nothing says so", () => {
    for (const config of [llama32, qwen2, qwen3, mistral]) {
      expect(parseModelConfig(without(config, 'tie_word_embeddings')).tieWordEmbeddings).toBe(false);
    }
  });

  it('gives llama with attention_bias a bias on o too', () => {
    const biased = { ...llama32, attention_bias: true, mlp_bias: true };
    expect(gqa(biased).bias).toEqual({ q: true, k: true, v: true, o: true });
    expect(mlpOf(parseModelConfig(biased)).bias).toBe(true);
  });

  it('lets generation_config.json override the token ids', () => {
    const generation = { eos_token_id: [151645, 151643], temperature: 0.6 };
    expect(parseModelConfig(qwen3, generation)).toMatchObject({ eosTokenIds: [151645, 151643], bosTokenId: 151643 });
    // A cut vocabulary: the model can't produce the id, so nothing ends there.
    expect(parseModelConfig(qwen3, { eos_token_id: [5, 999999] })).toMatchObject({ eosTokenIds: [5] });
    expect(parseModelConfig(qwen3, { bos_token_id: 7 })).toMatchObject({ eosTokenIds: [151645], bosTokenId: 7 });
  });

  it('reads transformers 5 rope_parameters', () => {
    const base = without(without(llama32, 'rope_theta'), 'rope_scaling');
    const rope = { ...llama32.rope_scaling, rope_theta: 500000.0 };
    expect(parseModelConfig({ ...base, rope_parameters: rope })).toEqual(parseModelConfig(llama32));
    const plain = gqa({ ...base, rope_parameters: { rope_type: 'default', rope_theta: 12345 } });
    expect(plain.rope).toMatchObject({ theta: 12345, scaling: null });
  });

  it('reads the words that transformers 5 writes in place of older ones', () => {
    const experts = { num_experts_per_tok: 2, moe_intermediate_size: 64, norm_topk_prob: true };
    const moe = { ...qwen3, architectures: undefined, model_type: 'qwen3_moe', ...experts };
    const renamed = parseModelConfig({ ...moe, num_local_experts: 8 });
    expect(renamed).toEqual(parseModelConfig({ ...moe, num_experts: 8 }));
    expect(() => parseModelConfig(moe)).toThrow(/'num_experts' is missing/);

    const mamba = { mamba_n_heads: 8, mamba_d_state: 16, num_local_experts: 0, shared_intermediate_size: 64 };
    const shape = {
      hidden_size: 64,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      vocab_size: 9,
    };
    const hybrid = { model_type: 'granitemoehybrid', max_position_embeddings: 512, ...shape, ...mamba };
    const written = (types: string[], limit: string) =>
      parseModelConfig(
        `${JSON.stringify({ ...hybrid, layer_types: types }).slice(0, -1)},"time_step_limit":[0.0,${limit}]}`,
      );
    expect(written(['linear_attention', 'full_attention'], '{"__float__": "Infinity"}')).toEqual(
      written(['mamba', 'attention'], 'Infinity'),
    );
  });

  it('takes the part of a head that rotates from rope_parameters, whatever stands beside them', () => {
    const phi = { ...qwen3, architectures: undefined, model_type: 'phi3', partial_rotary_factor: 0.25 };
    const rope = { rope_type: 'default', rope_theta: 10000 };
    const dims = (parameters: Raw) => gqa({ ...phi, rope_parameters: parameters }).rope?.dims;
    expect(dims(rope)).toBe(qwen3.head_dim / 4);
    expect(dims({ ...rope, partial_rotary_factor: 0.5 })).toBe(qwen3.head_dim / 2);
  });

  it('takes the positions that YaRN stretches to for the most, where the length is still the trained one', () => {
    const yarn = (factor: number) => ({ type: 'yarn', factor, original_max_position_embeddings: 32768 });
    expect(parseModelConfig({ ...qwen3, rope_scaling: yarn(4) }).maxPositions).toBe(131072);
    expect(parseModelConfig({ ...qwen3, rope_scaling: yarn(1) }).maxPositions).toBe(
      parseModelConfig(qwen3).maxPositions,
    );
  });

  it('gives Ministral a window in all layers but those that layer_types except', () => {
    const ministral = {
      ...mistral,
      architectures: undefined,
      model_type: 'ministral',
      num_hidden_layers: 2,
      sliding_window: 9,
    };
    const windows = (config: Raw) =>
      parseModelConfig(config).layers.map(({ attention }) => (attention as GqaConfig).window);
    expect(windows(ministral)).toEqual([9, 9]);
    expect(windows({ ...ministral, layer_types: ['full_attention', 'sliding_attention'] })).toEqual([undefined, 9]);
    expect(windows({ ...without(ministral, 'sliding_window') })).toEqual([4096, 4096]);
    expect(windows({ ...ministral, sliding_window: null })).toEqual([undefined, undefined]);
  });

  it('reads the older key of rope_scaling', () => {
    const { rope } = gqa({ ...smollm2, rope_scaling: { type: 'linear', factor: 2 } });
    expect(rope?.scaling).toEqual({ type: 'linear', factor: 2 });
  });

  it('accepts a window that cuts nothing', () => {
    expect(parseModelConfig({ ...mistral, sliding_window: 32768 }).maxPositions).toBe(32768);
    expect(parseModelConfig({ ...qwen2, use_sliding_window: true }).maxPositions).toBe(32768);
    const windows = (config: Raw) =>
      parseModelConfig(config).layers.map(({ attention }) => (attention as GqaConfig).window);
    expect(new Set(windows({ ...mistral, sliding_window: 1000 }))).toEqual(new Set([1000]));
    // What the key means where it is absent.
    expect(new Set(windows(without(mistral, 'sliding_window')))).toEqual(new Set([4096]));
    const qwen = { ...qwen2, use_sliding_window: true, sliding_window: 4096, max_window_layers: 22 };
    expect(windows(qwen)).toEqual(Array.from({ length: 24 }, (_, layer) => (layer < 22 ? undefined : 4096)));
    // Its layers from max_window_layers on would have one; there are none.
    const narrow = { ...qwen2, use_sliding_window: true, sliding_window: 4096, max_window_layers: 24 };
    expect(parseModelConfig(narrow).layers).toHaveLength(24);
  });
});

describe('refusals name the key, the value and what is supported', () => {
  const llama = (change: Raw) => ({ ...llama32, ...change });
  const cases: [name: string, config: unknown, code: string, message: RegExp][] = [
    ['text that is not JSON', '{"model_type":', 'format', /config\.json: not valid JSON/],
    ['a list', [], 'format', /expected a JSON object, got \[\]/],
    ['no model type', {}, 'config', /'model_type' is missing/],
    [
      'another model',
      llama({ model_type: 'gpt2' }),
      'unsupported',
      /model_type "gpt2".*llama, qwen2, qwen3.* gemma3_text, gemma2, gemma, gemma3, .*deepseek_v2/,
    ],
    ['a misspelt model', llama({ model_type: 'qwen33' }), 'unsupported', /Did you mean 'qwen3'\?/],
    ['a name every object has', llama({ model_type: 'constructor' }), 'unsupported', /model_type "constructor"/],
    [
      'another head',
      llama({ architectures: ['LlamaForSequenceClassification'] }),
      'unsupported',
      /runs as LlamaForCausalLM/,
    ],
    [
      'another class alone',
      { architectures: ['Qwen3ForCausalLn'] },
      'unsupported',
      /Did you mean 'Qwen3ForCausalLM'\?/,
    ],
    ['a missing size', without(llama32, 'hidden_size'), 'config', /'hidden_size' is missing/],
    ['a misspelt size', { ...without(llama32, 'hidden_size'), hiden_size: 1 }, 'config', /Did you mean 'hiden_size'\?/],
    [
      'a misspelt option',
      { ...without(llama32, 'rope_theta'), rope_teta: 1e6 },
      'config',
      /'rope_teta'.*mean 'rope_theta'\?/,
    ],
    [
      'Gemma 4 whose tokens see later ones',
      { model_type: 'gemma4_text', hidden_size_per_layer_input: 0, use_bidirectional_attention: 'all' },
      'unsupported',
      /use_bidirectional_attention "all"/,
    ],
    ['Nemotron-H', { model_type: 'nemotron_h' }, 'unsupported', /Mamba layers.*granite-4.0-h-350m/],
    ['Gemma 3n, by class', { architectures: ['Gemma3nForConditionalGeneration'] }, 'unsupported', /AltUp/],
    ['Qwen2-VL', { model_type: 'qwen2_vl' }, 'unsupported', /Qwen2-VL's encoder .* Qwen2\.5-VL-3B/],
    [
      'Qwen2-VL, by class',
      { architectures: ['Qwen2VLForConditionalGeneration'] },
      'unsupported',
      /encoder has other layers/,
    ],
    ['a negative size', llama({ hidden_size: -8 }), 'config', /hidden_size is -8; expected an integer from 1/],
    ['a size of zero', llama({ num_hidden_layers: 0 }), 'config', /num_hidden_layers is 0/],
    ['half a size', llama({ intermediate_size: 1.5 }), 'config', /intermediate_size is 1\.5/],
    ['an absurd size', llama({ hidden_size: 1e12 }), 'config', /hidden_size is 1000000000000/],
    ['a size in quotes', llama({ vocab_size: '128256' }), 'config', /vocab_size is "128256"/],
    [
      'uneven kv heads',
      llama({ num_key_value_heads: 7 }),
      'config',
      /num_key_value_heads is 7; expected a divisor.*\(32\)/,
    ],
    ['more kv heads than heads', llama({ num_key_value_heads: 64 }), 'config', /num_key_value_heads is 64; .*1 to 32/],
    ['an odd head_dim', llama({ head_dim: 60 }), 'unsupported', /head_dim 60 .*multiples of 8 up to 512/],
    ['a large head_dim', llama({ head_dim: 520 }), 'unsupported', /head_dim 520/],
    ['an uneven head_dim', { ...smollm2, hidden_size: 577 }, 'config', /hidden_size is 577; expected a multiple/],
    ['a Qwen3 without head_dim', without(qwen3, 'head_dim'), 'config', /'head_dim' is missing/],
    ['a Qwen2 without kv heads', without(qwen2, 'num_key_value_heads'), 'config', /'num_key_value_heads' is missing/],
    ['another activation', llama({ hidden_act: 'gelu' }), 'unsupported', /hidden_act "gelu".*silu/],
    ['partial rotary', llama({ partial_rotary_factor: 0.5 }), 'unsupported', /partial_rotary_factor 0\.5/],
    [
      'dynamic NTK',
      { ...qwen3, rope_scaling: { rope_type: 'dynamic', factor: 4 } },
      'unsupported',
      /"dynamic".*'yarn'/,
    ],
    [
      'YaRN of no length',
      { ...qwen3, rope_scaling: { type: 'yarn', factor: 4 } },
      'config',
      /'original_max_.* missing/,
    ],
    ['longrope by type', llama({ rope_scaling: { type: 'longrope' } }), 'unsupported', /: type "longrope"/],
    [
      'dynamic',
      llama({ rope_parameters: { rope_type: 'dynamic', factor: 2 } }),
      'unsupported',
      /rope_parameters: rope_type "dynamic"/,
    ],
    [
      'an untyped scaling',
      llama({ rope_scaling: { factor: 2 } }),
      'config',
      /rope_scaling: the key 'rope_type' is missing/,
    ],
    ['a scaling without factor', llama({ rope_scaling: { type: 'linear' } }), 'config', /'factor' is missing/],
    ['a scaling in one number', llama({ rope_scaling: 2 }), 'config', /rope_scaling is 2; expected an object/],
    [
      'crossed llama3 bounds',
      llama({ rope_scaling: { ...llama32.rope_scaling, high_freq_factor: 1 } }),
      'config',
      /high_freq_factor is 1; expected more than low_freq_factor/,
    ],
    ['theta of zero', llama({ rope_theta: 0 }), 'config', /rope_theta is 0; expected a positive number/],
    [
      'GPTQ weights',
      llama({ quantization_config: { quant_method: 'gptq', bits: 4 } }),
      'unsupported',
      /"gptq".*--weights/,
    ],
    [
      'weights of ModelOpt, without a method',
      llama({ quantization_config: { quant_algo: 'NVFP4', producer: { name: 'modelopt', version: '0.31.0' } } }),
      'unsupported',
      /quantization_config "modelopt, NVFP4" is not supported; give float32/,
    ],
    [
      'FP8 weights of a text part, named beside it',
      {
        model_type: 'mistral3',
        architectures: ['Mistral3ForConditionalGeneration'],
        text_config: { ...mistral, model_type: 'mistral' },
        quantization_config: { quant_method: 'fp8' },
      },
      'unsupported',
      /^config\.json: quantization_config "fp8" is not supported; .*BF16/,
    ],
    [
      'an infinite theta, as Python writes it',
      JSON.stringify(llama({ rope_theta: 0 })).replace('"rope_theta":0', '"rope_theta":-Infinity'),
      'config',
      /rope_theta is -Infinity; expected a positive number/,
    ],
    ['float8 weights', llama({ torch_dtype: 'float8_e4m3fn' }), 'unsupported', /torch_dtype "float8_e4m3fn"/],
    [
      'a window of nothing',
      { ...mistral, sliding_window: 0 },
      'config',
      /sliding_window is 0; expected an integer from 1/,
    ],
    [
      'windowed layers',
      { ...qwen3, layer_types: Array.from({ length: qwen3.num_hidden_layers }, () => 'sliding_attention') },
      'unsupported',
      /"sliding_attention"/,
    ],
    [
      'fewer types than layers',
      { ...qwen3, layer_types: ['full_attention'] },
      'config',
      /layer_types.*num_hidden_layers/,
    ],
    ['experts', llama({ num_local_experts: 8 }), 'unsupported', /num_local_experts 8/],
    ['an MLP bias on Qwen', { ...qwen3, mlp_bias: true }, 'unsupported', /mlp_bias true/],
    [
      'a flag that is none',
      llama({ tie_word_embeddings: 'yes' }),
      'config',
      /tie_word_embeddings is "yes"; expected true or false/,
    ],
    ['a negative end token', llama({ eos_token_id: [1, -1] }), 'config', /eos_token_id is -1/],
  ];
  it.each(cases)('%s', (_name, config, code, message) => {
    const error = failure(config);
    expect(error.message).toMatch(message);
    expect(error.code).toBe(code);
  });

  it('names generation_config.json where the fault is there', () => {
    expect(failure(llama32, { eos_token_id: -1 }).message).toMatch(/^generation_config\.json: eos_token_id is -1/);
    expect(failure(llama32, 'null').message).toMatch(/^generation_config\.json: expected a JSON object/);
  });

  it('never fails with anything but a SplitkvError, whatever a value is replaced by', () => {
    const keys = fc.constantFrom(
      ...Object.keys(qwen3),
      'rope_scaling',
      'rope_parameters',
      'quantization_config',
      'layer_types',
    );
    fc.assert(
      fc.property(keys, fc.jsonValue(), (key, value) => {
        try {
          const config = parseModelConfig({ ...qwen3, [key]: value });
          const { heads, kvHeads } = attentionOf(config, 'gqa');
          expect(heads % kvHeads).toBe(0);
        } catch (error) {
          expect(error).toBeInstanceOf(SplitkvError);
        }
      }),
      { numRuns: 2000 },
    );
  });
});
