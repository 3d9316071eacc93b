import { expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../model/testing/random_model.js';
import { openRunner, type OpenRunnerOptions } from './testing/open_runner.js';

const adapter = (await testAdapters()).at(-1)!;
const llama: RandomModelOptions = {
  seed: 21,
  config: {
    hidden_size: 72,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    head_dim: 24,
    intermediate_size: 300,
    max_position_embeddings: 2304,
  },
};
const prompt = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + seed * 101 + ((i * i) % 53)) % 320);
const bytes = (row: Float32Array): Buffer => Buffer.from(row.buffer, row.byteOffset, row.byteLength);

async function run(options: Omit<OpenRunnerOptions, 'adapter'>, length: number): Promise<Buffer[]> {
  const { runner, group } = await openRunner({
    adapter: adapter.name,
    contextLength: length + 8,
    prefillChunk: 512,
    ...options,
  });
  try {
    const rows: Buffer[] = [];
    await runner.logits(prompt(length, 1), true, (_p, row) => rows.push(bytes(row.slice())));
    await runner.prefill(prompt(length, 1), 8, { seed: 0 });
    for (let step = 0; step < 4; step++) {
      await (step === 0 ? runner.sampleFirst() : runner.step());
      rows.push(bytes(await runner.slotLogits(0)));
    }
    return rows;
  } finally {
    group.dispose();
  }
}

test.each([
  ['tp', 2],
  ['sp', 2],
  ['tp+sp', 2],
  ['pp', 2],
  ['tp x sp', 4],
])('%s on %i ranks', { timeout: 300_000 }, async (plan, ranks) => {
  const length = 300;
  const one = await run({ model: llama }, length);
  const many = await run({ model: llama, plan, ranks, virtual: true }, length);
  expect(many).toHaveLength(one.length);
  expect(many.findIndex((row, index) => !row.equals(one[index]!))).toBe(-1);
});
