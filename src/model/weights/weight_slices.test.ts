import { describe, expect, it } from 'vitest';
import { unpackTiles, WEIGHT_TYPES, type WeightType } from '../../../shaders/linear/pack.js';
import { Buffer, type Device, type Tensor } from '../../gpu/index.js';
import { describeOnAdapters } from '../../gpu/testing/adapters.js';
import { TensorReader } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import type { Plan } from '../../placement/plan.js';
import type { GqaWeights } from '../layers/attention/gqa_weights.js';
import { type HalfWeights, loadModelWeights, type WeightProgress } from './weight_loader.js';
import { type Matrix, shardTensors } from './matrix.js';
import { rankSlice } from '../shape.js';
import { handPlan, type HandStage, range } from '../testing/plans.js';
import { makeRandomModel, type RandomModel, type RandomModelOptions } from '../testing/random_model.js';
import {
  type Expected,
  expectedBytes,
  expectedLayer,
  expectedVocabulary,
  packedValues,
} from '../testing/reference/slice.js';
import { weightBytes } from './model_map.js';
import { drawn } from '../../gpu/testing/draw.js';

interface Case {
  readonly model: RandomModelOptions;
  readonly stages: (layers: number) => readonly HandStage[];
  readonly vocabulary?: Parameters<typeof handPlan>[2];
  readonly types?: readonly WeightType[];
}

const all = range(0, 8);
const cases: Record<string, Case> = {
  'three kv heads over two ranks, a width of 172, biases on q, k and v': {
    model: {
      config: {
        model_type: 'qwen2',
        hidden_size: 72,
        num_attention_heads: 3,
        num_key_value_heads: 3,
        head_dim: 24,
        intermediate_size: 172,
        vocab_size: 330,
      },
    },
    stages: (layers) => [
      {
        layers: [0, layers],
        heads: [[0, 1], [2]],
        mlp: [range(0, 5), range(5, 8)],
      },
    ],
    vocabulary: {
      head: [
        { rank: 1, rows: [0, 128] },
        { rank: 0, rows: [128, 330] },
      ],
    },
  },
  'heads anywhere, copies, other places in every layer': {
    model: {
      config: {
        model_type: 'qwen2',
        hidden_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: 10,
        num_key_value_heads: 5,
        head_dim: 8,
        intermediate_size: 100,
      },
    },
    stages: () => [
      { layers: [0, 1], heads: [[0, 2, 4], [], [1, 2, 3]], mlp: [range(0, 3), range(3, 6), range(6, 8)] },
      {
        layers: [1, 2],
        heads: [
          [1, 3],
          [0, 2, 4],
          [0, 4],
        ],
        mlp: [range(0, 3), range(3, 6), range(6, 8)],
      },
    ],
    vocabulary: { head: [{ rank: 2, rows: [0, 320] }] },
  },
  'every bias, a rank of the cache alone, a rank of columns alone': {
    model: {
      config: {
        hidden_size: 40,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 8,
        intermediate_size: 100,
        attention_bias: true,
        mlp_bias: true,
      },
      dtype: 'BF16',
      shards: 2,
    },
    stages: (layers) => [{ layers: [0, layers], heads: [[0, 1], [], []], mlp: [range(0, 3), [], range(3, 8)] }],
    vocabulary: { head: [{ rank: 2, rows: [0, 320] }] },
  },
  'stages of uneven ranks, norms on q and k': {
    model: { config: { model_type: 'qwen3', num_hidden_layers: 3 }, dtype: 'F16' },
    stages: () => [
      { layers: [0, 2], heads: [[0, 1]], mlp: [all] },
      { layers: [2, 3], heads: [[0], [1]], mlp: [[0, 1], range(2, 8)], firstRank: 1 },
    ],
    vocabulary: { head: [{ rank: 2, rows: [0, 320] }] },
  },
  replicas: {
    model: { config: { num_key_value_heads: 4 } },
    stages: (layers) => [
      {
        layers: [0, layers],
        heads: [[0], [1, 2, 3], [0], [1, 2, 3]],
        mlp: [range(0, 3), range(3, 8), range(0, 3), range(3, 8)],
      },
    ],
    types: ['q8'],
  },
  'a tied table: the same rows on rank 0 only': {
    model: { config: { tie_word_embeddings: true } },
    stages: (layers) => [{ layers: [0, layers], heads: [[0], [1]], mlp: [range(0, 4), range(4, 8)] }],
    vocabulary: {
      embedding: [
        { rank: 0, rows: [0, 128] },
        { rank: 1, rows: [128, 320] },
      ],
      head: [
        { rank: 0, rows: [0, 128] },
        { rank: 1, rows: [128, 192] },
      ],
    },
  },
  'latent attention: three heads in eight groups, experts and shared ones over three ranks': {
    model: { config: { model_type: 'deepseek_v3', attention_bias: true } },
    stages: (layers) => [
      {
        layers: [0, layers],
        heads: [[0, 1], range(2, 5), range(5, 8)],
        mlp: [range(0, 3), range(3, 6), range(6, 8)],
        experts: [range(0, 3), range(3, 6), range(6, 8)],
      },
    ],
    vocabulary: {
      embedding: [
        { rank: 0, rows: [0, 64] },
        { rank: 1, rows: [64, 256] },
        { rank: 2, rows: [256, 320] },
      ],
    },
  },
  'latent attention without a bottleneck, experts on ranks of their own': {
    model: { config: { model_type: 'deepseek_v2', num_attention_heads: 5, n_shared_experts: null }, dtype: 'BF16' },
    stages: (layers) => [
      { layers: [0, 1], heads: [range(0, 5), range(5, 8)], mlp: [range(0, 3), range(3, 8)], experts: [[], []] },
      {
        layers: [1, layers],
        heads: [range(0, 6), range(6, 8), []],
        mlp: [[], [], []],
        experts: [[0], range(1, 7), [7]],
      },
    ],
  },
  'latent attention, tied, without experts': {
    model: { config: { model_type: 'minicpm3', num_attention_heads: 8 } },
    stages: (layers) => [
      { layers: [0, layers], heads: all.map((head) => [head]), mlp: all.map((segment) => [segment]) },
    ],
    types: ['q4'],
  },
};

