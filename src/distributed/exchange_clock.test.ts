import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { CommStats } from './communicator.js';
import { ExchangeClock } from './rank_communicator.js';

beforeEach(() => vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => vi.useRealTimers());

function clockOf(readMs: number): { readonly clock: ExchangeClock; readonly stats: CommStats } {
  const stats = { exchanges: 0, messages: 0, bytesSent: 0, bytesReceived: 0, moveMs: 0, waitMs: 0 };
  return { clock: new ExchangeClock(stats, () => readMs), stats };
}
const pass = (ms: number): unknown => vi.advanceTimersByTime(ms);

test("a rank's own work is neither moving nor waiting, but for what reading it out takes", () => {
  const { clock, stats } = clockOf(2);
  clock.enter(0, 'work');
  pass(10);
  clock.enter(0, 'move');
  pass(1);
  clock.enter(0, 'wait');
  pass(5);
  clock.moving(0, () => pass(3));
  pass(4);
  clock.enter(0, undefined);
  pass(100);
  expect(stats).toMatchObject({ moveMs: 2 + 1 + 3, waitMs: 5 + 4 });
});

test('reading out is never longer than what it ended', () => {
  const { clock, stats } = clockOf(50);
  clock.enter(0, 'work');
  pass(10);
  clock.enter(0, undefined);
  expect(stats).toMatchObject({ moveMs: 10, waitMs: 0 });
});

test('side by side: an instant counts once, and not while another exchange works', () => {
  const { clock, stats } = clockOf(0);
  clock.enter(0, 'wait');
  pass(3); // waits
  clock.enter(1, 'wait');
  pass(4); // waits
  clock.enter(1, 'work');
  pass(5);
  clock.enter(1, 'move');
  pass(6); // moves
  clock.enter(1, undefined);
  pass(7); // waits
  clock.enter(0, undefined);
  expect(stats).toMatchObject({ moveMs: 6, waitMs: 3 + 4 + 7 });
});
