import { expect, test } from 'vitest';
import { type Device, openDevice } from '../../../gpu/index.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import { openRunner } from '../open_runner.js';

const adapter = (await testAdapters()).at(-1)!;

/** A device whose largest binding is `bytes`: allocations over it fail, as on an adapter with that limit. */
async function openLimited(bytes: number | undefined): Promise<Device> {
  const device = await openDevice({ adapterName: adapter.name });
  if (bytes !== undefined) {
    const limits = { ...device.traits.limits, maxStorageBufferBindingSize: bytes };
    Object.defineProperty(device, 'traits', { value: { ...device.traits, limits } });
  }
  return device;
}

/** Bytes of prompt logits and of a few generated rows' logits, and the dispatches that each token took. */
async function run(
  options: RandomModelOptions,
  limit: number | undefined,
): Promise<{ rows: Buffer[]; dispatches: number }> {
  const { runner, group } = await openRunner({
    adapter: adapter.name,
    model: options,
    contextLength: 64,
    prefillChunk: 32,
    open: () => openLimited(limit),
  });
  try {
    const rows: Buffer[] = [];
    const keep = (row: Float32Array): number => rows.push(Buffer.from(row.slice().buffer));
    const prompt = Array.from({ length: 40 }, (_, i) => (i * 991) % runner.config.vocabSize);
    await runner.logits(prompt, true, (_position, row) => keep(row));
    await runner.prefill(prompt, 4, { seed: 0 });
    await runner.sampleFirst();
    for (let step = 0; step < 3; step++) {
      await runner.step();
      keep(await runner.slotLogits(0));
    }
    return { rows, dispatches: runner.dispatchesPerToken };
  } finally {
    group.dispose();
  }
}

test.each<[string, RandomModelOptions, number]>([
  ['a vocabulary in several bindings', { seed: 4, config: { vocab_size: 4001 } }, 300_000],
  [
    'a vocabulary in several bindings, tied',
    { seed: 5, config: { vocab_size: 4001, tie_word_embeddings: true } },
    300_000,
  ],
  [
    'experts in several bindings',
    { seed: 6, config: { model_type: 'deepseek_v3', moe_intermediate_size: 96, num_hidden_layers: 2 } },
    200_000,
  ],
])('%s: the same bits as in one', { timeout: 180_000 }, async (_name, options, limit) => {
  const whole = await run(options, undefined);
  const split = await run(options, limit);
  expect(split.dispatches).toBeGreaterThan(whole.dispatches);
  expect(split.rows).toHaveLength(whole.rows.length);
  for (const [index, row] of split.rows.entries()) expect(row.equals(whole.rows[index]!), `row ${index}`).toBe(true);
});

test('a matrix that must be whole and is not names the limit and what to do', async () => {
  const small = { seed: 7, config: { intermediate_size: 2048 } };
  await expect(run(small, 100_000)).rejects.toMatchObject({
    code: 'limit',
    message: expect.stringMatching(/gate_up.*maxStorageBufferBindingSize of 100,000.*--weights q8/),
  });
});
