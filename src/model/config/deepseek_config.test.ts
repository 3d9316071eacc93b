import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { attentionOf, expertsOf, type MlaConfig, type ModelConfig } from './model_config.js';
import { loadFamilies, parseModelConfig } from '../families/registry.js';

await loadFamilies();

/** The config.json files of published models, shortened to the keys that matter and some that must not. */
const v2Lite = {
  architectures: ['DeepseekV2ForCausalLM'],
  attention_bias: false,
  aux_loss_alpha: 0.001,
  bos_token_id: 100000,
  eos_token_id: 100001,
  first_k_dense_replace: 1,
  hidden_act: 'silu',
  hidden_size: 2048,
  intermediate_size: 10944,
  kv_lora_rank: 512,
  max_position_embeddings: 163840,
  model_type: 'deepseek_v2',
  moe_intermediate_size: 1408,
  moe_layer_freq: 1,
  n_group: 1,
  n_routed_experts: 64,
  n_shared_experts: 2,
  norm_topk_prob: false,
  num_attention_heads: 16,
  num_experts_per_tok: 6,
  num_hidden_layers: 27,
  num_key_value_heads: 16,
  pretraining_tp: 1,
  q_lora_rank: null,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  rms_norm_eps: 1e-6,
  rope_scaling: {
    beta_fast: 32,
    beta_slow: 1,
    factor: 40,
    mscale: 0.707,
    mscale_all_dim: 0.707,
    original_max_position_embeddings: 4096,
    type: 'yarn',
  },
  rope_theta: 10000,
  routed_scaling_factor: 1.0,
  scoring_func: 'softmax',
  seq_aux: true,
  tie_word_embeddings: false,
  topk_group: 1,
  topk_method: 'greedy',
  torch_dtype: 'bfloat16',
  v_head_dim: 128,
  vocab_size: 102400,
};
const v3 = {
  ...v2Lite,
  architectures: ['DeepseekV3ForCausalLM'],
  bos_token_id: 0,
  eos_token_id: 1,
  ep_size: 1,
  first_k_dense_replace: 3,
  hidden_size: 7168,
  intermediate_size: 18432,
  model_type: 'deepseek_v3',
  moe_intermediate_size: 2048,
  n_group: 8,
  n_routed_experts: 256,
  n_shared_experts: 1,
  norm_topk_prob: true,
  num_attention_heads: 128,
  num_experts_per_tok: 8,
  num_hidden_layers: 61,
  num_key_value_heads: 128,
  num_nextn_predict_layers: 1,
  q_lora_rank: 1536,
  rope_scaling: { ...v2Lite.rope_scaling, mscale: 1.0, mscale_all_dim: 1.0 },
  routed_scaling_factor: 2.5,
  scoring_func: 'sigmoid',
  topk_group: 4,
  topk_method: 'noaux_tc',
  vocab_size: 129280,
};
const minicpm3 = {
  architectures: ['MiniCPM3ForCausalLM'],
  bos_token_id: 1,
  dim_model_base: 256,
  eos_token_id: [2, 73440],
  hidden_act: 'silu',
  hidden_size: 2560,
  intermediate_size: 6400,
  kv_lora_rank: 256,
  max_position_embeddings: 32768,
  model_type: 'minicpm3',
  num_attention_heads: 40,
  num_hidden_layers: 62,
  num_key_value_heads: 40,
  q_lora_rank: 768,
  qk_nope_head_dim: 64,
  qk_rope_head_dim: 32,
  rms_norm_eps: 1e-5,
  rope_scaling: {
    long_factor: Array.from({ length: 16 }, (_, i) => 1 + i),
    original_max_position_embeddings: 32768,
    short_factor: Array.from({ length: 16 }, () => 1),
    type: 'longrope',
  },
  scale_depth: 1.4,
  scale_emb: 12,
  vocab_size: 73448,
};

type Raw = Record<string, unknown>;
const without = (config: Raw, key: string): Raw =>
  Object.fromEntries(Object.entries(config).filter(([name]) => name !== key));
const parse = (config: Raw): ModelConfig => parseModelConfig(config);

/** The attention of every layer, which must be the same. */
function mla(raw: Raw): MlaConfig {
  const config = parse(raw);
  for (const { attention } of config.layers) expect(attention).toEqual(config.layers[0]!.attention);
  return attentionOf(config, 'mla');
}
const expertLayers = ({ layers }: ModelConfig): number[] =>
  layers.flatMap(({ mlp }, layer) => (mlp.kind === 'experts' ? [layer] : []));
const from = (first: number, end: number): number[] => Array.from({ length: end - first }, (_, i) => first + i);

