import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deleteCached, listCached } from './cache_list.js';
import { cachedSource } from './cached_source.js';
import { PIECE_BYTES } from './cached_file.js';
import { httpSource } from './http_source.js';
import type { LoadProgress, Source } from './source.js';
import { startServer, type TestServer } from './testing/http_server.js';
import { MemoryFolder } from './testing/memory_folder.js';
import { MemorySource } from './testing/memory_source.js';
import { randomBytes, suiteFiles, testSource } from './testing/source_suite.js';

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

  it('reports the download', async () => {
    const seen: LoadProgress[] = [];
    const source = await cachedSource(httpSource(server.url), {
      folder,
      onProgress: (progress) => seen.push(progress),
    });
    await source.read(FILE, 0, 10);
    await source.flush!();
    await source.read(FILE, 0, SIZE);
    expect(seen.map(({ phase, file, loadedBytes, totalBytes }) => [phase, file, loadedBytes, totalBytes])).toEqual([
      ['download', FILE, PIECE_BYTES, SIZE],
      ['download', FILE, SIZE, SIZE],
    ]);
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
    ['validator gone', () => (server.etag = undefined)],
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
    expect((await listCached(folder)).map(({ bytes }) => bytes)).toEqual([now.byteLength]); // the old one is gone
  });

  it('is known by the hash of its beginning where the server has no validator', async () => {
    server.etag = undefined;
    const one = await visit();
    await one.read(FILE, 0, SIZE);
    await one.flush!();
    requested();
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE]);
    const changed = weights.slice();
    changed[9] = changed[9]! ^ 1;
    server.files.set(FILE, changed);
    expect(same(await (await visit()).read(FILE, 0, SIZE), changed)).toBe(true);
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
  it('download the same file side by side', async () => {
    const [one, two] = await Promise.all([visit(), visit()]);
    const reads = await Promise.all([one!.read(FILE, 0, SIZE), two!.read(FILE, 0, SIZE)]);
    for (const read of reads) expect(same(read, weights)).toBe(true);
    await Promise.all([one!.flush!(), two!.flush!()]);
    expect(warnings).toEqual([]);
    requested();
    expect(same(await (await visit()).read(FILE, 0, SIZE), weights)).toBe(true);
    expect(requested()).toEqual([PROBE]);
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

describe('damage', () => {
  const fill = async (): Promise<void> => {
    const source = await visit();
    await source.read(FILE, 0, SIZE);
    await source.flush!();
    requested();
  };
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

  it('an unreadable entry is listed as such and can be deleted', async () => {
    await fill();
    await folder.put(
      folder.paths().find((name) => name.endsWith('entry.json'))!,
      '{',
    );
    const { url } = (await listCached(folder))[0]!;
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

  it('a file that appears at the server is no longer missing', async () => {
    expect(await (await visit()).size('late.json')).toBeUndefined();
    server.files.set('late.json', config);
    expect(await (await visit()).size('late.json')).toBe(7);
    await goAway();
    expect(await (await visit()).size('late.json')).toBe(7);
  });
});

describe('listCached and deleteCached', () => {
  it('tell what is there, and remove it', async () => {
    const one = await visit();
    await one.read('config.json', 0, 7);
    await one.read(FILE, 0, 10);
    await one.flush!();
    expect(await listCached(folder)).toEqual([{ url: server.url, bytes: PIECE_BYTES + 7, complete: false }]);
    await one.read(FILE, 0, SIZE);
    await one.flush!();
    expect(await listCached(folder)).toEqual([{ url: server.url, bytes: SIZE + 7, complete: true }]);
    await visit(`${server.url}other/`);
    expect((await listCached(folder)).map(({ url }) => url).sort()).toEqual([server.url, `${server.url}other/`]);
    expect(await deleteCached(server.url, folder)).toBe(true);
    expect(await deleteCached(server.url, folder)).toBe(false);
    expect((await listCached(folder)).map(({ url }) => url)).toEqual([`${server.url}other/`]);
    await deleteCached(undefined, folder);
    expect(await listCached(folder)).toEqual([]);
    expect(folder.paths()).toEqual([]);
  });
});
