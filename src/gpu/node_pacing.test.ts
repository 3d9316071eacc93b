import { afterEach, expect, test, vi } from 'vitest';
import { NodePacer } from './node.js';

afterEach(() => vi.restoreAllMocks());

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

test('sleeps in each turn while a wait lasts, but not in its first turns, and not without one', async () => {
  const sleep = vi.spyOn(Atomics, 'wait').mockReturnValue('timed-out');
  const pacer = new NodePacer();
  pacer.begin();
  await turns(3);
  expect(sleep).not.toHaveBeenCalled();
  await turns(100);
  const long = sleep.mock.calls.length;
  expect(long).toBeGreaterThan(50);
  expect(long).toBeLessThanOrEqual(110);

  // A wait that begins meanwhile may be a short one.
  pacer.begin();
  await turns(3);
  expect(sleep.mock.calls.length).toBeLessThanOrEqual(long + 1);
  pacer.end();
  await turns(50);
  expect(sleep.mock.calls.length).toBeGreaterThan(long + 10);

  pacer.end();
  await turns(2);
  const ended = sleep.mock.calls.length;
  await turns(50);
  expect(sleep).toHaveBeenCalledTimes(ended);
});

test('sleeps for a tenth of what a wait has lasted, from 0.1 to 0.5 ms', async () => {
  const sleep = vi.spyOn(Atomics, 'wait').mockReturnValue('timed-out');
  let now = 1000;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  const pacer = new NodePacer();
  pacer.begin();
  await turns(10);
  const lasts = async (ms: number): Promise<number | undefined> => {
    now = 1000 + ms;
    await turns(2);
    return sleep.mock.lastCall![3];
  };
  expect([await lasts(0.5), await lasts(3), await lasts(80)]).toEqual([0.1, expect.closeTo(0.3), 0.5]);
  pacer.end();
  await turns(2);
});