describe('published configurations', () => {
  it('reads DeepSeek V2-Lite', () => {
    const config = parse(v2Lite);
    const { layers, tensors: _, ...model } = config;
    expect(model).toEqual({
      architecture: 'deepseek_v2',
      hiddenSize: 2048,
      vocabSize: 102400,
      maxPositions: 163840,
      norm: { kind: 'rms', eps: 1e-6 },
      embeddingScale: 1,
      residualScale: 1,
      logitScale: 1,
      tieWordEmbeddings: false,
      eosTokenIds: [100001],
      bosTokenId: 100000,
    });
    const { scale, ...attention } = mla(v2Lite);
    expect(attention).toEqual({
      kind: 'mla',
      heads: 16,
      qLoraRank: null,
      kvLoraRank: 512,
      qkNopeHeadDim: 128,
      qkRopeHeadDim: 64,
      vHeadDim: 128,
      bias: false,
      loraNormEps: 1e-6,
      rope: {
        theta: 10000,
        scaling: {
          type: 'yarn',
          factor: 40,
          originalMaxPositions: 4096,
          betaFast: 32,
          betaSlow: 1,
          mscaleAllDim: 0.707,
          attentionFactor: 1,
        },
        dims: 64,
        interleaved: true,
      },
    });
    // 192^-0.5 (0.1 * 0.707 * ln 40 + 1)^2
    expect(scale).toBeCloseTo(0.114721, 6);
    expect(layers).toHaveLength(27);
    expect(layers[0]!.mlp).toEqual({ kind: 'gated', width: 10944, activation: 'silu', bias: false });
    for (const { mlp } of layers.slice(1)) {
      expect(mlp).toEqual({
        kind: 'experts',
        numExperts: 64,
        expertsPerToken: 6,
        width: 1408,
        sharedWidth: 2 * 1408,
        activation: 'silu',
        numGroups: 1,
        topkGroups: 1,
        scoring: 'softmax',
        method: 'greedy',
        normTopkProb: false,
        routedScalingFactor: 1,
        correctionBias: false,
      });
    }
  });

  it('reads DeepSeek V3, ignoring the layer that predicts a further token', () => {
    const config = parse(v3);
    expect(config.architecture).toBe('deepseek_v3');
    expect(config.layers).toHaveLength(61);
    expect(expertLayers(config)).toEqual(from(3, 61));
    expect(mla(v3)).toMatchObject({ qLoraRank: 1536, rope: { interleaved: true } });
    expect(expertsOf(config)).toMatchObject({
      numGroups: 8,
      topkGroups: 4,
      scoring: 'sigmoid',
      method: 'noaux_tc',
      normTopkProb: true,
      correctionBias: true,
      routedScalingFactor: 2.5,
      sharedWidth: 2048,
    });
    expect(mla(v3).scale).toBeCloseTo(0.135234, 6);
  });

  it('reads MiniCPM3 4B', () => {
    const config = parse(minicpm3);
    expect(config).toMatchObject({
      architecture: 'minicpm3',
      norm: { kind: 'rms', eps: 1e-5 },
      embeddingScale: 12,
      logitScale: 0.1,
      tieWordEmbeddings: true,
    });
    const attention = mla(minicpm3);
    expect(attention).toMatchObject({
      vHeadDim: 64,
      loraNormEps: 1e-6,
      rope: { interleaved: false, scaling: { type: 'longrope', originalMaxPositions: 32768, attentionFactor: 1 } },
    });
    expect(config.residualScale).toBeCloseTo(1.4 / 7.874007874, 9);
    expect(attention.scale).toBeCloseTo(1 / 9.797958971, 9);
    expect(expertsOf(config)).toBeUndefined();
    expect(config.layers.map(({ mlp }) => mlp.kind !== 'experts' && mlp.width)).toContain(6400);
  });

  it('is plain data, which a worker can be sent', () => {
    for (const raw of [v2Lite, v3, minicpm3]) {
      expect(structuredClone(parse(raw))).toEqual(parse(raw));
      expect(JSON.parse(JSON.stringify(parse(raw)))).toEqual(parse(raw));
    }
  });
});

