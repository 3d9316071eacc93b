import { describe, expect, test } from 'vitest';
import { modelSizes } from '../../model/model_sizes.js';
import { rankSlice } from '../../model/shape.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { weightBytes } from '../../model/weights/model_map.js';
import { chooseLayers, layerKinds, layerRead, probePlan } from './probe_layers.js';

const { config: llama } = makeRandomModel({
  config: { num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, intermediate_size: 256 },
});
const { config: moe } = makeRandomModel({
  config: { model_type: 'deepseek_v3', num_hidden_layers: 5, first_k_dense_replace: 2 },
});
const sizesOf = (config: typeof llama) => modelSizes(config, 'f32', 'f32');
const chosen = (
  config: typeof llama,
  kind: 'dense' | 'expert',
  part: 'whole' | 'half',
  wanted: number,
  most = Infinity,
) => chooseLayers(config, sizesOf(config), kind, part, wanted, most);

test('kinds that a model has', () => {
  expect(layerKinds(llama)).toEqual(['dense']);
  expect(layerKinds(moe)).toEqual(['dense', 'expert']);
});

describe('layers', () => {
  test('as many as hold the bytes asked for, of one kind', () => {
    expect(chosen(llama, 'dense', 'whole', 1).layers).toEqual([0, 1]);
    expect(chosen(llama, 'dense', 'whole', Infinity).layers).toEqual([0, 6]);
    expect(chosen(moe, 'dense', 'whole', Infinity).layers).toEqual([0, 2]);
    expect(chosen(moe, 'expert', 'whole', Infinity).layers).toEqual([2, 5]);
    const two = 2 * layerRead(chosen(llama, 'dense', 'whole', 1), llama, sizesOf(llama), 0, 1).read;
    expect(chosen(llama, 'dense', 'whole', two).layers).toEqual([0, 2]);
  });

  test('half of a layer is half of its heads, columns and experts', () => {
    expect(chosen(llama, 'dense', 'half', 1)).toMatchObject({ heads: 2, mlp: 4, experts: 0 });
    expect(chosen(moe, 'expert', 'half', 1)).toMatchObject({ heads: 4, mlp: 4, experts: 4 });
    const { config } = makeRandomModel({ config: { num_key_value_heads: 1 } });
    expect(chosen(config, 'dense', 'half', 1)).toMatchObject({ heads: 1, mlp: 4 });
  });

  test('fewer experts where they are too many for the room', () => {
    const { expert } = sizesOf(moe).layers[2]!;
    expect(chosen(moe, 'expert', 'whole', 1, 3 * expert)).toMatchObject({ experts: 3, layers: [2, 3] });
    expect(chosen(moe, 'expert', 'whole', 1, 1)).toMatchObject({ experts: 1, layers: [2, 3] });
  });
});

test('bytes that rows read', () => {
  const held = chosen(llama, 'dense', 'whole', 1);
  const one = layerRead(held, llama, sizesOf(llama), 0, 1);
  expect(one.multiplied).toBe(one.read);
  expect(layerRead(held, llama, sizesOf(llama), 0, 8)).toEqual({ read: one.read, multiplied: 8 * one.read });
  // What the plan of the probe holds is what is counted.
  const small = { ...llama, vocabSize: 32, tieWordEmbeddings: true };
  const slice = rankSlice(probePlan(held, small), 0, small);
  const vocabulary = 32 * small.hiddenSize * 4 + Math.ceil(small.hiddenSize / 32) * 32 * 4;
  expect(weightBytes(small, 'f32', slice).bytes).toBe(one.read + vocabulary);

  // Three of eight experts a row.
  const experts = chosen(moe, 'expert', 'whole', 1);
  const { expert } = sizesOf(moe).layers[2]!;
  const row = layerRead(experts, moe, sizesOf(moe), 2, 1);
  const many = layerRead(experts, moe, sizesOf(moe), 2, 512);
  expect(many.read - row.read).toBeCloseTo(5 * expert, 0);
  expect(many.multiplied).toBeCloseTo(512 * row.multiplied, 0);
});
