import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deleteCached, cachedFiles } from './cache_list.js';
import { cachedSource } from './cached_source.js';
import { PIECE_BYTES } from './cached_file.js';
import { httpSource } from '../sources/http_source.js';
import { cacheNames } from './opfs.js';
import type { Source } from '../source.js';
import { type Misbehaviour, startServer, type TestServer } from '../testing/http_server.js';
import { MemoryFolder } from '../testing/memory_folder.js';
import { MemoryLocks } from '../testing/memory_locks.js';
import { MemorySource } from '../testing/memory_source.js';
import { randomBytes, suiteFiles, testSource } from '../testing/source_suite.js';

/** Three pieces, the last one short. */
const SIZE = 2 * PIECE_BYTES + 1000;
const FILE = 'model.safetensors';
const weights = randomBytes(SIZE);
const config = new TextEncoder().encode('{"a":1}');

let server: TestServer;
let folder: MemoryFolder;
let warnings: string[];

beforeEach(async () => {
  server = await startServer({ 'config.json': config, [FILE]: weights });
  folder = new MemoryFolder();
  warnings = [];
});
afterEach(() => server[Symbol.asyncDispose]());

const onWarning = (message: string): void => void warnings.push(message);
/** As a page does when it is loaded: only the folder survives. */
const visit = (url = server.url): Promise<Source> =>
  cachedSource(httpSource(url, { attempts: 1 }), { folder, onWarning });

async function fill(): Promise<void> {
  const source = await visit();
  await source.read(FILE, 0, SIZE);
  await source.flush!();
  requested();
}

const same = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;
const requested = (): (string | undefined)[] => server.requests.splice(0).map(({ range }) => range);
const PROBE = 'bytes=0-65535';
const pieces = (first: number, last: number): string =>
  `bytes=${first * PIECE_BYTES}-${Math.min(SIZE, (last + 1) * PIECE_BYTES) - 1}`;

async function goAway(): Promise<void> {
  server.misbehave = (request) => (request.socket.destroy(), true);
}

let suiteServer: TestServer | undefined;
testSource('cached http', async () => {
  await suiteServer?.[Symbol.asyncDispose]();
  suiteServer = await startServer(suiteFiles);
  return cachedSource(httpSource(suiteServer.url), { folder: new MemoryFolder() });
});
// The server's port is in the URL: one folder and one server for this one, filled by the first test that reads.
const filled = new MemoryFolder();
let filledServer: Promise<TestServer> | undefined;
testSource('cached http, from the cache', async () => {
  const { url } = await (filledServer ??= startServer(suiteFiles));
  const source = await cachedSource(httpSource(url), { folder: filled });
  await source.flush?.();
  return source;
});

