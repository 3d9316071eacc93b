import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { describeOnAdapters } from '../../gpu/testing/adapters.js';
import { readTensorIndex, TensorReader } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import { patchOrder } from '../config/vision_config.js';
import { makeRandomVision, type RandomVision, type RandomVisionOptions } from '../testing/random_vision.js';
import { gemma3Rows, idefics3Rows } from '../testing/reference/vision.js';
import { asNamed } from '../weights/stored_names.js';
import { loadEncoder } from './encoder.js';
import { patchRows } from './patch_rows.js';

/** Odd numbers of patches, of heads and of elements; chunks of 256 patches and beyond. */
const cases: Record<string, RandomVisionOptions> = {
  '4 x 4 patches': { seed: 3 },
  '9 x 9 patches, joined by threes, heads of 8': {
    seed: 4,
    scale: 3,
    tower: { image: 38, patch: 4, heads: 8, width: 100 },
    text: { hidden_size: 48, num_attention_heads: 3, num_key_value_heads: 1 },
  },
  'averaged by twos': { seed: 6, kind: 'gemma3' },
  '12 x 12 patches, averaged by threes, heads of 72': {
    seed: 7,
    kind: 'gemma3',
    scale: 3,
    tower: { image: 25, patch: 2, hidden: 576, heads: 8, layers: 1 },
    text: { sliding_window: 50 },
  },
  '20 x 20 patches, joined by fours': { seed: 5, scale: 4, tower: { image: 40, patch: 2, layers: 1 } },
};

async function readerOf({ config, files }: RandomVision): Promise<TensorReader> {
  const source = new MemorySource(Object.fromEntries(files));
  return new TensorReader(source, asNamed(await readTensorIndex(source), config));
}

await describeOnAdapters('image encoders', (device) => {
  test.each(Object.entries(cases))('%s: as in float64', async (_name, options) => {
    const model = makeRandomVision(options);
    const { config, weights, tower, scale } = model;
    const vision = config.vision!;
    const encoder = await loadEncoder(device(), vision, config.hiddenSize, await readerOf(model), 'f32', {});
    const pixels = new Random(9).normals(tower.image ** 2 * 3, 0.5);
    const rows = await encoder.encode(patchRows(pixels, vision, patchOrder(vision)));
    const rowsOf = options.kind === 'gemma3' ? gemma3Rows : idefics3Rows;
    const expected = rowsOf(weights, tower, scale, config.hiddenSize, pixels).flatMap((row) => [...row]);
    expect(rows.length).toBe(expected.length);
    const largest = Math.max(...expected.map(Math.abs));
    const error = Math.max(...expected.map((value, i) => Math.abs(value - rows[i]!)));
    expect(error / largest).toBeLessThan(2e-5);
    // The same bits again: nothing of a tile stays.
    await encoder.encode(patchRows(new Random(10).normals(pixels.length, 0.5), vision, patchOrder(vision)));
    expect(await encoder.encode(patchRows(pixels, vision, patchOrder(vision)))).toEqual(rows);
  });
});
