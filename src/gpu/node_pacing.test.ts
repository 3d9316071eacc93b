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
  await turns(10);
  expect(sleep).not.toHaveBeenCalled();
  await turns(100);
  const long = sleep.mock.calls.length;
  expect(long).toBeGreaterThan(50);
  expect(long).toBeLessThanOrEqual(110);

  // A wait that begins meanwhile may be a short one.
  pacer.begin();
  await turns(10);
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