describe('cachedSource', () => {
  it('downloads once, and again nothing but a look at each file', async () => {
    const one = await visit();
    expect(same(await one.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(await one.read('config.json', 0, 7)).toEqual(config);
    await one.flush!();
    expect(requested()).toEqual([PROBE, pieces(0, 2), PROBE]);
    const two = await visit();
    expect(same(await two.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(await two.read(FILE, PIECE_BYTES - 3, PIECE_BYTES + 3)).toEqual(
      weights.slice(PIECE_BYTES - 3, PIECE_BYTES + 3),
    );
    expect(await two.read('config.json', 0, 7)).toEqual(config);
    expect(requested()).toEqual([PROBE, PROBE]);
    expect(warnings).toEqual([]);
  });

  it('resumes: fetches only the pieces that are not there', async () => {
    const one = await visit();
    await one.read(FILE, PIECE_BYTES + 5, PIECE_BYTES + 6);
    await one.flush!();
    requested();
    const two = await visit();
    expect(same(await two.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE, pieces(0, 0), pieces(2, 2)]);
  });

  it('fetches a piece once however many read it at the same time', async () => {
    const source = await visit();
    await source.size(FILE);
    requested();
    const reads = await Promise.all(
      [0, 1000, 2000, PIECE_BYTES - 10].map((start) => source.read(FILE, start, start + 20)),
    );
    for (const [at, start] of [0, 1000, 2000, PIECE_BYTES - 10].entries())
      expect(reads[at]).toEqual(weights.slice(start, start + 20));
    expect(requested().filter((range) => range === pieces(0, 0) || range === pieces(0, 1))).toHaveLength(1);
  });

  it('lets one reader go without taking the others along', async () => {
    const source = await visit();
    await source.size(FILE);
    const stop = new AbortController();
    const leaver = source.read(FILE, PIECE_BYTES, PIECE_BYTES + 10, stop.signal);
    await Promise.resolve();
    const stayer = source.read(FILE, PIECE_BYTES, PIECE_BYTES + 20);
    stop.abort();
    await expect(leaver).rejects.toMatchObject({ code: 'aborted' });
    expect(await stayer).toEqual(weights.slice(PIECE_BYTES, PIECE_BYTES + 20));
  });

  it('returns other sources as they are', async () => {
    const source = new MemorySource({});
    expect(await cachedSource(source, { folder, onWarning })).toBe(source);
    const http = httpSource(server.url);
    expect(await cachedSource(http, { onWarning })).toBe(http); // Node
    expect(warnings).toEqual([]);
  });
});

describe('a file that has changed at the server', () => {
  const other = randomBytes(SIZE, 2);

  const changes: [name: string, change: () => void][] = [
    ['etag', () => (server.etag = '"two"')],
    ['size', () => server.files.set(FILE, other.slice(0, SIZE - 1))],
  ];
  it.each(changes)('is fetched again: %s', async (_, change) => {
    const one = await visit();
    await one.read(FILE, 0, SIZE);
    await one.flush!();
    server.files.set(FILE, other);
    change();
    const now = server.files.get(FILE)!;
    const two = await visit();
    expect(same(await two.read(FILE, 0, now.byteLength), now)).toBe(true);
    await two.flush!();
    expect((await cachedFiles(folder)).map(({ bytes }) => bytes)).toEqual([now.byteLength]); // the old one is gone
  });

  it('is not stored where the server has no validator, and read from it each time', async () => {
    await fill();
    server.etag = undefined;
    for (const now of [weights, other]) {
      server.files.set(FILE, now);
      const source = await visit();
      expect(await source.version(FILE)).toBeUndefined();
      expect(same(await source.read(FILE, 0, SIZE), now)).toBe(true);
      await source.flush!();
      expect(requested()).toEqual([PROBE, `bytes=0-${SIZE - 1}`]);
    }
    expect(warnings).toEqual(Array.from({ length: 2 }, () => expect.stringContaining('sends no ETag')));
    expect(await cachedFiles(folder)).toMatchObject([{ bytes: SIZE, complete: true }]);
  });

  it('the old version stays until the new one is whole', async () => {
    await fill();
    server.files.set(FILE, other);
    server.etag = '"two"';
    const two = await visit();
    await two.read(FILE, 0, 10);
    await two.flush!();
    expect((await cachedFiles(folder))[0]!.bytes).toBe(SIZE + PIECE_BYTES);
    await goAway();
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    server.misbehave = undefined;
    const three = await visit();
    requested();
    expect(same(await three.read(FILE, 0, SIZE), other)).toBe(true);
    await three.flush!();
    expect(requested()).toEqual([PROBE, pieces(1, 2)]);
    expect((await cachedFiles(folder))[0]!.bytes).toBe(SIZE);
    await goAway();
    expect(same(await (await visit()).read(FILE, 0, SIZE), other)).toBe(true);
  });

  it('versions that were only begun do not pile up', async () => {
    for (const etag of ['"two"', '"three"', '"four"', '"five"']) {
      server.etag = etag;
      const source = await visit();
      await source.read(FILE, 0, 10);
      await source.flush!();
    }
    expect((await cachedFiles(folder))[0]!.bytes).toBeLessThanOrEqual(2 * PIECE_BYTES);
  });

  it('while an older tab goes on with the old one: neither spoils the other', async () => {
    const old = await visit();
    await old.read(FILE, 0, 1000);
    await old.flush!();
    server.files.set(FILE, other);
    server.etag = '"two"';
    const young = await visit();
    expect(same(await young.read(FILE, 0, SIZE), other)).toBe(true);
    await young.flush!();
    // What the old tab has not read it can't have any more, and it must not write into the new version's folder.
    await expect(old.read(FILE, PIECE_BYTES, SIZE)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('has changed'),
    });
    expect(same(await (await visit()).read(FILE, 0, SIZE), other)).toBe(true);
  });
});

describe('two tabs', () => {
  it('without locks download the same file side by side', async () => {
    const [one, two] = await Promise.all([visit(), visit()]);
    const reads = await Promise.all([one!.read(FILE, 0, SIZE), two!.read(FILE, 0, SIZE)]);
    for (const read of reads) expect(same(read, weights)).toBe(true);
    await Promise.all([one!.flush!(), two!.flush!()]);
    expect(warnings).toEqual([]);
    requested();
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE]);
  });

  const locks = new MemoryLocks();
  const openTab = async (): Promise<{ source: Source; close(): void }> => {
    const { locks: own, close } = locks.tab();
    const http = httpSource(server.url, { attempts: 1 });
    return { source: await cachedSource(http, { folder, onWarning, locks: own }), close };
  };
  /** Bytes of weights that the server was asked for, but for a look at the head. */
  const fetched = (): number =>
    requested().reduce((sum, range) => {
      const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(range!)!.map(Number);
      return sum + (range === PROBE ? 0 : end! - start! + 1);
    }, 0);
  /** In the order and the sizes of a load. */
  const readAll = async ({ source }: { source: Source }): Promise<Uint8Array> => {
    const all = new Uint8Array(SIZE);
    for (let at = 0; at < SIZE; at += 1_000_000) {
      all.set(await source.read(FILE, at, Math.min(SIZE, at + 1_000_000)), at);
    }
    return all;
  };

  it('fetch each byte once between them', async () => {
    const tabs = await Promise.all([openTab(), openTab(), openTab()]);
    for (const read of await Promise.all(tabs.map(readAll))) expect(same(read, weights)).toBe(true);
    await Promise.all(tabs.map(({ source }) => source.flush!()));
    expect(fetched()).toBe(SIZE);
    expect(locks.held).toEqual([]);
    expect(warnings).toEqual([]);
  });

  it('the one that waits takes over when the other dies', async () => {
    const [dying, heir] = [await openTab(), await openTab()];
    let reached = (): void => {};
    const asked = new Promise<void>((resolve) => (reached = resolve));
    server.misbehave = (request) => request.headers.range !== PROBE && (reached(), true); // never answered
    const stop = new AbortController();
    const lost = dying.source.read(FILE, 0, SIZE, stop.signal);
    await asked;
    const read = readAll(heir);
    await new Promise((resolve) => setTimeout(resolve, 50));
    server.misbehave = undefined;
    dying.close();
    expect(same(await read, weights)).toBe(true);
    stop.abort();
    await expect(lost).rejects.toMatchObject({ code: 'aborted' });
    await heir.source.flush!();
    expect(locks.held).toEqual([]);
  });

  it('a failed fetch lets the other one try', async () => {
    const [unlucky, other] = [await openTab(), await openTab()];
    let failures = 1;
    server.misbehave = (request) => {
      if (request.headers.range === PROBE || failures-- <= 0) return false;
      setTimeout(() => request.socket.destroy(), 30);
      return true;
    };
    const [first, second] = await Promise.allSettled([readAll(unlucky), readAll(other)]);
    const results = [first, second].map(({ status }) => status).sort();
    expect(results).toEqual(['fulfilled', 'rejected']);
    await Promise.all([unlucky, other].map(({ source }) => source.flush!()));
    expect(locks.held).toEqual([]);
  });

  it('waiting can be aborted, and leaves nothing held', async () => {
    const [busy, waiting] = [await openTab(), await openTab()];
    let answer = (): void => {};
    const held = new Promise<void>((resolve) => (answer = resolve));
    server.misbehave = (request, response) => {
      if (request.headers.range === PROBE || request.headers.range === undefined) return false;
      void held.then(() => response.destroy());
      return true;
    };
    const reading = busy.source.read(FILE, 0, SIZE);
    reading.catch(() => {});
    await expect.poll(() => locks.held.length).toBeGreaterThan(0);
    const stop = new AbortController();
    const left = waiting.source.read(FILE, 0, 10, stop.signal);
    left.catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, 20));
    stop.abort();
    await expect(left).rejects.toMatchObject({ code: 'aborted' });
    answer();
    await expect(reading).rejects.toMatchObject({ code: 'io' });
    expect(locks.held).toEqual([]);
    server.misbehave = undefined;
    expect(same(await readAll(waiting), weights)).toBe(true);
  });

  it('no locks for this page: each goes its own way', async () => {
    const refusing = { request: async () => Promise.reject(new DOMException('no', 'SecurityError')) } as never;
    const source = await cachedSource(httpSource(server.url), { folder, onWarning, locks: refusing });
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
  });

  it('the cache is deleted while another one reads', async () => {
    const source = await visit();
    await source.read(FILE, 0, PIECE_BYTES);
    await source.flush!();
    expect(await deleteCached(server.url, folder)).toBe(true);
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    await source.flush!();
    expect(warnings).toEqual([expect.stringMatching(/not cached any further/)]);
  });
});

