import { describe, expect, test } from 'vitest';
import { KEPT_TYPES } from '../../../../shaders/linear/pack.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn } from '../../../gpu/testing/draw.js';
import type { WritableType } from '../../../loader/gguf/testing/quantise.js';
import { matrixShape, openGguf, openSource } from '../../../loader/index.js';
import { type GgufOptions, modelToGguf } from '../../../model/testing/gguf/model.js';
import { makeRandomModel } from '../../../model/testing/random_model.js';
import { familyLogits } from '../../../model/testing/reference/families.js';
import { mergedWeights, randomAdapter } from '../../../model/testing/random_adapter.js';
import { referenceLogits, type ReferenceTensor } from '../../../model/testing/reference/reference.js';
import { weightBytes } from '../../../model/weights/model_map.js';
import { mixtureText } from '../../../model/weights/weight_types.js';
import { storedTypes } from '../../../model/weights/stored_types.js';
import type { LoadOptions } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { openModelFiles } from '../../files/model_files.js';

const adapter = (await testAdapters()).at(-1)!.name;

const small = {
  hidden_size: 128,
  intermediate_size: 192,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
  vocab_size: 96,
};

/** By the beginning of a tensor's name. */
type Types = Readonly<Record<string, WritableType>>;

/** A random model in a GGUF file, no block of Q4_0 of which has the code of -8 in its first half. */
async function fileOf(types: Types, config: Record<string, unknown> = small, factorsOf?: GgufOptions['factorsOf']) {
  const random = makeRandomModel({ config, seed: 12 });
  const typeOf = (name: string, shape: readonly number[]): WritableType | undefined =>
    shape.length > 1 ? Object.entries(types).find(([begin]) => name.startsWith(begin))?.[1] : undefined;
  const bytes = modelToGguf(random.config, random.weights, { typeOf, factorsOf });
  const open = async (content: Uint8Array<ArrayBuffer>) => {
    const file = new File([content], 'm.gguf');
    const model = await openModelFiles(await openSource([file]));
    return { file, model, reader: await model.reader() };
  };
  const { reader: written } = await open(bytes);
  for (const { dtype, start, end } of written.index.tensors.values()) {
    if (dtype !== 'Q4_0') continue;
    for (let block = start; block < end; block += 18) {
      for (let at = block + 2; at < block + 18; at++) if ((bytes[at]! & 15) === 0) bytes[at]! |= 3;
      // Some scales too small for a normal f16.
      if (block % 5 === 0) bytes[block + 1] = 0x03;
    }
  }
  const { file, model, reader } = await open(bytes);
  const weights = new Map<string, ReferenceTensor>();
  for (const [name, { shape }] of reader.index.tensors)
    weights.set(name, { shape: [...shape], data: await reader.readRows(name, 0, matrixShape({ shape }).rows) });
  const raw = JSON.parse(new TextDecoder().decode(random.files.get('config.json'))) as Record<string, unknown>;
  // Whose vectors files have otherwise.
  const matrices = [...weights].filter(([, { shape }]) => shape.length === 2);
  const logits = (tokens: readonly number[]): Float64Array[] =>
    model.config.layers.some(({ attention }) => attention.kind === 'delta')
      ? familyLogits(raw, new Map([...random.weights, ...matrices]), tokens)
      : referenceLogits(model.config, weights, tokens);
  return { file, weights, logits, config: model.config, index: reader.index };
}

async function logitsOf(file: File, options: LoadOptions = {}) {
  const model = await load([file], { adapter, ...options });
  try {
    const tokens = Array.from({ length: 12 }, (_, i) => (i * 37 + 11) % model.info.vocabSize);
    const { rows } = await model.logits(tokens, { all: true });
    return { rows, tokens, info: model.info };
  } finally {
    await model.dispose();
  }
}

/** Rows of whole blocks of 256, which two ranks cut in the middle. */
const wide = { ...small, hidden_size: 256, intermediate_size: 768 };

/** Latent attention, with experts and shared ones. */
const deepseek = {
  ...small,
  model_type: 'deepseek_v2',
  hidden_size: 256,
  intermediate_size: 768,
  head_dim: undefined,
  num_key_value_heads: undefined,
  q_lora_rank: 256,
  kv_lora_rank: 256,
  qk_nope_head_dim: 64,
  qk_rope_head_dim: 32,
  v_head_dim: 64,
  moe_intermediate_size: 256,
  first_k_dense_replace: 1,
};

