import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { openRunner } from '../testing/open_runner.js';

const adapter = (await testAdapters()).at(-1)!.name;
const prompt = Array.from({ length: 250 }, (_, i) => (i * 31) % 320); // 4 steps of 64 rows

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));

/** A rank on a queue whose work is done when the test says so; a step is one submit. */
async function held() {
  // Work takes no time, so nothing is cut.
  vi.spyOn(performance, 'now').mockReturnValue(0);
  const { group, runner, device } = await openRunner({ adapter, model: { seed: 1 }, prefillChunk: 64 });
  await runner.logits(prompt.slice(0, 9), false, () => {});
  const under: (() => void)[] = [];
  const done = device.gpu.queue.onSubmittedWorkDone.bind(device.gpu.queue);
  let submitted = 0;
  vi.spyOn(device.gpu.queue, 'onSubmittedWorkDone').mockImplementation(async () => {
    submitted++;
    await new Promise<void>((resolve) => under.push(resolve));
    return done();
  });
  return {
    group,
    runner,
    device,
    submitted: () => submitted,
    /** The oldest is done. */
    async end(): Promise<void> {
      under.shift()!();
      await pause();
    },
  };
}

describe('steps of a prompt', () => {
  let queue: Awaited<ReturnType<typeof held>>;
  beforeEach(async () => {
    queue = await held();
  });
  afterEach(() => {
    queue.group.dispose();
    vi.restoreAllMocks();
  });

  test('are submitted two ahead, and take no memory', async () => {
    const { runner, device, submitted, end } = queue;
    const { bytes } = device.usage;
    const create = vi.spyOn(device.gpu, 'createBuffer');
    const running = runner.prefill(prompt, 4, { seed: 0 });
    for (const most of [2, 3, 4]) {
      await pause();
      expect(submitted()).toBe(most);
      await end();
    }
    // The last one may still run: what samples follows on the queue.
    await running;
    expect(submitted()).toBe(4);
    expect(create).not.toHaveBeenCalled();
    expect(device.usage.bytes).toBe(bytes);
    const ids = [...(await runner.sampleFirst())];
    await end();
    await runner.release();
    vi.restoreAllMocks();
    await runner.prefill(prompt, 4, { seed: 0 });
    expect(ids).toEqual([...(await runner.sampleFirst())]);
  });

  test('end between two steps where nobody wants them', async () => {
    const { runner, submitted, end } = queue;
    const running = runner.prefill(prompt, 4, { seed: 0 });
    await pause();
    expect(submitted()).toBe(2);
    await runner.all((rank) => rank.drop(0));
    const passes = vi.spyOn(GPUCommandEncoder.prototype, 'beginComputePass');
    for (let left = 3; left > 0; left--) await end();
    await running;
    expect(passes).not.toHaveBeenCalled();
  });

  test('say that the device was lost, whichever are under way', async () => {
    const { runner, device, submitted } = queue;
    const running = runner.prefill(prompt, 4, { seed: 0 });
    running.catch(() => {}); // awaited below
    await pause();
    expect(submitted()).toBe(2);
    device.gpu.destroy();
    await expect(running).rejects.toMatchObject({ code: 'device_lost' });
    await expect(runner.prefill(prompt, 4, { seed: 0 }, undefined, 0)).rejects.toThrow();
  });
});
