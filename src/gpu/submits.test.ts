import { afterEach, expect, test, vi } from 'vitest';
import { openRunner } from '../engine/testing/open_runner.js';
import { firstDifference } from '../engine/testing/run_bits.js';
import type { Device } from './device.js';
import { Submits } from './submits.js';
import { testAdapters } from './testing/adapters.js';

afterEach(() => void vi.restoreAllMocks());

/** A device that takes so long for each dispatch and row, on a clock of its own. */
function slowDevice(secondsEach: number) {
  let now = 0;
  const submits: { readonly dispatches: number; done: () => void; readonly work: number }[] = [];
  let encoded = { dispatches: 0, rows: 1 };
  vi.spyOn(performance, 'now').mockImplementation(() => now * 1000);
  const queue = {
    submit: () => {},
    onSubmittedWorkDone: () => {
      const { dispatches, rows } = encoded;
      return new Promise<void>((done) => submits.push({ dispatches, done, work: dispatches * rows * secondsEach }));
    },
  };
  let most = 0;
  const device = {
    gpu: { queue },
    wait: async (work: Promise<void>) => {
      most = Math.max(most, submits.length);
      const next = submits.shift()!;
      now += next.work;
      next.done();
      await work;
    },
  } as unknown as Device;
  const sizes: number[] = [];
  const run = async (own: Submits, dispatches: number, rows: number): Promise<void> => {
    const encoder = { finish: () => ({}) } as unknown as GPUCommandEncoder;
    let since = 0;
    for (let left = dispatches; left > 0;) {
      const count = Math.min(left, own.room(rows));
      left -= count;
      since += count;
      encoded = { dispatches: since, rows };
      if (own.encoded(count, rows)) {
        sizes.push(since);
        since = 0;
        await own.submit(encoder);
      }
    }
    encoded = { dispatches: since, rows };
    sizes.push(since);
    await own.submit(encoder);
    while (submits.length > 0) await device.wait(Promise.resolve());
  };
  return { device, run, sizes, most: () => most };
}

test('what takes long is cut by what it took before, what is short runs in one', async () => {
  const slow = slowDevice(1e-4); // 51.2 ms a dispatch of 512 rows
  const submits = new Submits(slow.device);
  await slow.run(submits, 100, 512);
  expect(slow.sizes.slice(0, 2), 'untimed').toEqual([8, 8]);
  expect(new Set(slow.sizes.slice(2, -1)), 'one by one').toEqual(new Set([1]));
  expect(slow.most(), 'two in flight').toBe(2);
  slow.sizes.length = 0;
  await slow.run(submits, 100, 16); // 1.6 ms a dispatch
  expect(slow.sizes).toEqual([37, 37, 26]);

  const quick = slowDevice(1e-7);
  const own = new Submits(quick.device);
  await quick.run(own, 100, 512);
  expect(quick.sizes.length).toBeLessThanOrEqual(4);
  quick.sizes.length = 0;
  await quick.run(own, 100, 512);
  expect(quick.sizes).toEqual([100]);
});

test.each([
  ['llama', { seed: 1 }, {}],
  ['deepseek', { seed: 2, config: { model_type: 'deepseek_v3' } }, {}],
  ['llama on two ranks', { seed: 1 }, { plan: 'tp', ranks: 2, virtual: true }],
] as const)('wherever a program is cut, the bits are the same: %s', async (_name, model, plan) => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const run = async (): Promise<{ readonly rows: Buffer[]; readonly submitted: number }> => {
    const { runner, group, device } = await openRunner({ adapter, model, ...plan, prefillChunk: 64 });
    const submit = vi.spyOn(device.gpu.queue, 'submit');
    const rows: Buffer[] = [];
    const tokens = Array.from({ length: 100 }, (_, i) => (i * 31) % 320);
    await runner.logits(tokens, true, (_position, row) => rows.push(Buffer.from(row.slice().buffer)));
    const submitted = submit.mock.calls.length;
    group.dispose();
    return { rows, submitted };
  };
  const whole = await run();
  // A clock that runs a second at each look: everything seems to take long.
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (now += 1000));
  const cut = await run();
  if (!('plan' in plan)) expect(cut.submitted).toBeGreaterThan(whole.submitted + 10);
  expect(firstDifference(whole.rows, cut.rows)).toBe(-1);
});

test('where a browser tells late that work is done, waits are nudged by empty submits; elsewhere they are not', async () => {
  const device = await (await testAdapters()).at(-1)!.open();
  const { queue } = device.gpu;
  const create = queue.submit.bind(queue);
  const submit = vi.spyOn(queue, 'submit');
  await device.settle();
  submit.mockClear();
  await device.wait(new Promise((resolve) => setTimeout(resolve, 50)));
  expect(submit).not.toHaveBeenCalled();

  // Looks every 200 ms, and at a submit.
  const real = queue.onSubmittedWorkDone.bind(queue);
  let look = (): void => {};
  queue.onSubmittedWorkDone = async () => {
    await real();
    await new Promise<void>((resolve) => {
      look = resolve;
      setTimeout(resolve, 200);
    });
    return undefined;
  };
  submit.mockImplementation((commands) => {
    look();
    return create(commands);
  });
  await device.settle();
  submit.mockClear();
  await device.wait(queue.onSubmittedWorkDone());
  expect(submit).toHaveBeenCalled();
  device.dispose();
});
