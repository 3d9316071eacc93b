import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packTiles, unpackTiles } from '../../../shaders/linear/pack.js';
import { Random } from '../../base/random.js';
import { converter } from '../../loader/convert.js';
import { encodeAs } from '../../loader/gguf/testing/quantise.js';
import { openGguf, TensorReader } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import { attentionOf, isRecurrent, type ModelConfig } from '../config/model_config.js';
import { ggufArchitecture, ggufConfig } from './config.js';
import { ggufTensorIndex } from './tensors.js';
import { ropeTable } from '../layers/attention/rope_table.js';
import { ggufContents, modelToGguf } from '../testing/gguf/model.js';
import { f32, type GgufTensor, type GgufValue, text, u32, writeGguf } from '../testing/gguf/file.js';
import { makeRandomModel } from '../testing/random_model.js';

const generation = { eos_token_id: [2], bos_token_id: 1 };

async function open(bytes: Uint8Array): Promise<{ config: ModelConfig; reader: TensorReader; source: MemorySource }> {
  const source = new MemorySource({ 'model.gguf': bytes });
  const gguf = await openGguf(source, 'model.gguf');
  const config = await ggufConfig(source, gguf, generation);
  return {
    config,
    reader: new TensorReader(source, ggufTensorIndex(gguf, await ggufArchitecture(gguf), config)),
    source,
  };
}

const sameBits = (a: Float32Array, b: Float32Array): boolean =>
  Buffer.compare(
    new Uint8Array(a.buffer, a.byteOffset, a.byteLength),
    new Uint8Array(b.buffer, b.byteOffset, b.byteLength),
  ) === 0;

const llama3 = {
  rope_type: 'llama3',
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 64,
};
const yarn = {
  type: 'yarn',
  factor: 40,
  beta_fast: 32,
  beta_slow: 1,
  original_max_position_embeddings: 128,
  mscale: 0.707,
  mscale_all_dim: 0.707,
};
const longrope = {
  rope_type: 'longrope',
  original_max_position_embeddings: 64,
  factor: 1,
  short_factor: [1, 1.1, 1.2, 1.3, 1.5, 1.8, 2, 2.5],
  long_factor: [1, 1.5, 2, 3, 5, 8, 13, 20],
};
const v3 = { model_type: 'deepseek_v3' };
const minicpm3 = { model_type: 'minicpm3', scale_emb: 12, scale_depth: 1.4, dim_model_base: 256 };
// Models that reference.test.ts compares with llama.cpp, so that the files written here are what llama.cpp reads.
const cases: [name: string, config: Record<string, unknown>][] = [
  ['llama', {}],
  ['llama, tied, wide heads, one kv head', { tie_word_embeddings: true, head_dim: 40, num_key_value_heads: 1 }],
  ['llama with biases', { attention_bias: true, mlp_bias: true }],
  ['llama with llama3 rope', { rope_scaling: llama3, rope_theta: 500000 }],
  ['llama with linear rope', { rope_scaling: { type: 'linear', factor: 4 } }],
  ['mistral', { model_type: 'mistral' }],
  ['qwen2', { model_type: 'qwen2', rope_theta: 1e6, rms_norm_eps: 1e-6 }],
  ['qwen2, tied', { model_type: 'qwen2', tie_word_embeddings: true }],
  ['qwen3', { model_type: 'qwen3', head_dim: 32 }],
  ['deepseek_v2 without q_lora', { model_type: 'deepseek_v2', num_hidden_layers: 27 }],
  [
    'deepseek_v2 with q_lora, normalised weights, YaRN',
    { model_type: 'deepseek_v2', q_lora_rank: 48, norm_topk_prob: true, rope_scaling: yarn },
  ],
  ['deepseek_v3 with groups', v3],
  ['deepseek_v3 without groups', { ...v3, n_group: 1, topk_group: 1 }],
  ['minicpm3', minicpm3],
  ['minicpm3 with longrope', { ...minicpm3, rope_scaling: longrope }],
];

