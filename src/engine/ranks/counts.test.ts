import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { openRunner } from '../testing/open_runner.js';

const adapter = (await testAdapters()).at(-1)!.name;

test("a step's bytes are counted with it, whenever somebody asks", async () => {
  const { runner, group } = await openRunner({
    adapter,
    model: { seed: 5, config: { num_hidden_layers: 2 } },
    contextLength: 64,
    prefillChunk: 32,
    plan: 'tp',
    ranks: 2,
  });
  await runner.prefill([3, 1, 4, 1, 5], 40, { seed: 1 });
  await runner.sampleFirst();
  const before = await runner.counts();
  await runner.step();
  const start = await runner.counts();
  const bytes = start.map(({ bytesSent }, rank) => bytesSent - before[rank]!.bytesSent);
  expect(Math.min(...bytes)).toBeGreaterThan(0);

  let askedAmid = 0;
  for (let step = 1; step <= 3; step++) {
    let isOver = false;
    const stepping = runner.step().finally(() => (isOver = true));
    while (!isOver) {
      for (const [rank, now] of (await runner.counts()).entries()) {
        const then = start[rank]!;
        const steps = now.steps - then.steps;
        expect(now.stepBytes - then.stepBytes).toBe(steps * bytes[rank]!);
        if (now.bytesSent - then.bytesSent > steps * bytes[rank]!) askedAmid++;
      }
      await setImmediate();
    }
    await stepping;
    const steps = (await runner.counts()).map((now, rank) => now.steps - start[rank]!.steps);
    expect(steps).toEqual([step, step]);
  }
  expect(askedAmid).toBeGreaterThan(0);
  group.dispose();
});
