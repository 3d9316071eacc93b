import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { nodeStore } from './node_store.js';
import { measured, type MeasureStore } from './store.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-store-'));
afterAll(() => rmSync(scratch, { recursive: true }));

function memoryStore(environment: string): MeasureStore & { readonly kept: Map<string, unknown> } {
  const kept = new Map<string, unknown>();
  return {
    environment,
    kept,
    get: (key) => Promise.resolve(kept.get(key)),
    set: (key, value) => Promise.resolve(void kept.set(key, value)),
  };
}

let count = 0;
const measure = (): Promise<number> => Promise.resolve(++count);

describe('measures', () => {
  test('are taken once for a subject, again when asked to, and apart for other subjects and environments', async () => {
    const store = memoryStore('a');
    const first = await measured(store, 'adapter', ['once'], false, measure);
    expect(await measured(store, 'adapter', ['once'], false, measure)).toBe(first);
    expect(await measured(store, 'adapter', ['other'], false, measure)).not.toBe(first);
    expect(await measured(store, 'group', ['once'], false, measure)).not.toBe(first);
    expect(await measured(memoryStore('b'), 'adapter', ['once'], false, measure)).not.toBe(first);
    const again = await measured(store, 'adapter', ['once'], true, measure);
    expect(again).not.toBe(first);
    expect(await measured(store, 'adapter', ['once'], false, measure)).toBe(again);
  });

  test('come from the store where it has them', async () => {
    const store = memoryStore('stored');
    await measured(store, 'adapter', ['stored'], false, () => Promise.resolve(1));
    const [key] = store.kept.keys();
    expect(key).toMatch(/^adapter-[0-9a-f]{24}$/);
    // Another process: the same store, nothing in memory.
    vi.resetModules();
    const fresh = await import('./store.js');
    expect(await fresh.measured(store, 'adapter', ['stored'], false, () => Promise.resolve(2))).toBe(1);
  });

  test('that fail are taken again, and a store that fails is none', async () => {
    const store = memoryStore('failing');
    const fails = (): Promise<number> => Promise.reject(new Error('no'));
    await expect(measured(store, 'adapter', ['failing'], false, fails)).rejects.toThrow('no');
    expect(store.kept.size).toBe(0);
    expect(await measured(store, 'adapter', ['failing'], false, () => Promise.resolve(5))).toBe(5);
    const broken: MeasureStore = { environment: 'broken', get: fails, set: () => fails() as Promise<never> };
    expect(await measured(broken, 'adapter', ['broken'], false, () => Promise.resolve(6))).toBe(6);
  });

  test('are taken one at a time', async () => {
    const store = memoryStore('turns');
    let running = 0;
    let most = 0;
    const slow = async (): Promise<number> => {
      most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 5));
      return running--;
    };
    await Promise.all([1, 2, 3].map((subject) => measured(store, 'adapter', subject, false, slow)));
    expect(most).toBe(1);
  });
});

describe('the folder in Node', () => {
  beforeEach(() => vi.stubEnv('SPLITKV_CACHE_DIR', join(scratch, `${++count}`)));
  afterEach(() => vi.unstubAllEnvs());
  const folder = (): string => join(process.env['SPLITKV_CACHE_DIR']!, 'measures');

  test('keeps what it is given', async () => {
    await nodeStore().set('key', { a: [1, null] });
    expect(await nodeStore().get('key')).toEqual({ a: [1, null] });
    expect(readdirSync(folder())).toEqual(['key.json']);
  });

  test('has nothing where there is no file, a broken one, or one from long ago', async () => {
    const missing = nodeStore().get('key');
    await expect(missing).rejects.toThrow();
    await nodeStore().set('key', 1);
    const file = join(folder(), 'key.json');
    writeFileSync(file, '{"a":');
    await expect(nodeStore().get('key')).rejects.toThrow();
    await nodeStore().set('key', 1);
    const days = (n: number): number => Date.now() / 1000 - n * 24 * 3600;
    utimesSync(file, days(29), days(29));
    expect(await nodeStore().get('key')).toBe(1);
    utimesSync(file, days(31), days(31));
    expect(await nodeStore().get('key')).toBeUndefined();
  });

  test('another number of cores for a software device is another environment', () => {
    vi.stubEnv('LP_NUM_THREADS', '1');
    const one = nodeStore().environment;
    vi.stubEnv('LP_NUM_THREADS', '2');
    expect(nodeStore().environment).not.toBe(one);
  });
});