describe('a GGUF file says what the checkpoint it was made from says', () => {
  it.each(cases)('%s', async (name, changes) => {
    const { config, weights } = makeRandomModel({ config: changes, seed: name.length });
    const read = await open(modelToGguf(config, weights));

    // The stretch of rotary frequencies is written in other ways, in f32: what it comes to is compared below.
    const plain = ({ layers, ...rest }: ModelConfig): object => ({
      ...rest,
      layers: layers.map(({ attention, mlp }) => {
        if (isRecurrent(attention)) throw new Error('no such layers');
        const { scale: _scale, ...others } = attention;
        return { mlp, attention: { ...others, rope: { ...attention.rope, scaling: null } } };
      }),
    });
    const architecture = config.architecture === 'mistral' ? 'llama' : config.architecture;
    expect(plain(read.config)).toEqual({ ...plain(config), architecture });
    expect(attentionOf(read.config).scale).toBeCloseTo(attentionOf(config).scale, 7);
    const [got, expected] = [read.config, config].map((one) => ropeTable(attentionOf(one).rope!, 300));
    expect(Math.max(...got!.map((value, i) => Math.abs(value - expected![i]!)))).toBeLessThan(1e-4);

    expect([...read.reader.index.tensors.keys()].sort()).toEqual([...weights.keys()].sort());
    for (const [tensor, { shape, data }] of weights) {
      expect(read.reader.entry(tensor).shape, tensor).toEqual(shape);
      expect(sameBits(await read.reader.readVector(tensor), data), tensor).toBe(true);
    }
    expect(read.reader.index.totalBytes).toBe(
      [...weights.values()].reduce((sum, { data }) => sum + data.byteLength, 0),
    );
  });

  it('also where kv_b_proj is whole, with the widths that files had before attention over the latent', async () => {
    const { config, weights } = makeRandomModel({ config: v3 });
    const { heads, qkNopeHeadDim, qkRopeHeadDim, vHeadDim } = attentionOf(config, 'mla');
    const { metadata, tensors } = ggufContents(config, weights);
    const old = { ...metadata };
    old['deepseek2.attention.key_length'] = u32(qkNopeHeadDim + qkRopeHeadDim);
    old['deepseek2.attention.value_length'] = u32(vHeadDim);
    old['deepseek2.attention.head_count_kv'] = u32(heads);
    delete old['deepseek2.attention.key_length_mla'];
    delete old['deepseek2.attention.value_length_mla'];
    const whole = tensors.filter(({ name }) => !/attn_[kv]_b/.test(name));
    for (let layer = 0; layer < config.layers.length; layer++) {
      const { shape, data } = weights.get(`model.layers.${layer}.self_attn.kv_b_proj.weight`)!;
      whole.push({ name: `blk.${layer}.attn_kv_b.weight`, shape, data });
    }
    const read = await open(writeGguf(old, whole));
    expect(attentionOf(read.config)).toMatchObject({ qkNopeHeadDim, vHeadDim });
    const name = 'model.layers.1.self_attn.kv_b_proj.weight';
    expect(sameBits(await read.reader.readVector(name), weights.get(name)!.data)).toBe(true);
  });
});

it('linear attention whose projections are one matrix, and layers that predict further tokens', async () => {
  const { config, weights } = makeRandomModel({
    config: {
      model_type: 'qwen3_next',
      head_dim: 32,
      layer_types: ['full_attention', 'linear_attention'],
      linear_num_key_heads: 2,
      linear_num_value_heads: 6,
      linear_key_head_dim: 8,
      linear_value_head_dim: 8,
      num_experts: 4,
      num_experts_per_tok: 2,
      moe_intermediate_size: 24,
      shared_expert_intermediate_size: 24,
    },
  });
  const { metadata, tensors } = ggufContents(config, weights);
  const whole = tensors.filter(({ name }) => !/attn_(qkv|gate)/.test(name));
  const name = 'model.layers.1.linear_attn.in_proj_qkvz.weight';
  const { shape, data } = weights.get(name)!;
  whole.push({ name: 'blk.1.ssm_in.weight', shape, data });
  const further = {
    ...metadata,
    'qwen3next.block_count': u32(3),
    'qwen3next.nextn_predict_layers': u32(1),
    'qwen3next.attention.recurrent_layers': { type: 'i32[]' as const, value: [0, 1, 0] },
  };
  const read = await open(writeGguf(further, whole));
  expect(read.config.layers.map(({ attention }) => attention.kind)).toEqual(['gqa', 'delta']);
  expect([...read.reader.index.tensors.keys()].sort()).toEqual([...weights.keys()].sort());
  expect(sameBits(await read.reader.readVector(name), data)).toBe(true);
});

