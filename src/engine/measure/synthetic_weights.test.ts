import { expect, test } from 'vitest';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { wholeSlice } from '../../model/shape.js';
import { syntheticWeights } from './synthetic_weights.js';

const { config } = makeRandomModel({ config: { hidden_size: 96 } });

/** Rows [2, 5) of a matrix, its columns [start, end). */
async function columns(start: number, end: number): Promise<number[][]> {
  const { index, source } = syntheticWeights(config, wholeSlice(config));
  const slice = index.tensors.get('model.layers.0.self_attn.q_proj.weight')!.slice!(source, start, end);
  const out = new Float32Array(3 * (end - start));
  (await slice.read(2, 5, undefined)).convertTo(out);
  return Array.from({ length: 3 }, (_, row) => [...out.subarray(row * (end - start), (row + 1) * (end - start))]);
}

test('a slice of columns is that of the whole matrix', async () => {
  const whole = await columns(0, 96);
  expect(await columns(32, 64)).toEqual(whole.map((row) => row.slice(32, 64)));
  expect(new Set(whole.flat()).size).toBeGreaterThan(200);
});
