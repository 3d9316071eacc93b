import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { describeOnAdapters } from '../../gpu/testing/adapters.js';
import { readTensorIndex, TensorReader } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import { MEL_BINS } from '../../sound/limits.js';
import type { ConformerConfig } from '../config/sound_config.js';
import { makeRandomVision, type RandomVision } from '../testing/random_vision.js';
import { gemma4SoundRows, type ReferenceSound, type SoundMistake } from '../testing/reference/sound.js';
import { asNamed } from '../weights/stored_names.js';
import { loadSoundEncoder } from './encoder.js';

/** Fewer rows than a chunk, and several chunks; odd numbers of frames, of heads and of elements. */
const cases: Record<string, Partial<ReferenceSound>> = {
  'bounds, scores at their cap': { cap: 1.5 },
  'no bounds, 3 heads, one layer, another window': {
    clipped: false,
    hidden: 96,
    heads: 3,
    layers: 1,
    taps: 3,
    chunk: 5,
    left: 6,
    factor: 0.7,
    out: 40,
    channels: [128, 3],
    cap: 2,
  },
};
const lengths = [1, 2, 7, 61, 130];

async function readerOf({ config, files }: RandomVision): Promise<TensorReader> {
  const source = new MemorySource(Object.fromEntries(files));
  return new TensorReader(source, asNamed(await readTensorIndex(source), config));
}

function errorOf(rows: Float32Array, expected: readonly Float64Array[]): number {
  const flat = expected.flatMap((row) => [...row]);
  expect(rows.length).toBe(flat.length);
  const largest = flat.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return flat.reduce((most, value, i) => Math.max(most, Math.abs(value - rows[i]!)), 0) / largest;
}

await describeOnAdapters('encoders of sound', (device) => {
  test.each(Object.entries(cases))('%s: as in float64', { timeout: 300_000 }, async (_name, of) => {
    const model = makeRandomVision({ kind: 'gemma4', seed: 14, sound: of });
    const { config, weights } = model;
    const sound = model.sound!;
    const encoder = await loadSoundEncoder(
      device(),
      config.sound as ConformerConfig,
      config.hiddenSize,
      await readerOf(model),
      'f32',
      {},
    );
    const framesOf = (count: number): Float32Array => new Random(count).normals(count * MEL_BINS, 2);
    const made: Float32Array[] = [];
    for (const count of lengths) {
      const rows = await encoder.encode(framesOf(count));
      made.push(rows);
      const expected = gemma4SoundRows(weights, sound, config.hiddenSize, framesOf(count));
      expect(errorOf(rows, expected), `${count} frames`).toBeLessThan(2e-5);
    }
    // Whatever was before.
    for (const [at, count] of lengths.entries()) expect(await encoder.encode(framesOf(count))).toEqual(made[at]);
    const mistakes: SoundMistake[] = [
      ...(sound.clipped ? (['no bounds'] as const) : []),
      'another key',
      'places turned round',
      'no places',
      'no cap',
      'plain scales',
      'whole halves',
      'gate first',
      'no mask',
      'bins before channels',
    ];
    for (const mistake of mistakes) {
      const wrong = gemma4SoundRows(weights, sound, config.hiddenSize, framesOf(61), mistake);
      expect(errorOf(made[3]!, wrong), mistake).toBeGreaterThan(1e-4);
    }
  });
});