it("Qwen3.5's own head: the block behind the others, and its parts", async () => {
  const { config, weights } = makeRandomModel({
    config: {
      model_type: 'qwen3_5_text',
      num_hidden_layers: 4,
      head_dim: 32,
      linear_num_key_heads: 2,
      linear_num_value_heads: 4,
      linear_key_head_dim: 16,
      linear_value_head_dim: 16,
      mtp_num_hidden_layers: 1,
    },
  });
  const own = /^mtp\.(fc|norm|pre_fc_norm_embedding|pre_fc_norm_hidden)\.weight$/;
  const block = new Map(
    [...weights].flatMap(([name, tensor]) =>
      own.test(name) ? [] : [[name.replace('mtp.layers.0', 'model.layers.4'), tensor] as const],
    ),
  );
  const layers = [...config.layers, config.mtp!.layer];
  const { metadata, tensors } = ggufContents({ ...config, layers, mtp: undefined }, block);
  const parts = {
    fc: 'eh_proj',
    norm: 'shared_head_norm',
    pre_fc_norm_embedding: 'enorm',
    pre_fc_norm_hidden: 'hnorm',
  };
  const nextn = Object.entries(parts).map(([name, part]) => {
    const { shape, data } = weights.get(`mtp.${name}.weight`)!;
    return { name: `blk.4.nextn.${part}.weight`, shape, data: name === 'fc' ? data : data.map((w) => w + 1) };
  });
  const read = await open(writeGguf({ ...metadata, 'qwen35.nextn_predict_layers': u32(1) }, [...tensors, ...nextn]));
  expect(read.config.layers).toHaveLength(4);
  expect(read.config.mtp).toEqual({ layer: read.config.layers[3], tensors: config.mtp!.tensors });
  expect([...read.reader.index.tensors.keys()].sort()).toEqual([...weights.keys()].sort());
  for (const [name, { shape, data }] of weights) {
    if (!name.startsWith('mtp.')) continue;
    expect(read.reader.entry(name).shape, name).toEqual(shape);
    const stored = await read.reader.readVector(name);
    expect(sameBits(stored, /norm/.test(name) ? data.map((w) => w + 1) : data), name).toBe(true);
  }
});

it('experts whose gates and ups are one stack', async () => {
  const { config, weights } = makeRandomModel({
    config: { model_type: 'qwen3_moe', num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24 },
  });
  const { metadata, tensors } = ggufContents(config, weights);
  const apart = /ffn_(gate|up)_exps/;
  const stacks = tensors
    .filter(({ name }) => name.includes('ffn_gate_exps'))
    .map(({ name, shape, data }) => {
      const up = tensors.find((other) => other.name === name.replace('gate', 'up'))!.data;
      const each = data.length / 4;
      const both = [0, 1, 2, 3].flatMap((expert) =>
        [data, up].flatMap((half) => [...half.subarray(expert * each, (expert + 1) * each)]),
      );
      return {
        name: name.replace('gate', 'gate_up'),
        shape: [4, 2 * shape[1]!, shape[2]!],
        data: Float32Array.from(both),
      };
    });
  const read = await open(writeGguf(metadata, [...tensors.filter(({ name }) => !apart.test(name)), ...stacks]));
  for (const [name, { data }] of weights) expect(sameBits(await read.reader.readVector(name), data), name).toBe(true);
});