describe('variants', () => {
  it('leaves the softmax scale alone without YaRN, or where mscale_all_dim is 0', () => {
    expect(mla(without(v3, 'rope_scaling')).scale).toBeCloseTo(192 ** -0.5, 12);
    const attention = mla({ ...v3, rope_scaling: { ...without(v3.rope_scaling, 'mscale'), mscale_all_dim: 0 } });
    expect(attention.scale).toBeCloseTo(192 ** -0.5, 12);
    // 0.1 ln 40 + 1
    expect(attention.rope.scaling).toMatchObject({ attentionFactor: expect.closeTo(1.3688879454, 9) });
  });

  it('reads transformers 5 rope_parameters', () => {
    const { type, ...rope } = v3.rope_scaling;
    const changed = { ...v3, rope_scaling: null, rope_theta: null };
    expect(parse({ ...changed, rope_parameters: { ...rope, rope_type: type, rope_theta: 10000 } })).toEqual(parse(v3));
  });

  it('takes group-limited routing for V2, and groups only there', () => {
    const limited = { ...v2Lite, topk_method: 'group_limited_greedy', n_group: 8, topk_group: 3 };
    expect(expertsOf(parse(limited))).toMatchObject({ method: 'group_limited_greedy', numGroups: 8, topkGroups: 3 });
    expect(expertsOf(parse({ ...limited, topk_method: 'greedy' }))).toMatchObject({ numGroups: 1, topkGroups: 1 });
  });

  it('leaves a single weight of V2 as it is, but normalises that of V3', () => {
    const one = { num_experts_per_tok: 1, norm_topk_prob: true };
    expect(expertsOf(parse({ ...v2Lite, ...one }))!.normTopkProb).toBe(false);
    expect(expertsOf(parse({ ...v3, ...one }))!.normTopkProb).toBe(true);
  });

  it('takes null for no experts and for no shared experts', () => {
    expect(expertLayers(parse({ ...v2Lite, n_routed_experts: null }))).toEqual([]);
    expect(expertsOf(parse({ ...v2Lite, n_shared_experts: null }))!.sharedWidth).toBe(0);
  });

  it('counts moe_layer_freq from layer 0', () => {
    const config = parse({ ...v2Lite, num_hidden_layers: 10, moe_layer_freq: 3, first_k_dense_replace: 4 });
    expect(expertLayers(config)).toEqual([6, 9]);
  });

  it('takes more dense layers than there are layers for a model without experts', () => {
    const config = parse({ ...v2Lite, num_hidden_layers: 2, first_k_dense_replace: 4 });
    expect(expertLayers(config)).toEqual([]);
  });

  it('knows rows in halves', () => {
    expect(mla({ ...v3, rope_interleave: false }).rope.interleaved).toBe(false);
  });

  it('stretches longrope by the ratio of the contexts', () => {
    const rope = { ...minicpm3.rope_scaling, original_max_position_embeddings: 1024 };
    const attention = mla({ ...minicpm3, max_position_embeddings: 4096, rope_scaling: rope });
    // sqrt(1 + ln 4 / ln 1024) = sqrt(1.2)
    expect(attention.rope.scaling).toMatchObject({ attentionFactor: expect.closeTo(1.0954451150103321, 12) });
  });
});

