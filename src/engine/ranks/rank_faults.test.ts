import { SlotDriver } from '../testing/slot_driver.js';
import { describe, expect, test, vi } from 'vitest';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { LoadOptions } from '../contracts/api.js';
import { load } from '../faces/load.js';
import { openRunner } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';
import { drawn } from '../../gpu/testing/draw.js';

const adapter = (await testAdapters()).at(-1)!;
const prompt = Array.from({ length: 300 }, (_, i) => (i * 37) % 320);

/** A model on several devices, and their GPU handles by rank. */
async function open(options: LoadOptions, type = 'llama') {
  const { files } = randomFiles({ seed: 3, config: { model_type: type } });
  const request = vi.spyOn(GPUAdapter.prototype, 'requestDevice');
  const model = await load(files, { adapter: adapter.name, contextLength: 512, prefillChunk: 64, ...options });
  const gpus = await Promise.all(request.mock.results.map((result) => result.value as Promise<GPUDevice>));
  request.mockRestore();
  return { model, gpus };
}

describe('a rank that loses its device', () => {
  const cases: readonly [plan: string, ranks: number, type: string][] = [
    ['tp', 2, 'llama'],
    ['sp', 2, 'llama'],
    ['pp', 2, 'llama'],
    ['tp+sp', 2, 'deepseek_v3'],
  ];
  test.each(drawn(cases, 1, 'rank faults'))(
    '%s on %i ranks of a %s: fails clearly at any moment, and runs again after recover()',
    { timeout: 300_000 },
    async (plan, ranks, type) => {
      const random = new Random(plan.length);
      const { model, gpus } = await open({ plan, ranks }, type);
      const generate = (maxTokens = 24) => model.generate(prompt, { ignoreEos: true, maxTokens, seed: 1 }).result;
      const expected = (await generate()).tokens;
      const started = performance.now();
      await generate();
      const usual = performance.now() - started;
      for (let round = 0; round < 5; round++) {
        const rank = random.integer(ranks);
        const running = generate();
        const delay = (random.integer(1000) / 1000) * usual;
        await new Promise((resolve) => setTimeout(resolve, delay));
        gpus[rank]!.destroy();
        const ended = await running.then(
          () => 'done',
          (error: unknown) => error,
        );
        if (ended !== 'done') expect(ended).toMatchObject({ code: 'device_lost' });
        // Whatever the moment, the model says so until it is recovered.
        await expect(generate(1)).rejects.toMatchObject({ code: 'device_lost' });
        const request = vi.spyOn(GPUAdapter.prototype, 'requestDevice');
        await model.recover();
        // The others keep their devices and weights.
        expect(request).toHaveBeenCalledTimes(1);
        gpus[rank] = (await request.mock.results[0]!.value) as GPUDevice;
        request.mockRestore();
        expect((await generate()).tokens).toEqual(expected);
      }
      await model.dispose();
      await expect(model.recover()).rejects.toMatchObject({ code: 'usage' });
    },
  );

  test('a step that fails between its candidates and its token leaves nothing behind', async () => {
    const { group } = await openRunner({ adapter: adapter.name, model: { seed: 3 }, plan: 'tp', ranks: 2 });
    const answer = async (): Promise<number[]> => {
      const runner = new SlotDriver(group.runner);
      await runner.prefill(prompt.slice(0, 40), 12, { seed: 1 });
      const ids = [...(await runner.sampleFirst())];
      for (let step = 0; step < 11; step++) ids.push(...(await runner.step()));
      await runner.release();
      return ids;
    };
    try {
      const expected = await answer();
      const [root] = group.ranks;
      for (const label of ['candidates', 'down_proj', 'candidates']) {
        const { communicator } = root!.world;
        const exchange = communicator!.exchange.bind(communicator);
        let left = 3;
        vi.spyOn(communicator!, 'exchange').mockImplementation(async (encoder, what) => {
          if (what.label !== label || left-- > 0) return exchange(encoder, what);
          // What came before it in the step still runs.
          root!.device.gpu.queue.submit([encoder.finish()]);
          throw new Error('the link broke');
        });
        await expect(answer()).rejects.toThrow();
        await group.recover();
        expect(await answer(), label).toEqual(expected);
      }
    } finally {
      group.dispose();
    }
  });

  test('an aborted prompt leaves the ranks in step', { timeout: 120_000 }, async () => {
    const { model } = await open({ plan: 'tp', ranks: 2 });
    const whole = (await model.generate(prompt, { ignoreEos: true, maxTokens: 8, seed: 1 }).result).tokens;
    for (let round = 0; round < 5; round++) {
      const abort = new AbortController();
      const running = model.generate(prompt, { ignoreEos: true, maxTokens: 200, signal: abort.signal }).result;
      await new Promise((resolve) => setTimeout(resolve, round * 20));
      abort.abort();
      expect((await running).finish_reason).toBe('abort');
      expect((await model.generate(prompt, { ignoreEos: true, maxTokens: 8, seed: 1 }).result).tokens).toEqual(whole);
    }
    await model.dispose();
  });
});
