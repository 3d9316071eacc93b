import { drawn } from '../../../gpu/testing/draw.js';
import { describe, expect, test } from 'vitest';
import { adaptersInTurn } from '../../../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import type { KvType, Variants, WeightType } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { openRunner } from '../open_runner.js';
import { randomFiles } from '../random_source.js';

const models: Record<string, RandomModelOptions> = {
  llama: {
    seed: 21,
    config: {
      hidden_size: 72,
      num_attention_heads: 6,
      num_key_value_heads: 2,
      head_dim: 24,
      intermediate_size: 100,
      max_position_embeddings: 2304,
    },
  },
  deepseek: { seed: 22, config: { model_type: 'deepseek_v3', max_position_embeddings: 2304 } },
};

const prompt = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + seed * 101 + ((i * i) % 53)) % 320);

/** Rows as bytes: `equals` on them is bitwise equality. */
const bytes = (row: Float32Array): Buffer => Buffer.from(row.buffer, row.byteOffset, row.byteLength);

describe('numerics contract: the same bits', async () => {
  const adapters = await adaptersInTurn('numerics contract');
  const turns = adapters.map((adapter) => ({ ...adapter, variants: 'auto' as 'auto' | Variants }));
  // A GPU's variants on the quickest adapter, which they take several times longer on.
  for (const adapter of [...turns, { ...adapters.at(-1)!, variants: 'hardware' as const }]) {
    const { variants } = adapter;
    const quickest = adapter === turns.at(-1);
    const parts = drawn(['chunks', 'batch'], 1, `parts ${adapter.name} ${variants}`);
    const on = `${adapter.name}, ${variants} variants`;
    // On one adapter, as it takes a while: more than 8 chunks, so that merge lanes hold several, and every kind of model and weights.
    const long = quickest ? 2060 : 520;
    const chunked: [string, WeightType, KvType, number, readonly number[]][] = [
      ['llama', 'f32', 'f32', 700, [512, 256, 33]],
      ['llama', 'q4', 'f16', 257, [512, 16]],
      ['deepseek', 'q8', 'f32', 300, [512, 100]],
      ['llama', 'f32', 'q8', 257, [512, 33]],
      ['deepseek', 'f32', 'q8', 300, [512, 100]],
    ];
    test.each(
      drawn(chunked, parts.includes('chunks') ? (quickest ? 2 : 1) : 0, `chunks ${on}`).filter(
        ([name]) => quickest || name === 'llama',
      ),
    )(
      `whatever the prefill chunk, at every position: %s, %s, kv %s, %i tokens, on ${on}`,
      { timeout: 300_000 },
      async (name, weights, kv, length, chunks) => {
        const { files } = randomFiles(models[name]!);
        let expected: Buffer[] | undefined;
        for (const prefillChunk of chunks) {
          const model = await load(files, {
            weights,
            kv,
            prefillChunk,
            adapter: adapter.name,
            variants,
            contextLength: 1024,
          });
          const rows = (await model.logits(prompt(length, 1), { all: true })).rows.map(bytes);
          await model.dispose();
          expect(rows).toHaveLength(length);
          expected ??= rows;
          const different = rows.findIndex((row, position) => !row.equals(expected![position]!));
          expect(different, `first position that differs, prefill chunk ${prefillChunk}`).toBe(-1);
        }
      },
    );

    const mixed: [string, WeightType, KvType, number[]][] = [
      ['llama', 'f32', 'f32', [5, 300, 1, long]],
      ['deepseek', 'f16', 'f32', [5, 300, 1]],
      ['llama', 'f32', 'q8', [5, 300, 1]],
      ['deepseek', 'f16', 'q8', [5, 300, 1]],
    ];
    test.each(drawn(mixed, parts.includes('batch') ? 1 : 0, `batch ${on}`))(
      `of a generated row whatever else is in the batch: %s, %s, kv %s, on ${on}`,
      { timeout: 300_000 },
      async (name, weights, kv, lengths) => {
        const batch = lengths.map((length, seed) => ({ length, seed }));
        const alone = await decode(
          adapter,
          models[name]!,
          { weights, kv },
          batch.map((sequence) => [sequence]),
        );
        const [together] = await decode(adapter, models[name]!, { weights, kv }, [batch]);
        for (const [index, [steps]] of alone.entries()) {
          for (const [step, row] of steps!.entries()) {
            expect(together![index]![step]!.equals(row), `sequence ${index}, step ${step}`).toBe(true);
          }
        }
      },
    );
  }
});

/** Logits of 3 generated rows of each sequence, [batch][sequence][step]; a batch is decoded side by side. */
async function decode(
  { name: adapter, variants }: { readonly name: string; readonly variants: 'auto' | Variants },
  options: RandomModelOptions,
  types: { readonly weights: WeightType; readonly kv: KvType },
  batches: readonly (readonly { length: number; seed: number }[])[],
): Promise<Buffer[][][]> {
  const slots = batches[0]!.length;
  const { runner, group } = await openRunner({
    adapter,
    variants,
    model: options,
    ...types,
    slots,
    contextLength: 2304,
    prefillChunk: 512,
  });
  const results: Buffer[][][] = [];
  for (const batch of batches) {
    for (const [slot, { length, seed }] of batch.entries()) {
      await runner.prefill(prompt(length, seed), 8, { seed: 0 }, undefined, slot);
    }
    const rows: Buffer[][] = batch.map(() => []);
    for (let step = 0; step < 3; step++) {
      const ids = await (step === 0 ? runner.sampleFirst() : runner.step());
      for (const [slot, steps] of rows.entries()) {
        const logits = await runner.slotLogits(slot);
        expect(ids[slot]).toBe(logits.reduce((top, value, id) => (value > logits[top]! ? id : top), 0));
        steps.push(bytes(logits));
      }
    }
    for (let slot = 0; slot < slots; slot++) await runner.release(slot);
    results.push(rows);
  }
  group.dispose();
  return results;
}