describe('refusals name the key, the value and what is supported', () => {
  const yarn = (change: Raw) => ({ ...v3, rope_scaling: { ...v3.rope_scaling, ...change } });
  const cases: [name: string, config: Raw, code: string, message: RegExp][] = [
    [
      'FP8 weights',
      { ...v3, quantization_config: { quant_method: 'fp8', weight_block_size: [128, 128] } },
      'unsupported',
      /"fp8".*FP8 checkpoints are refused.*bfloat16/,
    ],
    ['V2 with sigmoid', { ...v2Lite, scoring_func: 'sigmoid' }, 'unsupported', /scoring_func "sigmoid".*'softmax'/],
    ['V3 with softmax', { ...v3, scoring_func: 'softmax' }, 'unsupported', /scoring_func "softmax".*'sigmoid'/],
    ['V2 with noaux_tc', { ...v2Lite, topk_method: 'noaux_tc' }, 'unsupported', /topk_method "noaux_tc".*'greedy'/],
    ['V3 with greedy', { ...v3, topk_method: 'greedy' }, 'unsupported', /topk_method "greedy".*'noaux_tc'/],
    ['uneven groups', { ...v3, n_group: 7 }, 'config', /n_group is 7; expected a divisor.*\(256\)/],
    ['groups of one', { ...v3, n_group: 256, topk_group: 8 }, 'config', /n_group is 256; expected at most 128/],
    ['more groups chosen than there are', { ...v3, topk_group: 9 }, 'config', /topk_group is 9/],
    [
      'too few experts in the groups',
      { ...v3, n_group: 64, topk_group: 1 },
      'config',
      /num_experts_per_tok is 8.*most 4/,
    ],
    [
      'more experts chosen than there are',
      { ...v2Lite, num_experts_per_tok: 65 },
      'config',
      /num_experts_per_tok is 65/,
    ],
    ['no number of experts', without(v3, 'n_routed_experts'), 'config', /'n_routed_experts' is missing/],
    ['no number of shared experts', without(v3, 'n_shared_experts'), 'config', /'n_shared_experts' is missing/],
    ['no word of q_lora_rank', without(v2Lite, 'q_lora_rank'), 'config', /'q_lora_rank' is missing/],
    ['no latent', without(v3, 'kv_lora_rank'), 'config', /'kv_lora_rank' is missing/],
    ['no dense layers named', without(v3, 'first_k_dense_replace'), 'config', /'first_k_dense_replace' is missing/],
    ['an odd latent', { ...v3, kv_lora_rank: 500 }, 'unsupported', /kv_lora_rank 500 .*multiples of 32 up to 1024/],
    ['a large latent', { ...v3, kv_lora_rank: 2048 }, 'unsupported', /kv_lora_rank 2048/],
    ['an odd head', { ...v3, qk_nope_head_dim: 100 }, 'unsupported', /qk_nope_head_dim 100 .*multiples of 8 up to 256/],
    ['an odd rotary part', { ...v3, qk_rope_head_dim: 20 }, 'unsupported', /qk_rope_head_dim 20/],
    ['a large value', { ...v3, v_head_dim: 264 }, 'unsupported', /v_head_dim 264/],
    ['grouped heads', { ...v3, num_key_value_heads: 8 }, 'config', /num_key_value_heads is 8; .*heads \(128\)/],
    ['widths that contradict', { ...v3, qk_head_dim: 128 }, 'config', /qk_head_dim is 128; .*\(192\)/],
    ['an MLP bias', { ...v2Lite, mlp_bias: true }, 'unsupported', /mlp_bias true/],
    ['a misspelt flag', { ...v3, rope_interleaved: false }, 'config', /'rope_interleaved'.*mean 'rope_interleave'/],
    ['longrope', { ...v3, rope_scaling: minicpm3.rope_scaling }, 'unsupported', /type "longrope".*'linear' and 'yarn'/],
    ['YaRN on MiniCPM3', { ...minicpm3, rope_scaling: v3.rope_scaling }, 'unsupported', /type "yarn".*'longrope'/],
    ['YaRN without factor', yarn({ factor: null }), 'config', /'factor' is missing/],
    ['YaRN without context', yarn({ original_max_position_embeddings: null }), 'config', /'original_max_position/],
    ['crossed YaRN bounds', yarn({ beta_fast: 1 }), 'config', /beta_fast is 1; expected more than beta_slow \(1\)/],
    ['YaRN with negative mscale', yarn({ mscale: -1 }), 'config', /mscale is -1/],
    [
      'a short list',
      { ...minicpm3, rope_scaling: { ...minicpm3.rope_scaling, long_factor: [1, 2] } },
      'config',
      /rope_scaling: long_factor is \[1,2\]; expected 16 positive numbers/,
    ],
    [
      'a list with a hole',
      { ...minicpm3, rope_scaling: { ...minicpm3.rope_scaling, short_factor: [1, 0] } },
      'config',
      /short_factor is \[1,0\]; expected 16 positive numbers/,
    ],
    ['MiniCPM3 without scale_depth', without(minicpm3, 'scale_depth'), 'config', /'scale_depth' is missing/],
    ['MiniCPM3 without dim_model_base', without(minicpm3, 'dim_model_base'), 'config', /'dim_model_base' is missing/],
    [
      'MiniCPM3 without v_head_dim where it is unclear',
      { ...minicpm3, qk_nope_head_dim: 32 },
      'config',
      /'v_head_dim' is missing/,
    ],
    ['another class', { ...v2Lite, architectures: ['DeepseekV3ForCausalLM'] }, 'unsupported', /DeepseekV2ForCausalLM/],
  ];
  it.each(cases)('%s', (_name, config, code, message) => {
    let error: unknown;
    try {
      parse(config);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(SplitkvError);
    expect((error as SplitkvError).message).toMatch(message);
    expect((error as SplitkvError).code).toBe(code);
  });

  it('never fails with anything but a SplitkvError, whatever a value is replaced by', () => {
    const model = fc.constantFrom<Raw>(v2Lite, v3, minicpm3);
    const extra = ['rope_parameters', 'quantization_config', 'mlp_bias', 'qk_head_dim'];
    const keys = fc.constantFrom(...new Set([v2Lite, v3, minicpm3].flatMap((raw) => Object.keys(raw))), ...extra);
    fc.assert(
      fc.property(model, keys, fc.jsonValue(), (raw, key, value) => {
        try {
          const config = parseModelConfig({ ...raw, [key]: value });
          expect(Number.isFinite(attentionOf(config, 'mla').scale)).toBe(true);
        } catch (error) {
          expect(error).toBeInstanceOf(SplitkvError);
        }
      }),
      { numRuns: 3000 },
    );
  });
});
