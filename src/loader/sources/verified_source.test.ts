import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cachedFiles } from '../cache/cache_list.js';
import { PIECE_BYTES } from '../cache/cached_file.js';
import { cachedSource } from '../cache/cached_source.js';
import { httpSource } from './http_source.js';
import { parseIntegrity } from './integrity.js';
import type { FileProgress, Source } from '../source.js';
import { startServer, type TestServer } from '../testing/http_server.js';
import { MemoryFolder } from '../testing/memory_folder.js';
import { MemorySource } from '../testing/memory_source.js';
import { randomBytes, suiteFiles, testSource } from '../testing/source_suite.js';
import { verifiedSource } from './verified_source.js';

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();
const hex = (bytes: Uint8Array): string => sha256(bytes).toString('hex');

/** toEqual takes seconds for megabytes. */
const same = (a: Uint8Array, b: Uint8Array): boolean => Buffer.from(a).equals(Buffer.from(b));

testSource('verified', async () =>
  verifiedSource(
    new MemorySource(suiteFiles),
    Object.fromEntries(Object.entries(suiteFiles).map(([name, bytes]) => [name, hex(bytes)])),
  ),
);

describe('parseIntegrity', () => {
  const bytes = Buffer.from('abc');

  it.each([
    ['hex', hex(bytes)],
    ['hex in capitals', hex(bytes).toUpperCase()],
    ['Subresource Integrity', `sha256-${sha256(bytes).toString('base64')}`],
    ['one of several', `sha384-AAAA sha256-${sha256(bytes).toString('base64')}`],
  ])('takes %s', (_, text) => {
    expect([...parseIntegrity({ 'a/b.bin': text })]).toEqual([['a/b.bin', hex(bytes)]]);
  });

  it.each([
    [[], /expected an object/],
    ['text', /expected an object/],
    [{ a: 'abc' }, /integrity of a: "abc" is no SHA-256/],
    [{ a: 5 }, /integrity of a: 5 is no SHA-256/],
    [{ a: `sha512-${'A'.repeat(88)}` }, /is no SHA-256/],
  ])('refuses %o', (value, message) => {
    expect(() => parseIntegrity(value)).toThrow(message);
  });

  it('refuses names that leave the folder', () => {
    expect(() => parseIntegrity({ '../a': hex(bytes) })).toThrow(/not a file of a model folder/);
  });
});

describe('files without a cache', () => {
  const files = { 'config.json': Buffer.from('{}'), 'model.safetensors': randomBytes(100_000) };

  it('that are others are refused before a byte of them is used', async () => {
    const source = await verifiedSource(new MemorySource(files), { 'model.safetensors': hex(Buffer.from('other')) });
    expect(await source.size('model.safetensors')).toBe(100_000);
    await expect(source.read('model.safetensors', 0, 8)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/model\.safetensors of .* is damaged, or isn't the version that integrity names/),
    });
    expect(await source.read('config.json', 0, 2)).toEqual(new Uint8Array(Buffer.from('{}')));
  });

  it('that are named and not there are an error at once', async () => {
    await expect(
      verifiedSource(new MemorySource(files), { 'modle.safetensors': '0'.repeat(64) }),
    ).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/modle\.safetensors is not in .*integrity names it/),
    });
  });

  it('planning leaves weights unread', async () => {
    const source = await verifiedSource(
      new MemorySource(files),
      { 'model.safetensors': '0'.repeat(64), 'config.json': '0'.repeat(64) },
      { weights: false },
    );
    expect((await source.read('model.safetensors', 0, 8)).byteLength).toBe(8);
    await expect(source.read('config.json', 0, 1)).rejects.toMatchObject({ code: 'io' });
  });
});

describe('files through the cache', () => {
  const SIZE = PIECE_BYTES + 1000;
  const FILE = 'model.safetensors';
  const weights = randomBytes(SIZE);
  let server: TestServer;
  let folder: MemoryFolder;
  beforeEach(async () => {
    server = await startServer({ [FILE]: weights });
    folder = new MemoryFolder();
  });
  afterEach(() => server[Symbol.asyncDispose]());

  const progress: FileProgress[] = [];
  const visit = async (expected: string): Promise<Source> =>
    verifiedSource(
      await cachedSource(httpSource(server.url, { attempts: 1 }), { folder }),
      { [FILE]: expected },
      { onProgress: (told) => progress.push(told) },
    );
  const asked = (): number => server.requests.splice(0).filter(({ range }) => range !== 'bytes=0-65535').length;

  it('are downloaded once, and read whole once ever', async () => {
    const one = await visit(hex(weights));
    expect(await one.read(FILE, 5, 9)).toEqual(weights.slice(5, 9));
    await one.flush!();
    expect(asked()).toBe(2);
    expect(progress.map(({ loadedBytes }) => loadedBytes)).toEqual([PIECE_BYTES, SIZE]);
    expect(await cachedFiles(folder)).toMatchObject([{ bytes: SIZE, complete: true }]);
    progress.length = 0;
    const two = await visit(hex(weights));
    expect(same(await two.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(asked()).toBe(0);
    expect(progress).toEqual([]);
  });

  it('that are others are refused each time, and stay for whoever expects nothing', async () => {
    const wrong = hex(Buffer.from('wrong'));
    for (let i = 0; i < 2; i++) {
      await expect((await visit(wrong)).read(FILE, 0, 1)).rejects.toMatchObject({ code: 'io' });
    }
    const plain = await cachedSource(httpSource(server.url), { folder });
    expect(same(await plain.read(FILE, 0, SIZE), weights)).toBe(true);
  });

  it('whose server tells another SHA-256 are refused before they are downloaded', async () => {
    server.misbehave = (_, response) => (response.setHeader('X-Linked-Etag', `"${hex(weights)}"`), false);
    await expect((await visit('0'.repeat(64))).read(FILE, 0, 1)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('integrity says'),
    });
    expect(asked()).toBe(0);
  });

  it('a check that failed for want of a connection is made again', async () => {
    const source = await visit(hex(weights));
    server.misbehave = (request) => (request.socket.destroy(), true);
    await expect(source.read(FILE, 0, 1)).rejects.toMatchObject({ code: 'io' });
    server.misbehave = undefined;
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
  });
});
