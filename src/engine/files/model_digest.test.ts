import { expect, test } from 'vitest';
import type { ModelConfig } from '../../model/config/model_config.js';
import type { TensorReader } from '../../loader/index.js';
import { checkDigest, modelDigest } from './model_digest.js';

const config = (scale: number): ModelConfig => ({ layers: [{ attention: { headDim: 32, scale } }] }) as never;
const reader = (end: number): TensorReader =>
  ({
    index: { tensors: new Map([['a', { file: 'model.safetensors', dtype: 'F16', shape: [2], start: 8, end }]]) },
  }) as never;

test('engines that differ in the last bit of a double have the same model; other widths and places are others', async () => {
  // 32 ** -0.5 in Node 20, and in Chromium.
  const [node, page] = [0.17677669529663687, 0.1767766952966369];
  expect(node).not.toBe(page);
  const expected = await modelDigest(config(node), reader(12));
  expect(await modelDigest(config(page), reader(12))).toBe(expected);
  for (const [scale, end] of [
    [0.125, 12],
    [node, 16],
  ] as const) {
    await expect(checkDigest(expected, config(scale), reader(end))).rejects.toMatchObject({ code: 'format' });
  }
});
