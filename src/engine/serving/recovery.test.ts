import { expect, test, vi } from 'vitest';
import { Recovery } from './recovery.js';

const present = (emitted: Readonly<Record<string, number>>) =>
  new Map(Object.entries(emitted).map(([id, count]) => [id, { emitted: count }]));

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
