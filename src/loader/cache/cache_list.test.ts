import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { MemoryFolder } from '../testing/memory_folder.js';
import { MemorySource } from '../testing/memory_source.js';
import { findCached, listCached, deleteCached } from './cache_list.js';
import { cachedSource } from './cached_source.js';
import { KV_FOLDER, writeCacheFile } from './opfs.js';

// What a page keeps, in a stand-in for its private file system.

const MODEL = 'https://example.com/model/';
const LORA = 'https://example.com/lora/';
const bytes = (length: number): Uint8Array<ArrayBuffer> => new Uint8Array(length).fill(7);
let root: MemoryFolder;

beforeEach(async () => {
  root = new MemoryFolder();
  vi.stubGlobal('navigator', { storage: { getDirectory: async () => root } });
  const keep = async (url: string, file: string, size: number, kind?: 'adapter'): Promise<void> => {
    const source = Object.assign(new MemorySource({ [file]: bytes(size) }), { url });
    const kept = await cachedSource(source, { kind });
    await kept.read(file, 0, size);
    await kept.flush!();
  };
  await keep(MODEL, 'model.safetensors', 1000);
  await keep(LORA, 'adapter_model.safetensors', 300, 'adapter');
  const folder = await root.getDirectoryHandle(`${KV_FOLDER}mine`, { create: true });
  await writeCacheFile(folder, 'a.k', bytes(40));
  await writeCacheFile(folder, 'a.v', bytes(60));
  await root.getDirectoryHandle("the page's own", { create: true });
});
afterEach(() => vi.unstubAllGlobals());

const model = { url: MODEL, kind: 'model', bytes: 1000, complete: true };
const lora = { url: LORA, kind: 'adapter', bytes: 300, complete: true };
const kv = { url: 'kv:mine', kind: 'kv', bytes: 100, complete: true };
const list = async (): Promise<object[]> => (await listCached()).sort((a, b) => b.bytes - a.bytes);

it('models, adapters, and keys and values are listed with their bytes', async () => {
  expect(await list()).toEqual([model, lora, kv]);
  expect(await findCached(LORA)).toEqual(lora);
  expect(await findCached('https://example.com/other/')).toBeUndefined();
});

it('each is deleted by its address, or all, and nothing else of the page', async () => {
  expect(await deleteCached('kv:other')).toBe(false);
  expect(await deleteCached('kv:mine')).toBe(true);
  expect(await list()).toEqual([model, lora]);
  expect(await deleteCached(LORA)).toBe(true);
  expect(await list()).toEqual([model]);
  await root.getDirectoryHandle(`${KV_FOLDER}other`, { create: true });
  expect(await deleteCached()).toBe(true);
  expect([await list(), await deleteCached()]).toEqual([[], false]);
  await root.getDirectoryHandle("the page's own");
});