describe('eviction in the middle of a load', () => {
  it('of single pieces: they are fetched again and stored again', async () => {
    await fill();
    const source = await visit();
    await source.read(FILE, 0, 10);
    const [model] = await cacheNames(folder);
    const versions = await folder.getDirectoryHandle(model!);
    const version = (await cacheNames(versions)).find((name) => name.includes('.') && !name.endsWith('.json'))!;
    for (const piece of ['0', '1']) await (await versions.getDirectoryHandle(version)).removeEntry(piece);
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    await source.flush!();
    expect(requested()).toEqual([PROBE, pieces(0, 1)]);
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE]);
  });

  it('of all of it, with everything else of this site: the load goes on without storing', async () => {
    const source = await visit();
    await source.read(FILE, 0, 10);
    await source.flush!();
    for (const name of await cacheNames(folder)) await folder.removeEntry(name, { recursive: true });
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    await source.flush!();
    expect(warnings).toEqual([expect.stringMatching(/not cached any further/)]);
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
  });
});

describe('damage', () => {
  const path = (name: string): string => folder.paths().find((candidate) => candidate.endsWith(`/${name}`))!;

  it.each(['{"file":"model.safe', 'null', '{}'])('a corrupt manifest (%s) starts again', async (text) => {
    await fill();
    await folder.put(path('file.json'), text);
    const source = await visit();
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    await source.flush!();
    expect(requested()).toEqual([PROBE, pieces(0, 2)]);
    await visit().then((again) => again.read(FILE, 0, SIZE));
    expect(requested()).toEqual([PROBE]);
  });

  it('an empty or short piece, as a crash may leave it, is fetched again', async () => {
    await fill();
    await folder.put(path('0'), new Uint8Array(0));
    await folder.put(path('2'), weights.slice(0, 999));
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE, pieces(0, 0), pieces(2, 2)]);
  });

  const flip = async (name: string, at: number, count = 1): Promise<void> => {
    const stored = new Uint8Array(await (await fileAt(path(name))).arrayBuffer());
    for (let i = at; i < at + count; i++) stored[i] = stored[i]! ^ 255;
    await folder.put(path(name), stored);
  };
  const fileAt = async (where: string): Promise<Blob> => {
    const names = where.split('/');
    let directory = folder;
    for (const name of names.slice(0, -1)) directory = await directory.getDirectoryHandle(name);
    return (await directory.getFileHandle(names.at(-1)!)).getFile();
  };

  it('a piece that was altered at the same length is fetched again, with a warning', async () => {
    await fill();
    await flip('1', 1234);
    await flip('2', 1000 + 3); // its digest
    const two = await visit();
    expect(await two.read(FILE, PIECE_BYTES + 1230, PIECE_BYTES + 1240)).toEqual(
      weights.slice(PIECE_BYTES + 1230, PIECE_BYTES + 1240),
    );
    expect(same(await two.read(FILE, 0, SIZE), weights)).toBe(true);
    await two.flush!();
    expect(requested()).toEqual([PROBE, pieces(1, 1), pieces(2, 2)]);
    expect(warnings).toEqual([expect.stringMatching(/model\.safetensors.*is damaged, and is fetched again/)]);
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE]);
  });

  it('without the server a damaged piece is an error that says so', async () => {
    await fill();
    await flip('1', 1234);
    await goAway();
    const two = await visit();
    expect(await two.read(FILE, 0, 10)).toEqual(weights.slice(0, 10));
    await expect(two.read(FILE, PIECE_BYTES + 5, PIECE_BYTES + 6)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/the downloaded copy of model\.safetensors of .* is damaged/),
    });
    expect(await two.damage!()).toMatch(/is damaged: the bytes from 4194304 on are not those that were stored/);
  });

  it('is looked for when asked: in what is stored, and by blocks at the server', async () => {
    await fill();
    const two = await visit();
    await two.read(FILE, 0, SIZE);
    expect(await two.damage!()).toBeUndefined();
    await flip('0', 77);
    expect(await two.damage!()).toMatch(/the bytes from 0 on are not those that were stored.*deleteCached\('http/);
    await deleteCached(server.url, folder);
    // Damaged before it came: what was stored is what was sent.
    const spoilt = weights.slice();
    spoilt.fill(0, PIECE_BYTES, PIECE_BYTES + 1_000_000);
    server.files.set(FILE, spoilt);
    await fill();
    const three = await visit();
    await three.read(FILE, 0, SIZE);
    expect(await three.damage!()).toBeUndefined();
    server.files.set(FILE, weights);
    expect(await three.damage!()).toMatch(/is damaged: from byte \d+ on the server has others/);
    await goAway();
    expect(await three.damage!()).toBeUndefined(); // nobody can tell
  });

  it('a small file is compared whole, with few requests', async () => {
    const spoilt = weights.slice(0, 100_000);
    spoilt[99_999]! ^= 255;
    server.files.set(FILE, spoilt);
    const source = await visit();
    await source.read(FILE, 0, spoilt.length);
    await source.flush!();
    server.files.set(FILE, weights.slice(0, 100_000));
    requested();
    expect(await source.damage!()).toMatch(/is damaged: from byte \d+ on the server has others/);
    expect(requested().length).toBeLessThan(8);
  });

  it('an unreadable entry is listed as such and can be deleted', async () => {
    await fill();
    await folder.put(
      folder.paths().find((name) => name.endsWith('entry.json'))!,
      '{',
    );
    const { url } = (await cachedFiles(folder))[0]!;
    expect(url).toMatch(/^\(unknown /);
    expect(await deleteCached(url, folder)).toBe(true);
    expect(folder.paths()).toEqual([]);
  });
});

describe('no room', () => {
  it('a full disk: warns once, keeps what fits, and loads on', async () => {
    folder.disk.quota = PIECE_BYTES + 5000;
    const source = await visit();
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    await source.flush!();
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(warnings).toEqual([expect.stringMatching(/storage for this site is full/)]);
    requested();
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE, pieces(1, 2)]);
  });

  it('a slow disk: what has been written counts no longer as waiting for it', async () => {
    // More than may wait in memory.
    const big = new Uint8Array(10 * PIECE_BYTES + 5).map((_, at) => at * 31);
    await server[Symbol.asyncDispose]();
    server = await startServer({ [FILE]: big });
    const source = await cachedSource(httpSource(server.url, { attempts: 1 }), { folder, onWarning });
    const half = 9 * PIECE_BYTES;
    await source.read(FILE, 0, half);
    await source.flush!();
    let release = (): void => {};
    const blocked = new Promise<void>((resolve) => (release = resolve));
    folder.disk.beforeWrite = () => blocked;
    // One piece in memory waits for nothing.
    expect(same(await source.read(FILE, half, half + 100), big.subarray(half, half + 100))).toBe(true);
    release();
    await source.flush!();
  });

  it('no room at all', async () => {
    folder.disk.quota = 0;
    const source = await visit();
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(warnings).toEqual([expect.stringMatching(/is not cached/)]);
  });

  it('room for the entry only', async () => {
    folder.disk.quota = 100;
    const source = await visit();
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(warnings).toEqual([expect.stringMatching(/not cached any further/)]);
  });

  it('a browser without such storage: warns, and loads', async () => {
    const navigator = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
    Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { storage: {} } });
    try {
      const http = httpSource(server.url);
      expect(await cachedSource(http, { onWarning })).toBe(http);
      expect(warnings).toEqual([expect.stringMatching(/no origin private file system/)]);
    } finally {
      if (navigator) Object.defineProperty(globalThis, 'navigator', navigator);
      else Reflect.deleteProperty(globalThis, 'navigator');
    }
  });

  it('reading waits for a slow disk instead of filling memory', async () => {
    const large = new Uint8Array(60 * 1024 * 1024);
    server.files.set(FILE, large);
    let release = (): void => {};
    const held = new Promise<void>((resolve) => (release = resolve));
    const source = await visit();
    await source.size(FILE);
    folder.disk.beforeWrite = () => held;
    let fetched = 0;
    const reading = (async () => {
      for (let at = 0; at < large.byteLength; at += 2 * PIECE_BYTES) {
        await source.read(FILE, at, Math.min(large.byteLength, at + 2 * PIECE_BYTES));
        fetched = at + 2 * PIECE_BYTES;
      }
    })();
    await new Promise((resolve) => setTimeout(resolve, 1000));
    expect(fetched).toBeLessThanOrEqual(40 * 1024 * 1024);
    release();
    await reading;
  });
});