/** Gated delta rules: a matrix of six tensors' rows. */
const delta = {
  ...wide,
  model_type: 'qwen3_5_text',
  head_dim: 64,
  intermediate_size: 256,
  layer_types: ['linear_attention', 'full_attention'],
  linear_num_key_heads: 6,
  linear_num_value_heads: 6,
  linear_key_head_dim: 24,
  linear_value_head_dim: 128,
  linear_conv_kernel_dim: 4,
};

const mixtures: readonly (readonly [name: string, types: Types, most: string, config: Record<string, unknown>])[] = [
  ['Q4_0', { '': 'Q4_0' }, 'q4', small],
  ['Q8_0', { '': 'Q8_0' }, 'q8', small],
  [
    'Q5_0 and IQ4_NL',
    {
      'blk.0.ffn_up': 'Q8_0',
      'blk.1.ffn_up': 'Q4_0',
      'blk.0': 'Q5_0',
      token_embd: 'Q4_1',
      output: 'Q5_1',
      '': 'IQ4_NL',
    },
    'q5_0',
    small,
  ],
  ['Q4_1 and Q5_1', { 'blk.0': 'Q4_1', token_embd: 'Q5_0', output: 'IQ4_NL', '': 'Q5_1' }, 'q5_1', small],
  [
    'Q4_0, Q8_0 and F16',
    {
      'blk.0.attn_k': 'Q8_0',
      'blk.0.ffn_up': 'Q8_0',
      'blk.0.ffn_down': 'F16',
      'blk.1.attn_v': 'F16',
      'blk.1.attn_output': 'Q8_0',
      output: 'Q8_0',
      token_embd: 'F16',
      '': 'Q4_0',
    },
    'q4',
    small,
  ],
  ['Q4_K', { '': 'Q4_K' }, 'q4_k', wide],
  ['Q6_K', { '': 'Q6_K' }, 'q6_k', wide],
  [
    'Q4_K, Q6_K and others',
    {
      'blk.0.attn_k': 'Q8_0',
      'blk.0.attn_v': 'Q6_K',
      'blk.0.ffn_down': 'Q6_K',
      'blk.1.attn_output': 'Q4_0',
      'blk.1.attn_v': 'F16',
      output: 'Q6_K',
      '': 'Q4_K',
    },
    'q4_k',
    wide,
  ],
  [
    'Q5_K and IQ4_XS',
    { 'blk.0': 'Q5_K', 'blk.1.attn_v': 'Q4_1', 'blk.1.ffn_down': 'IQ4_NL', output: 'Q5_K', '': 'IQ4_XS' },
    'q5_k',
    wide,
  ],
  [
    'Q4_K with Q6_K, latent attention and experts',
    {
      'blk.0.attn_k_b': 'Q8_0',
      'blk.1.attn_k_b': 'Q8_0',
      'blk.1.ffn_down_exps': 'Q6_K',
      'blk.1.ffn_down_shexp': 'Q6_K',
      output: 'Q6_K',
      '': 'Q4_K',
    },
    'q4_k',
    deepseek,
  ],
  [
    // Where biases begin that can't be bound there.
    'Q4_K with gates, ups, queries, keys and values of other types, and biases',
    {
      'blk.0.attn_output': 'Q8_0',
      'blk.1.attn_output': 'Q8_0',
      'blk.0.attn_k': 'Q5_K',
      'blk.0.attn_v': 'Q6_K',
      'blk.1.attn_v': 'IQ4_XS',
      'blk.0.ffn_up': 'Q5_K',
      'blk.1.ffn_gate': 'F16',
      'blk.1.ffn_up': 'Q6_K',
      '': 'Q4_K',
    },
    'q4_k',
    { ...wide, head_dim: 48, attention_bias: true, mlp_bias: true, intermediate_size: 768 + 256 },
  ],
  [
    'Q4_K with Q5_K, IQ4_XS and Q6_K, latent attention, and gates and ups of experts',
    {
      'blk.0.attn_k_b': 'Q8_0',
      'blk.1.attn_k_b': 'Q8_0',
      'blk.0.attn_kv_a_mqa': 'Q6_K',
      'blk.1.attn_q_a': 'Q5_K',
      'blk.1.ffn_gate_exps': 'IQ4_XS',
      'blk.1.ffn_up_exps': 'Q5_K',
      'blk.1.ffn_up_shexp': 'Q6_K',
      '': 'Q4_K',
    },
    'q4_k',
    deepseek,
  ],
  [
    'Q4_K with Q5_K, Q8_0 and F32, gated delta rules',
    {
      'blk.0.ssm_conv1d': 'F32',
      'blk.0.ssm_beta': 'F32',
      'blk.0.ssm_alpha': 'Q8_0',
      'blk.0.attn_gate': 'Q5_K',
      'blk.1.ffn_up': 'Q5_K',
      '': 'Q4_K',
    },
    'q4_k',
    delta,
  ],
  ['MXFP4', { 'blk.1.ffn_up': 'Q8_0', 'blk.1.attn_q': 'Q5_0', '': 'MXFP4' }, 'mxfp4', small],
  [
    'MXFP4 with Q8_0, latent attention, and ups of experts',
    { 'blk.0.attn_k_b': 'Q8_0', 'blk.1.attn_k_b': 'Q8_0', 'blk.1.ffn_up_exps': 'Q8_0', '': 'MXFP4' },
    'mxfp4',
    deepseek,
  ],
  ['NVFP4, gated delta rules', { 'blk.0.ssm_conv1d': 'F32', token_embd: 'Q8_0', '': 'NVFP4' }, 'nvfp4', delta],
  ['Q3_K', { '': 'Q3_K' }, 'q3_k', wide],
  [
    // As llama-quantize mixes a file of Q2_K.
    'Q2_K with Q3_K, Q4_K and Q6_K',
    {
      'blk.0.attn_v': 'Q4_K',
      'blk.1.attn_v': 'Q3_K',
      'blk.0.attn_output': 'Q3_K',
      'blk.0.ffn_down': 'Q3_K',
      output: 'Q6_K',
      '': 'Q2_K',
    },
    'q2_k',
    wide,
  ],
  [
    'Q3_K with Q2_K, latent attention and experts',
    {
      'blk.0.attn_k_b': 'Q8_0',
      'blk.1.attn_k_b': 'Q8_0',
      'blk.1.ffn_gate': 'Q2_K',
      'blk.1.ffn_up': 'Q2_K',
      '': 'Q3_K',
    },
    'q3_k',
    deepseek,
  ],
  ['IQ4_XS with a table of Q5_K', { token_embd: 'Q5_K', '': 'IQ4_XS' }, 'iq4_xs', wide],
  [
    // As UD files mix them.
    'IQ3_S with IQ3_XXS, IQ2_S, Q4_K and Q6_K',
    {
      'blk.0.attn_v': 'Q4_K',
      'blk.0.ffn_down': 'IQ3_XXS',
      'blk.1.ffn_down': 'Q4_K',
      'blk.1.ffn': 'IQ2_S',
      output: 'Q6_K',
      '': 'IQ3_S',
    },
    'iq3_s',
    wide,
  ],
  [
    'IQ2_XS with IQ2_XXS and IQ3_XXS',
    { 'blk.0.ffn': 'IQ2_XXS', 'blk.1.attn_v': 'IQ3_XXS', token_embd: 'IQ2_S', output: 'IQ2_XXS', '': 'IQ2_XS' },
    'iq2_xs',
    wide,
  ],
  ['IQ1_M with IQ1_S', { 'blk.0': 'IQ1_S', output: 'Q5_K', token_embd: 'IQ1_S', '': 'IQ1_M' }, 'iq1_m', wide],
  ['TQ2_0 with TQ1_0', { 'blk.0': 'TQ1_0', output: 'TQ1_0', '': 'TQ2_0' }, 'tq2_0', wide],
  [
    'NVFP4 with Q1_0 and Q2_0',
    { 'blk.0.ffn': 'Q2_0', 'blk.1.attn': 'Q1_0', output: 'Q1_0', token_embd: 'Q2_0', '': 'NVFP4' },
    'nvfp4',
    wide,
  ],
  [
    'IQ2_S with IQ3_XXS and IQ1_M, latent attention and experts',
    {
      'blk.0.attn_k_b': 'Q8_0',
      'blk.1.attn_k_b': 'Q8_0',
      'blk.1.ffn_down_exps': 'IQ3_XXS',
      'blk.1.ffn_gate_exps': 'IQ1_M',
      'blk.1.ffn_up_exps': 'IQ1_M',
      '': 'IQ2_S',
    },
    'iq2_s',
    deepseek,
  ],
];

