import { describe, expect, test } from 'vitest';
import { type Device, openDevice } from '../gpu/index.js';
import { testAdapters } from '../gpu/testing/adapters.js';
import { fileListSource, TensorReader } from '../loader/index.js';
import { loadWeights } from '../model/family.js';
import type { WeightType } from './api.js';
import { load } from './load.js';
import { Runner } from './runner.js';
import { randomFiles } from './testing/random_source.js';

const bits = (values: Float32Array): Uint32Array => new Uint32Array(values.buffer, values.byteOffset, values.length);
const prompt = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + seed * 101 + ((i * i) % 53)) % 320);
const odd = {
  seed: 21,
  config: {
    hidden_size: 72,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    head_dim: 24,
    intermediate_size: 100,
    max_position_embeddings: 2304,
  },
};

describe('numerics contract: the same bits', async () => {
  for (const adapter of await testAdapters()) {
    test(`whatever the prefill chunk, at every position, on ${adapter.name}`, { timeout: 300_000 }, async () => {
      const { files } = randomFiles(odd);
      for (const [weights, kv] of [
        ['f32', 'f32'],
        ['q4', 'f16'],
      ] as const) {
        for (const [length, chunks] of [
          [257, [1, 16, 100, 512]],
          [700, [33, 256, 1024]],
        ] as const) {
          let expected: Uint32Array[] | undefined;
          for (const prefillChunk of chunks) {
            if (prefillChunk === 1 && weights === 'q4') continue;
            const model = await load(files, { weights, kv, prefillChunk, adapter: adapter.name, contextLength: 1024 });
            const { rows } = await model.logits(prompt(length, 1), { all: true });
            await model.dispose();
            expect(rows).toHaveLength(length);
            const got = rows.map(bits);
            expected ??= got;
            for (const [position, row] of got.entries()) {
              expect(row, `position ${position}, prefill chunk ${prefillChunk}, ${weights}`).toEqual(
                expected[position],
              );
            }
          }
        }
      }
    });

    test(`of a generated row whatever else is in the batch, on ${adapter.name}`, { timeout: 300_000 }, async () => {
      const device = await openDevice({ adapterName: adapter.name });
      try {
        for (const weights of ['f32', 'q8'] as const) {
          const lengths = [5, 300, 1, 2060, 260];
          const alone: Uint32Array[][] = [];
          for (const [index, length] of lengths.entries())
            alone.push(...(await decode(device, weights, [{ length, seed: index }], 1)));
          const together = await decode(
            device,
            weights,
            lengths.map((length, seed) => ({ length, seed })),
            lengths.length,
          );
          for (const [index, steps] of alone.entries()) {
            for (const [step, row] of steps.entries()) {
              expect(together[index]![step], `sequence ${index}, step ${step}, ${weights}`).toEqual(row);
            }
          }
        }
      } finally {
        device.dispose();
      }
    });
  }
});

/** Logits bits of 3 decode steps of each sequence, all in one batch of `slots`. */
async function decode(
  device: Device,
  weights: WeightType,
  sequences: readonly { length: number; seed: number }[],
  slots: number,
): Promise<Uint32Array[][]> {
  const { model, files } = randomFiles(odd);
  const loaded = await loadWeights(device, model.config, await TensorReader.open(fileListSource(files)), weights);
  const runner = await Runner.create(device, model.config, loaded.createForward, {
    slots,
    contextLength: 2304,
    prefillChunk: 512,
    kvType: 'f32',
  });
  for (const [slot, { length, seed }] of sequences.entries()) {
    await runner.prefill(prompt(length, seed), 8, { seed: 0 }, undefined, slot);
  }
  const results: Uint32Array[][] = sequences.map(() => []);
  for (let step = 0; step < 3; step++) {
    const ids = await (step === 0 ? runner.sampleFirst() : runner.step());
    for (const [slot, rows] of results.entries()) {
      const logits = await runner.slotLogits(slot);
      const best = logits.reduce((top, value, id) => (value > logits[top]! ? id : top), 0);
      expect(ids[slot]).toBe(best);
      rows.push(bits(logits));
    }
  }
  return results;
}