describe('rows whose order or place in the file is another', () => {
  const llama = makeRandomModel({});
  const deepseek = makeRandomModel({ config: v3 });
  const span = (size: number) =>
    fc.tuple(fc.nat(size), fc.nat(size)).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const);

  it.each([
    ['rotated rows', llama, 'model.layers.0.self_attn.q_proj.weight'],
    ['an expert', deepseek, 'model.layers.1.mlp.experts.3.up_proj.weight'],
    ['kv_b_proj of its halves', deepseek, 'model.layers.1.self_attn.kv_b_proj.weight'],
  ])('any rows and columns: %s', async (_name, { config, weights }, tensor) => {
    const { reader } = await open(modelToGguf(config, weights));
    const { shape, data } = weights.get(tensor)!;
    const [rows, columns] = shape as [number, number];
    await fc.assert(
      fc.asyncProperty(span(rows), span(columns), async ([r0, r1], [c0, c1]) => {
        const expected: number[] = [];
        for (let row = r0; row < r1; row++) expected.push(...data.subarray(row * columns + c0, row * columns + c1));
        const got = await reader.readRows(tensor, r0, r1, { columns: [c0, c1] });
        expect(sameBits(got, Float32Array.from(expected))).toBe(true);
      }),
      { numRuns: 80 },
    );
    const streamed: number[] = [];
    let bytes = 0;
    for await (const piece of reader.streamRows(tensor, { pieceBytes: 2000, onBytes: (more) => (bytes += more) }))
      streamed.push(...piece.data);
    expect(sameBits(Float32Array.from(streamed), data)).toBe(true);
    expect(bytes).toBeCloseTo(reader.byteLength(tensor), 6);
  });

  it('reads the bytes of one expert, and of one head, not those of the others', async () => {
    const { config, weights } = deepseek;
    const { reader, source } = await open(modelToGguf(config, weights));
    source.reads.length = 0;
    const expert = weights.get('model.layers.1.mlp.experts.3.up_proj.weight')!;
    await reader.readVector('model.layers.1.mlp.experts.3.up_proj.weight');
    expect(source.reads.map(({ start, end }) => end - start)).toEqual([expert.data.byteLength]);
    source.reads.length = 0;
    const { kvLoraRank, qkNopeHeadDim, vHeadDim } = attentionOf(config, 'mla');
    const head = qkNopeHeadDim + vHeadDim;
    await reader.readRows('model.layers.1.self_attn.kv_b_proj.weight', head, 2 * head);
    expect(source.reads.map(({ start, end }) => end - start)).toEqual([
      qkNopeHeadDim * kvLoraRank * 4,
      vHeadDim * kvLoraRank * 4,
    ]);
  });
});

it.each([
  ['Q4_0', 'q4'],
  ['Q8_0', 'q8'],
] as const)('%s loses nothing as %s', (stored, kept) => {
  const values = new Random(2).normals(64 * 96);
  const bytes = encodeAs(stored, values);
  converter(stored, bytes)(0, values.length, values, 0);
  expect(sameBits(unpackTiles(kept, packTiles(kept, values, 64, 96), 64, 96), values)).toBe(true);
});