describe('without the server', () => {
  it('a complete model loads from the cache, missing files included', async () => {
    const one = await visit();
    await one.read('config.json', 0, 7);
    await one.read(FILE, 0, SIZE);
    expect(await one.size('generation_config.json')).toBeUndefined();
    await one.flush!();
    await goAway();
    const two = await visit();
    expect(await two.read('config.json', 0, 7)).toEqual(config);
    expect(same(await two.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(await two.size('generation_config.json')).toBeUndefined();
    expect(warnings).toEqual([expect.stringMatching(/using the cached copy.*can't be reached/)]);
    await expect(two.size('never_asked_for.json')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('not in the cache'),
    });
  });

  it('what is not in the cache is an error that says how much is', async () => {
    const one = await visit();
    await one.read(FILE, 0, 10);
    await one.flush!();
    await goAway();
    const two = await visit();
    expect(await two.read(FILE, 100, 200)).toEqual(weights.slice(100, 200));
    await expect(two.read(FILE, 100, SIZE)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/holds only 4\.0 MiB of the 8\.0 MiB/),
    });
  });

  it('nothing in the cache is the error of the server', async () => {
    await goAway();
    await expect((await visit()).size('config.json')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/GET .*config\.json failed/),
    });
    expect(warnings).toEqual([]);
  });

  const gone: [string, Misbehaviour][] = [
    ['404', (_, response) => (response.writeHead(404).end(), true)],
    ['410', (_, response) => (response.writeHead(410).end(), true)],
    ['a web page', (_, response) => (response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>'), true)],
  ];
  it.each(gone)('a server that answers %s: a complete copy is used with a warning, and stays', async (_, misbehave) => {
    const one = await visit();
    await one.read('config.json', 0, 7);
    await one.read(FILE, 0, SIZE);
    expect(await one.size('generation_config.json')).toBeUndefined();
    await one.flush!();
    server.misbehave = misbehave;
    const two = await visit();
    expect(await two.read('config.json', 0, 7)).toEqual(config);
    expect(same(await two.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(await two.size('generation_config.json')).toBeUndefined();
    await two.flush!();
    expect(warnings).toEqual([
      expect.stringMatching(/using the cached copy.*no longer has all of it: GET .* answered (HTTP 4|with a web page)/),
    ]);
    expect(await cachedFiles(folder)).toEqual([{ url: server.url, kind: 'model', bytes: SIZE + 7, complete: true }]);
    server.misbehave = undefined;
    requested();
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE]);
  });

  it.each(gone)('a server that answers %s: half a copy is an error that says so, and stays', async (_, misbehave) => {
    const one = await visit();
    await one.read(FILE, 0, 10);
    await one.flush!();
    server.misbehave = misbehave;
    await expect((await visit()).read(FILE, 0, SIZE)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/holds only 4\.0 MiB.*answered (HTTP 4|with a web page)/),
    });
    server.misbehave = undefined;
    requested();
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE, pieces(1, 2)]);
  });

  it.each([401, 403])('HTTP %i: the cached copy, with a warning', async (status) => {
    await fill();
    server.misbehave = (_, response) => (response.writeHead(status).end(), true);
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(warnings).toEqual([expect.stringMatching(/using the cached copy.*refuses it: GET .* answered HTTP 40/)]);
  });

  it('looking only: what is cached is read, nothing is added, and no folder is made', async () => {
    const look = async (): Promise<Source> =>
      cachedSource(httpSource(server.url, { attempts: 1 }), { folder, onWarning, store: false });
    expect(await (await look()).read(FILE, 0, 10)).toEqual(weights.slice(0, 10));
    expect(folder.paths()).toEqual([]);
    await fill();
    const before = folder.paths();
    const source = await look();
    expect(same(await source.read(FILE, 0, SIZE), weights)).toBe(true);
    expect(await source.read('config.json', 0, 7)).toEqual(config);
    expect(requested()).toEqual([PROBE, PROBE]);
    expect(folder.paths()).toEqual(before);
    server.misbehave = gone[0]![1];
    expect(same(await (await look()).read(FILE, 0, SIZE), weights)).toBe(true);
    await expect((await look()).read('config.json', 0, 7)).rejects.toMatchObject({ code: 'io' });
  });

  it('a file that appears at the server is no longer missing', async () => {
    expect(await (await visit()).size('late.json')).toBeUndefined();
    server.files.set('late.json', config);
    expect(await (await visit()).size('late.json')).toBe(7);
    await goAway();
    expect(await (await visit()).size('late.json')).toBe(7);
  });
});