/** Loaded weights as one flat record: nested names joined by dots, nothing but what is there. */
function flat(weights: object, prefix = ''): Record<string, Matrix | Buffer> {
  return Object.fromEntries(
    Object.entries(weights).flatMap(([name, value]) => {
      if (value instanceof Buffer || (typeof value === 'object' && value !== null && 'shards' in value)) {
        return [[`${prefix}${name}`, value]];
      }
      if (name === 'o' && Array.isArray(value)) return outputs(value);
      if (name === 'attention' || name === 'mlp') {
        const { before, weights: own } = value as HalfWeights<object>;
        return [[name === 'attention' ? 'inputNorm' : 'postNorm', before!.weight], ...Object.entries(flat(own))];
      }
      if (name === 'kvUp' && value) return Object.entries(flat(value));
      return name === 'shared' && value ? Object.entries(flat(value, 'shared.')) : [];
    }),
  );
}

/** o_proj, run by run of heads: 'o', or 'o' and the first head of each. */
const outputs = (runs: GqaWeights['o']): [string, Matrix][] =>
  runs.map(({ matrix, segments }) => [runs.length === 1 ? 'o' : `o.${segments.first}`, matrix]);

const opened = async ({ files }: RandomModel): Promise<{ source: MemorySource; reader: TensorReader }> => {
  const source = new MemorySource(Object.fromEntries(files));
  const reader = await TensorReader.open(source);
  source.reads.length = 0;
  return { source, reader };
};

async function unpacked(device: Device, matrix: Matrix, columns: number): Promise<Float32Array> {
  const values = new Float32Array(matrix.outFeatures * columns);
  const read = async (tensor: Tensor): Promise<Uint32Array<ArrayBuffer>> =>
    new Uint32Array(
      await ('buffer' in tensor ? device.read(tensor.buffer, tensor.offset, tensor.size) : device.read(tensor)),
    );
  for (const shard of matrix.shards) {
    const { firstRow, rows } = shard;
    const { weight, scale } = shardTensors(shard);
    const packed = { weight: await read(weight), scale: scale && (await read(scale)) };
    values.set(unpackTiles(matrix.type, packed, rows, columns), firstRow * columns);
  }
  return values;
}

/** What a rank holds, layer by layer and then the vocabulary's, by the plan alone. */
function expectedRank(
  { config, weights }: RandomModel,
  plan: Plan,
  rank: number,
  type: WeightType,
): { readonly layers: ReadonlyMap<number, Expected>; readonly vocabulary: Expected } {
  const layers = new Map<number, Expected>();
  for (const { layers: span, shares } of plan.stages) {
    const share = shares.find((candidate) => candidate.rank === rank);
    if (!share || share.heads.length + share.mlp.length + share.experts.length === 0) continue;
    for (const index of range(...span)) layers.set(index, expectedLayer(config, weights, type, index, share));
  }
  const ofRank = (candidate: { readonly rank: number }): boolean => candidate.rank === rank;
  return {
    layers,
    vocabulary: expectedVocabulary(config, weights, type, plan.embedding.find(ofRank), plan.head.find(ofRank)),
  };
}