describe('what is no model for this runtime', () => {
  const { config, weights } = makeRandomModel({});
  const contents = ggufContents(config, weights);
  const v3Model = makeRandomModel({ config: v3 });
  const v3Contents = ggufContents(v3Model.config, v3Model.weights);
  type Contents = { metadata: Record<string, GgufValue>; tensors: readonly GgufTensor[] };
  const change = (keys: Record<string, GgufValue>, from: Contents = contents): Contents => ({
    metadata: { ...from.metadata, ...keys },
    tensors: from.tensors,
  });
  const without = (key: string): Contents => ({
    metadata: Object.fromEntries(Object.entries(contents.metadata).filter(([name]) => name !== key)),
    tensors: contents.tensors,
  });
  const reshaped = (name: string, shape: number[]): Contents => ({
    metadata: v3Contents.metadata,
    tensors: v3Contents.tensors.map((tensor) => (tensor.name === name ? { ...tensor, shape } : tensor)),
  });

  it.each<[name: string, contents: Contents, code: string, message: RegExp]>([
    [
      'another architecture',
      change({ 'general.architecture': text('qwen4') }),
      'unsupported',
      /'qwen4'.*Did you mean 'qwen2'/,
    ],
    ['Gemma 3n', change({ 'general.architecture': text('gemma3n') }), 'unsupported', /AltUp/],
    [
      'Mamba of another form',
      change({ 'general.architecture': text('falcon-h1') }),
      'unsupported',
      /Mamba.*granite-4.0-h-1b/,
    ],
    ['no architecture', without('general.architecture'), 'format', /general\.architecture is null/],
    ['an adapter', change({ 'general.type': text('adapter') }), 'unsupported', /"adapter"; expected a 'model'/],
    [
      'a missing key',
      without('llama.block_count'),
      'config',
      /model\.gguf of memory: the key 'llama\.block_count' is missing/,
    ],
    ['a key of the wrong kind', change({ 'llama.block_count': text('2') }), 'config', /llama\.block_count is "2"/],
    ['an impossible value', change({ 'llama.embedding_length': u32(0) }), 'config', /embedding_length is 0/],
    [
      'layers that differ',
      change({ 'llama.feed_forward_length': { type: 'i32[]', value: [128, 64] } }),
      'unsupported',
      /differs from layer to layer/,
    ],
    [
      'experts in llama, chosen how?',
      change({ 'llama.expert_count': u32(8) }),
      'config',
      /'llama\.expert_used_count' is missing/,
    ],
    [
      'a partly rotated head',
      change({ 'llama.rope.dimension_count': u32(8) }),
      'unsupported',
      /rope\.dimension_count 8/,
    ],
    ['a sliding window', change({ 'llama.attention.sliding_window': u32(512) }), 'unsupported', /sliding_window 512/],
    ['scaled logits', change({ 'llama.logit_scale': f32(0.5) }), 'unsupported', /logit_scale 0\.5/],
    ['another stretch', change({ 'llama.rope.scaling.type': text('ntk') }), 'unsupported', /rope\.scaling\.type "ntk"/],
    [
      'half a YaRN',
      change({ 'llama.rope.scaling.type': text('yarn'), 'llama.rope.scaling.yarn_ext_factor': f32(0.5) }),
      'unsupported',
      /yarn_ext_factor 0\.5/,
    ],
    [
      'longrope without factors',
      change({ 'llama.rope.scaling.type': text('longrope') }),
      'unsupported',
      /rope_factors_short/,
    ],
    [
      'a scale of attention alone',
      change({ 'llama.rope.scaling.attn_factor': f32(1.5) }),
      'unsupported',
      /attn_factor 1\.5/,
    ],
    [
      'a factor of NVFP4 for each row',
      {
        ...contents,
        tensors: [
          ...contents.tensors.map((tensor) => ({
            ...tensor,
            type: tensor.name === 'blk.0.attn_q.weight' ? ('NVFP4' as const) : undefined,
          })),
          { name: 'blk.0.attn_q.scale', shape: [2], data: Float32Array.of(0.5, 1) },
        ],
      },
      'format',
      /'blk\.0\.attn_q\.scale' has shape \[2\]; expected \[1\]/,
    ],
    ['no embedding', { ...contents, tensors: contents.tensors.slice(1) }, 'format', /no tensor 'token_embd\.weight'/],
    [
      'another gating',
      change({ 'deepseek2.expert_gating_func': u32(3) }, v3Contents),
      'unsupported',
      /expert_gating_func 3/,
    ],
    [
      'too few experts in a stack',
      change({ 'deepseek2.expert_count': u32(12) }, v3Contents),
      'format',
      /ffn_\w+_exps.*\[8, .*for 12 experts/,
    ],
    [
      'halves of another shape',
      reshaped('blk.0.attn_k_b.weight', [3, 24, 32]),
      'format',
      /attn_k_b.*\[3, 24, 32\]; expected \[3, 32, 24\]/,
    ],
  ])('%s', async (_name, { metadata, tensors }, code, message) => {
    await expect(open(writeGguf(metadata, tensors))).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
  });

  it('a rotated tensor of another shape is refused where its shape is looked at', async () => {
    const tensors = contents.tensors.map((tensor) =>
      tensor.name === 'blk.0.attn_q.weight' ? { ...tensor, shape: [32, 128] } : tensor,
    );
    const { reader } = await open(writeGguf(contents.metadata, tensors));
    expect(() => reader.expectTensor('model.layers.0.self_attn.q_proj.weight', [64, 64])).toThrow(/\[32, 128\]/);
  });

  it('reads YaRN of a llama, uniform lists, layers that predict further tokens', async () => {
    const { metadata, tensors } = change({
      'llama.rope.scaling.type': text('yarn'),
      'llama.rope.scaling.factor': f32(4),
      'llama.rope.scaling.original_context_length': u32(256),
      'llama.attention.head_count_kv': { type: 'i32[]', value: [2, 2] },
      'llama.nextn_predict_layers': u32(1),
    });
    const read = await open(writeGguf(metadata, tensors));
    expect(read.config.layers).toHaveLength(1);
    const { kvHeads, rope } = attentionOf(read.config, 'gqa');
    expect(kvHeads).toBe(2);
    expect(rope?.scaling).toEqual({
      type: 'yarn',
      factor: 4,
      originalMaxPositions: 256,
      betaFast: 32,
      betaSlow: 1,
      mscaleAllDim: 0,
      attentionFactor: 1 + 0.1 * Math.log(4),
    });
    expect([...read.reader.index.tensors.keys()].some((name) => name.includes('layers.1.'))).toBe(false);
  });
});
