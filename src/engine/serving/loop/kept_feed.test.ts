import { expect, test } from 'vitest';
import { KeptFeed } from './kept_feed.js';
import type { KeptBeginning } from '../kept_prefixes.js';

const beginning = (): KeptBeginning => ({ span: [0, 64], kv: {} as KeptBeginning['kv'] });

test('nothing that was looked for before ranks were lost is handed to those after them', async () => {
  const feed = new KeptFeed();
  const [before, after] = [beginning(), beginning()];
  const looks: ((what: KeptBeginning) => void)[] = [];
  const told: [id: string, what: KeptBeginning | undefined][] = [];
  const look = (id: string): void =>
    feed.look(
      id,
      () => new Promise((resolve) => looks.push(resolve)),
      (what) => told.push([id, what]) > 0,
    );
  for (const id of ['a', 'b']) look(id);
  expect(looks).toHaveLength(1);
  const cleared = feed.clear();
  looks[0]!(before);
  await cleared;
  expect(told).toEqual([['a', before]]);
  expect(looks).toHaveLength(1);
  expect(feed.take('a')).toBeUndefined();

  // While the next ranks open, and then on them.
  look('a');
  looks[1]!(before);
  await feed.settled();
  look('a');
  expect(feed.take('a')).toBeUndefined();
  looks[2]!(after);
  await feed.settled();
  expect(feed.take('a')).toBe(after.kv);
  expect(feed.take('a')).toBeUndefined();
});