describe("a server that tells a file's SHA-256", () => {
  const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
  const tell = (digest: string): void => {
    server.misbehave = (request, response) => {
      if (request.url!.endsWith(FILE)) response.setHeader('X-Linked-Etag', `"${digest}"`);
      return false;
    };
  };

  it('needs no other validator, and one that changes costs nothing', async () => {
    tell(sha256(weights));
    server.etag = undefined;
    await fill();
    server.etag = '"of another server of the same CDN"';
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE]);
  });

  it('a file that is whole is checked against it, whatever order it was read in', async () => {
    tell(sha256(weights));
    const source = await visit();
    await source.read(FILE, 2 * PIECE_BYTES, SIZE);
    await source.read(FILE, 0, 5);
    await source.flush!();
    await source.read(FILE, PIECE_BYTES, PIECE_BYTES + 1);
    await source.flush!();
    expect(await cachedFiles(folder)).toMatchObject([{ bytes: SIZE, complete: true }]);
    const spoilt = weights.slice();
    spoilt[5_000_000] = 0;
    server.files.set(FILE, spoilt);
    await deleteCached(server.url, folder);
    const two = await visit();
    await two.read(FILE, 0, SIZE);
    await expect(two.flush!()).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/model\.safetensors.*is damaged: its SHA-256 is .*; the server says/),
    });
    expect(await cachedFiles(folder)).toMatchObject([{ bytes: 0 }]);
  });
});

describe('cachedFiles and deleteCached', () => {
  it('tell what is there, and remove it', async () => {
    const one = await visit();
    await one.read('config.json', 0, 7);
    await one.read(FILE, 0, 10);
    await one.flush!();
    expect(await cachedFiles(folder)).toEqual([
      { url: server.url, kind: 'model', bytes: PIECE_BYTES + 7, complete: false },
    ]);
    await one.read(FILE, 0, SIZE);
    await one.flush!();
    expect(await cachedFiles(folder)).toEqual([{ url: server.url, kind: 'model', bytes: SIZE + 7, complete: true }]);
    await visit(`${server.url}other/`);
    expect((await cachedFiles(folder)).map(({ url }) => url).sort()).toEqual([server.url, `${server.url}other/`]);
    expect(await deleteCached(server.url, folder)).toBe(true);
    expect(await deleteCached(server.url, folder)).toBe(false);
    expect((await cachedFiles(folder)).map(({ url }) => url)).toEqual([`${server.url}other/`]);
    await deleteCached(undefined, folder);
    expect(await cachedFiles(folder)).toEqual([]);
    expect(folder.paths()).toEqual([]);
  });
});
