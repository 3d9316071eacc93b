import { expect, test } from 'vitest';
import { badRequest } from '../api_error.js';
import { TurnsByClient } from './turns_by_client.js';

const never = new AbortController().signal;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

test('one at a time, clients in turn: the second client waits for one job of the first, not for all', async () => {
  const turns = new TurnsByClient({ maxWaiting: 100, rest: 0, what: 'requests' });
  const order: string[] = [];
  let running = 0;
  const job = (name: string) => async (): Promise<string> => {
    expect(++running).toBe(1);
    order.push(name);
    await pause(1);
    running--;
    return name;
  };
  const all = ['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1'].map((name) => turns.run(name[0]!, never, job(name)));
  expect(turns.waiting).toBe(6);
  expect(await Promise.all(all)).toEqual(['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1']);
  expect(order).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3', 'a4']);
  expect(turns.waiting).toBe(0);
});

test('a client that was refused rests; others go on meanwhile', async () => {
  const turns = new TurnsByClient({ maxWaiting: 100, rest: 50, what: 'requests' });
  const order: string[] = [];
  const refused = async (): Promise<never> => {
    order.push('refused');
    await pause(5);
    throw badRequest('no');
  };
  const good = (name: string) => async (): Promise<void> => {
    order.push(name);
  };
  const first = turns.run('rude', never, refused);
  const second = turns.run('rude', never, good('rude again'));
  await expect(first).rejects.toMatchObject({ status: 400 });
  await turns.run('kind', never, good('kind'));
  await turns.run('kind', never, good('kind again'));
  await second;
  expect(order).toEqual(['refused', 'kind', 'kind again', 'rude again']);
});

test('too many: 429, for one client sooner than for all; whoever goes away leaves the queue', async () => {
  const turns = new TurnsByClient({ maxWaiting: 8, rest: 0, what: 'requests' });
  let free!: () => void;
  const blocked = turns.run('a', never, () => new Promise<void>((resolve) => (free = resolve)));
  const leaving = new AbortController();
  const gone = turns.run('a', leaving.signal, async () => 'never');
  const waiting = [turns.run('a', never, async () => 2)];
  await expect(turns.run('a', never, async () => 3)).rejects.toMatchObject({ status: 429, details: { code: 'busy' } });
  waiting.push(turns.run('b', never, async () => 4));
  leaving.abort(new Error('vanished'));
  await expect(gone).rejects.toThrow('vanished');
  expect(turns.waiting).toBe(2);
  await expect(turns.run('a', leaving.signal, async () => 5)).rejects.toThrow('vanished');
  free();
  await blocked;
  expect(await Promise.all(waiting)).toEqual([2, 4]);
});