/** Of each tensor, or of each expert of a stack, another one. */
const someFactors: GgufOptions['factorsOf'] = (name, shape) => {
  const own =
    0.013 +
    Array.from(name, (letter) => letter.charCodeAt(0)).reduce((sum, code) => (sum * 31 + code) % 1009, 7) / 40_000;
  return Array.from({ length: shape.length > 2 ? shape[0]! : 1 }, (_, expert) => Math.fround(own * (1 + expert / 3)));
};
const dense = { 'blk.1.attn_v': 'Q8_0', token_embd: 'Q8_0', '': 'NVFP4' } as const;
const stacked = {
  'blk.1.ffn_gate_exps': 'NVFP4',
  'blk.1.ffn_up_exps': 'NVFP4',
  'blk.1.ffn_down_exps': 'NVFP4',
  '': 'Q8_0',
} as const;

const MIXERS: Readonly<Record<string, string>> = {
  in_proj_qkv: 'attn_qkv',
  in_proj_z: 'attn_gate',
  in_proj_b: 'ssm_beta',
  in_proj_a: 'ssm_alpha',
  out_proj: 'ssm_out',
};

/** The tensor of a file that has a checkpoint's, and which expert of it that is. */
function storedAs(name: string): readonly [stored: string, expert: number] | undefined {
  const [, mixer, mixes] = /^model\.layers\.(\d)\.linear_attn\.(\w+)\.weight$/.exec(name) ?? [];
  const mixed = mixes && MIXERS[mixes];
  if (mixed) return [`blk.${mixer}.${mixed}.weight`, 0];
  const [, layer, expert = '0', half, part] =
    /^model\.layers\.(\d)\.(?:mlp\.experts\.(\d+)|(self_attn|mlp))\.(\w+)_proj\.weight$/.exec(name) ?? [];
  if (part === undefined) return name === 'lm_head.weight' ? ['output.weight', 0] : undefined;
  const own = part === 'o' ? 'attn_output' : half === 'self_attn' ? `attn_${part}` : `ffn_${part}`;
  return [`blk.${layer}.${own}${half === undefined ? '_exps' : ''}.weight`, Number(expert)];
}

