import { expect, test, vi } from 'vitest';
import { Recovery } from './recovery.js';

const present = (emitted: Readonly<Record<string, number>>) =>
  new Map(Object.entries(emitted).map(([id, count]) => [id, { emitted: count, held: false }]));

test('who was there at three losses without a token in between is suspected', () => {
  const recovery = new Recovery();
  expect(recovery.suspects(present({ a: 0, b: 3 }))).toEqual([]);
  expect(recovery.suspects(present({ a: 0, b: 4, c: 0 }))).toEqual([]);
  // b gets on, c was there twice.
  expect(recovery.suspects(present({ a: 0, b: 5, c: 0 }))).toEqual(['a']);
  expect(recovery.suspects(present({ b: 5, c: 0 }))).toEqual(['c']);
  expect(recovery.suspects(present({ b: 5 }))).toEqual(['b']);
  // Who leaves is forgotten.
  recovery.suspects(present({ d: 0 }));
  recovery.suspects(present({}));
  recovery.suspects(present({ d: 0 }));
  expect(recovery.suspects(present({ d: 0 }))).toEqual([]);
});

test('a rebuild that nobody waits for any more ends', async () => {
  const rebuild = vi.fn().mockRejectedValue(new Error('no'));
  const recovery = new Recovery({ sleep: () => Promise.resolve() });
  await expect(recovery.rebuild(rebuild, () => rebuild.mock.calls.length === 2)).rejects.toMatchObject({
    code: 'aborted',
  });
  expect(rebuild).toHaveBeenCalledTimes(2);
  await expect(recovery.rebuild(rebuild, () => false)).rejects.toThrow('no');
  expect(rebuild).toHaveBeenCalledTimes(7);
});

test('devices that die before anything is computed get pauses, and are given up', async () => {
  const waits: number[] = [];
  const recovery = new Recovery({ sleep: async (ms) => void waits.push(ms) });
  const loss = new Error('gone');
  const lose = (computed: number): Promise<void> => {
    recovery.count(computed, loss);
    return recovery.rebuild(
      () => Promise.resolve(),
      () => false,
    );
  };
  for (let count = 0; count < 9; count++) await lose(7);
  expect(waits).toEqual([250, 1000, 4000, 16_000, 16_000, 16_000]);
  // Something was computed: from the beginning again.
  for (let count = 0; count < 9; count++) await lose(8);
  expect(waits).toHaveLength(12);
  expect(() => recovery.count(8, loss)).toThrow(
    expect.objectContaining({ code: 'device_lost', message: expect.stringMatching(/10 times in a row.*gone/) }),
  );
});
