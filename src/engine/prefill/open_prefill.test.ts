import { expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { checkPrefill } from '../contracts/load_options.js';
import type { HandedKv, PrefillWorker } from '../contracts/prefill_worker.js';
import { PrefillPool } from './open_prefill.js';

/** A worker whose prompts end when they are told to. */
class Told implements PrefillWorker {
  readonly kind = 'splitkv';
  readonly atOnce = 1;
  readonly weightBytes = 10;
  readonly under: { tokens: number; end: () => void; fail: (reason: unknown) => void }[] = [];
  recovered: (() => void) | undefined;
  disposed = false;

  constructor(readonly adapter: string) {}

  prefill(prompt: readonly number[]): Promise<HandedKv> {
    return new Promise((resolve, reject) => {
      const kv = { tokens: prompt.length } as HandedKv;
      this.under.push({ tokens: prompt.length, end: () => resolve(kv), fail: reject });
    });
  }

  assertUsable(): void {
    throw new SplitkvError('device_lost', `${this.adapter} is lost`);
  }

  recover(): Promise<void> {
    return new Promise((resolve) => (this.recovered = resolve));
  }

  async dispose(): Promise<void> {
    this.disposed = true;
  }
}

const prompt = (tokens: number): number[] => Array.from({ length: tokens }, () => 1);
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

test('prompts go to the worker with the fewest tokens to compute', async () => {
  const workers = [new Told('a'), new Told('b')] as const;
  const pool = new PrefillPool(workers);
  expect([pool.atOnce, pool.adapter, pool.weightBytes]).toEqual([2, 'a, b', 20]);
  const running = [100, 30, 30, 30, 50].map((tokens) => pool.prefill(prompt(tokens)));
  expect(workers.map(({ under }) => under.map(({ tokens }) => tokens))).toEqual([[100], [30, 30, 30, 50]]);
  for (const { under } of workers) for (const { end } of under) end();
  expect((await Promise.all(running)).map(({ tokens }) => tokens)).toEqual([100, 30, 30, 30, 50]);
});

test('a worker that fails is left out, and its prompts computed by others; a lost one comes back', async () => {
  const [a, b] = [new Told('a'), new Told('b')];
  const warnings: string[] = [];
  const pool = new PrefillPool([a, b], (text) => warnings.push(text));
  const one = pool.prefill(prompt(5));
  const two = pool.prefill(prompt(6));
  b.under[0]!.fail(new SplitkvError('device_lost', 'gone'));
  await settled();
  expect(warnings).toEqual(['a prefill worker (b) failed: gone; its prompts are computed by the other']);
  expect(pool.atOnce).toBe(1);
  expect(a.under.map(({ tokens }) => tokens)).toEqual([5, 6]);
  for (const { end } of a.under) end();
  expect([(await one).tokens, (await two).tokens]).toEqual([5, 6]);
  b.recovered!();
  await settled();
  expect(pool.atOnce).toBe(2);
  pool.assertUsable();
  await pool.dispose();
  expect([a.disposed, b.disposed]).toEqual([true, true]);
});

test('without any usable worker, what the last one failed with; recovery makes them anew', async () => {
  const [a, b] = [new Told('a'), new Told('b')];
  const pool = new PrefillPool([a, b]);
  const lone = pool.prefill(prompt(5));
  a.under[0]!.fail(new SplitkvError('limit', 'no room'));
  await settled();
  b.under[0]!.fail(new SplitkvError('device_lost', 'gone'));
  await expect(lone).rejects.toThrow('gone');
  expect(() => pool.assertUsable()).toThrow('a is lost');
  expect(pool.atOnce).toBe(1);
  const made = pool.recover();
  await settled();
  b.recovered!();
  a.recovered!();
  await made;
  pool.assertUsable();
});

test('a prompt that is no longer wanted says nothing of its worker', async () => {
  const [a, b] = [new Told('a'), new Told('b')];
  const pool = new PrefillPool([a, b]);
  const control = new AbortController();
  const dropped = pool.prefill(prompt(5), control.signal);
  control.abort();
  a.under[0]!.fail(new SplitkvError('aborted', 'not wanted'));
  await expect(dropped).rejects.toThrow('not wanted');
  expect(pool.atOnce).toBe(2);
});

test('lists of workers that say nothing known are refused', () => {
  expect(() => checkPrefill([])).toThrow('prefill []: give a worker');
  expect(() => checkPrefill([{ kind: 'splitkv' }, { kind: 'gpu' as 'splitkv' }])).toThrow("prefill kind 'gpu'");
  checkPrefill([{ kind: 'splitkv' }, { kind: 'splitkv', adapter: 'llvmpipe' }]);
});