test.each<[string, Types, Record<string, unknown>]>([
  ['of matrices', dense, wide],
  ['of experts', stacked, deepseek],
  // b and a of 6 heads, of 3 on each of two ranks.
  ['of gated delta rules', { 'blk.0.ssm_conv1d': 'F32', ...dense }, delta],
])("NVFP4's factors %s multiply their own numbers", { timeout: 120_000 }, async (_, types, config) => {
  const { file, index, weights, logits } = await fileOf(types, config, someFactors);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const source = await openSource([file]);
  const { tensors } = await openGguf(source, source.gguf!);
  for (const { name, start, shape } of tensors.values())
    if (name.endsWith('.scale')) new Float32Array(bytes.buffer, start, shape[0]).fill(1);
  const plain = await (await openModelFiles(await openSource([new File([bytes], 'm.gguf')]))).reader();
  let scaled = 0;
  for (const [name, { dtype, shape }] of index.tensors) {
    const [stored = '', expert = 0] = storedAs(name) ?? [];
    const own = tensors.get(stored);
    const factor = dtype === 'NVFP4' ? someFactors(stored, own!.shape)![expert]! : 1;
    if (factor !== 1) scaled++;
    const before = await plain.readRows(name, 0, matrixShape({ shape }).rows);
    expect(weights.get(name)!.data, name).toEqual(before.map((value) => value * factor));
  }
  expect(scaled).toBeGreaterThan(10);
  const { rows, tokens } = await logitsOf(file);
  const expected = logits(tokens);
  const largest = Math.max(...expected.flatMap((row) => [...row].map(Math.abs)));
  const worst = Math.max(...rows.flatMap((row, i) => [...row].map((x, id) => Math.abs(x - expected[i]![id]!))));
  expect(worst / largest).toBeLessThan(config === deepseek ? 1e-3 : 1e-5);
  expect((await logitsOf(file, { plan: 'tp', ranks: 2, virtualRanks: true })).rows).toEqual(rows);
});

describe("a file's own numbers, whatever its types", { timeout: 120_000 }, () => {
  test.each(drawn(mixtures, 4, 'mixtures of blocks'))('%s', async (_, types, most, given) => {
    const { file, logits, config, index } = await fileOf(types, given);
    const { rows, tokens, info } = await logitsOf(file);
    const expected = logits(tokens);
    const largest = Math.max(...expected.flatMap((row) => [...row].map(Math.abs)));
    const worst = Math.max(...rows.flatMap((row, i) => [...row].map((x, id) => Math.abs(x - expected[i]![id]!))));
    // What latent attention is absorbed in is f16.
    expect(worst / largest).toBeLessThan(given === deepseek ? 1e-3 : 1e-5);
    expect(info.weights).toBe(most);
    expect(info.weightTypes.map(({ type }) => type)).toContain(most);
    if (most === 'q2_k') expect(mixtureText(info.weightTypes)).toBe('q2_k, q3_k, q6_k, q4_k');
    const vectors = info.weightBytes - info.weightTypes.reduce((sum, { bytes }) => sum + bytes, 0);
    expect(vectors / info.weightBytes).toBeLessThan(0.05);
    expect(vectors).toBeGreaterThan(0);
    expect(info.weightBytes).toBe(weightBytes(config, storedTypes(index, config)).bytes);
    for (const plan of ['tp', 'pp'] as const) {
      const cut = await logitsOf(file, { plan, ranks: 2, virtualRanks: true });
      expect(cut.rows, plan).toEqual(rows);
    }
  });
});