async function expectSame(device: Device, actual: Record<string, Matrix | Buffer>, expected: Expected): Promise<void> {
  expect(Object.keys(actual).sort()).toEqual(Object.keys(expected).sort());
  for (const [name, wanted] of Object.entries(expected)) {
    const found = actual[name]!;
    if ('values' in wanted) {
      const values = new Float32Array(await device.read(found as Buffer));
      const padded = new Float32Array(Math.ceil(wanted.values.length / 32) * 32);
      padded.set(wanted.values);
      expect(values, name).toEqual(padded);
      continue;
    }
    const matrix = found as Matrix;
    const [begin, end] = wanted.columns;
    expect(matrix, name).toMatchObject({
      type: wanted.type,
      outFeatures: wanted.rows.length,
      inFeatures: wanted.activations,
    });
    const values = await unpacked(device, matrix, end - begin);
    const right = packedValues(wanted);
    expect(values.length, name).toBe(right.length);
    const wrong = values.findIndex((value, i) => value !== right[i]);
    expect(wrong, `${name}: first element that differs`).toBe(-1);
  }
}

const numbersOf = (expected: Expected): number =>
  Object.values(expected).reduce((sum, { numbers }) => sum + numbers, 0);

await describeOnAdapters('a rank loads its slices', (device) => {
  describe.each(Object.entries(cases))('%s', (name, { model: options, stages, vocabulary, types = WEIGHT_TYPES }) => {
    const model = makeRandomModel(options);
    const { config } = model;
    const plan = handPlan(config, stages(config.layers.length), vocabulary);

    it.each(drawn(types, 2, name))('%s: the values of the whole model, its bytes, its numbers', async (type) => {
      for (const rank of range(0, plan.worldSize)) {
        const { reader, source } = await opened(model);
        const slice = rankSlice(plan, rank, config);
        const { layers, vocabulary: words } = expectedRank(model, plan, rank, type);
        const before = device().usage.bytes;
        const progress: WeightProgress[] = [];
        const loaded = await loadModelWeights(device(), config, reader, type, {
          slice,
          onProgress: (step) => progress.push(step),
        });
        const everything = [...layers.values(), words];
        const bytes = everything.reduce((sum, expected) => sum + expectedBytes(expected), 0);
        const numbers = everything.reduce((sum, expected) => sum + numbersOf(expected), 0);
        expect(device().usage.bytes - before).toBe(bytes);
        expect(loaded).toMatchObject({ bytes, type });
        expect(weightBytes(config, type, slice)).toEqual({ bytes, parameters: numbers });

        expect(loaded.layers.map(({ index }) => index)).toEqual([...layers.keys()]);
        for (const layer of loaded.layers) await expectSame(device(), flat(layer), layers.get(layer.index)!);
        const { embedding, head, norm } = loaded;
        const own = {
          ...(embedding && { embedding: embedding.matrix }),
          ...(norm && { norm: norm.weight }),
          ...(head && head !== embedding && { head: head.matrix }),
        };
        await expectSame(device(), own, words);
        const firstRow = (list: Plan['head']): number | undefined => list.find((share) => share.rank === rank)?.rows[0];
        expect(embedding?.firstRow).toBe(firstRow(plan.embedding));
        expect(head?.firstRow).toBe(firstRow(plan.head));

        expectProgress(progress, reader, numbers);
        const read = source.reads.reduce((sum, { start, end }) => sum + end - start, 0);
        expect(read).toBeGreaterThanOrEqual(progress.at(-1)?.totalBytes ?? 0);
      }
    });
  });
});

/** Vectors in a model of mixed types may be F32: bytes are those of the tensors' own types. */
function expectProgress(progress: readonly WeightProgress[], reader: TensorReader, numbers: number): void {
  if (numbers === 0) {
    expect(progress).toEqual([]);
    return;
  }
  const last = progress.at(-1)!;
  expect(last.loadedBytes).toBe(last.totalBytes);
  expect(last.tensorsLoaded).toBe(last.tensorsTotal);
  expect(progress.every(({ totalBytes, loadedBytes }) => loadedBytes <= totalBytes)).toBe(true);
  const widths = new Set([...reader.index.tensors.values()].map(({ dtype }) => (dtype === 'F32' ? 4 : 2)));
  if (widths.size === 1) expect(last.totalBytes).toBe(numbers * [...widths][0]!);
}