test.each(
  drawn(
    mixtures.filter(([name]) => /other types|of experts$/.test(name)),
    1,
    'adapted mixtures',
  ),
)('adapters add to matrices of several types: %s', { timeout: 120_000 }, async (_, types, __, given) => {
  const { file, weights, config } = await fileOf(types, given);
  const own = randomAdapter(
    { weights },
    { seed: 3, targets: /\.(mlp|self_attn)\.(?!kv_b)[\w.]+_proj(_with_mqa)?\.weight$/ },
  );
  const adapters = { own: [...own.files].map(([name, bytes]) => new File([bytes], name)) };
  const prompt = Array.from({ length: 20 }, (_unused, i) => (i * 37 + 11) % 96);
  const expected = referenceLogits(config, mergedWeights(weights, own, 2), prompt);
  const largest = Math.max(...expected.flatMap((row) => [...row].map(Math.abs)));
  const rowsOf = async (options: LoadOptions) => {
    const model = await load([file], { adapter, adapters, ...options });
    try {
      // The last six as if generated.
      return [...(await model.logits(prompt, { all: true, adapter: 'own', promptLength: 14 })).rows];
    } finally {
      await model.dispose();
    }
  };
  const rows = await rowsOf({});
  const worst = Math.max(...rows.flatMap((row, i) => [...row].map((x, id) => Math.abs(x - expected[i]![id]!))));
  expect(worst / largest).toBeLessThan(given === deepseek ? 1e-3 : 1e-4);
  expect(await rowsOf({ plan: 'tp', ranks: 2, virtualRanks: true })).toEqual(rows);
});

test("a matrix's tensors keep the types that they have", async () => {
  const typesOf = async (mixture: string) => {
    const { config, index } = await fileOf(mixtures.find(([name]) => name === mixture)![1]);
    const types = storedTypes(index, config);
    if (typeof types === 'string') throw new Error('one type');
    return (name: string): string => types.others[`${name}.weight`] ?? types.most;
  };
  const of = await typesOf('Q4_0, Q8_0 and F16');
  const attention = (layer: number): string[] =>
    ['q', 'k', 'v'].map((x) => of(`model.layers.${layer}.self_attn.${x}_proj`));
  expect(attention(0)).toEqual(['q4', 'q8', 'q4']);
  expect(attention(1)).toEqual(['q4', 'q4', 'f16']);
  expect(['gate', 'up', 'down'].map((x) => of(`model.layers.0.mlp.${x}_proj`))).toEqual(['q4', 'q8', 'f16']);
  expect([of('model.embed_tokens'), of('lm_head'), of('model.layers.1.mlp.up_proj')]).toEqual(['f16', 'q8', 'q4']);
  const kept = await typesOf('Q5_0 and IQ4_NL');
  for (const [layer, own] of ['q5_0', 'iq4_nl'].entries()) {
    const up = layer === 0 ? 'q8' : 'q4';
    expect(['gate', 'up', 'down'].map((x) => kept(`model.layers.${layer}.mlp.${x}_proj`))).toEqual([own, up, own]);
  }
});

test('blocks stay what they are, a file of floats has one type', async () => {
  const typesIn = async (types: Types) => {
    const { config, index } = await fileOf(types, {
      ...small,
      hidden_size: 256,
      intermediate_size: 256,
      head_dim: 64,
    });
    return storedTypes(index, config);
  };
  expect(await typesIn({ '': 'MXFP4' })).toBe('mxfp4');
  expect(await typesIn({ output: 'MXFP4', '': 'Q4_0' })).toEqual({ most: 'q4', others: { 'lm_head.weight': 'mxfp4' } });
  for (const type of drawn(KEPT_TYPES, 8, 'kept types'))
    expect(await typesIn({ '': type.toUpperCase() as WritableType })).toBe(type);
  expect(await typesIn({ token_embd: 'F32', '': 'BF16' })).toBe('f16');
});
