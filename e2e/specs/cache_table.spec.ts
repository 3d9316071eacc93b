import { createHash, randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { expect, type Page, test } from '@playwright/test';
import { build } from 'vite';
import { drawn } from '../../src/gpu/testing/draw.js';
import { PIECE_BYTES } from '../../src/loader/cache/cached_file.js';
import { type Misbehaviour, startServer, type TestServer } from '../../src/loader/testing/http_server.js';
import type * as Harness from '../support/cache_harness.js';

// A file of three pieces at a server of its own, and the private file system of Chromium: what each fault of a server, a network or
// a disk ends with.

const FILE = 'model.safetensors';
const SIZE = 2 * PIECE_BYTES + 1000;
const HALF = PIECE_BYTES;
const PROBE = 65_536;
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const first = Uint8Array.from(randomBytes(SIZE));
/** Another version, whose first 64 KiB are the same, as those of a checkpoint that was trained further are. */
const second = Uint8Array.from([...first.subarray(0, PROBE), ...randomBytes(SIZE - PROBE)]);

test.describe.configure({ mode: 'parallel' });

let script: string;
test.beforeAll(async () => {
  const built = await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false,
      minify: false,
      lib: { entry: 'e2e/support/cache_harness.ts', formats: ['es'] },
      rolldownOptions: { output: { codeSplitting: false } },
    },
  });
  script = (built as { output: { code: string }[] }[])[0]!.output[0]!.code;
});

interface Site {
  readonly server: TestServer;
  /** Bytes of the file that were asked for. */
  asked(): number;
  /** Answers requests for the file in another way from now on. */
  fault: Misbehaviour | undefined;
  close(): Promise<void>;
}

/** A server of the model and of a page beside it. */
async function openSite(): Promise<Site> {
  const server = await startServer({ [FILE]: first });
  const site: Site = {
    server,
    fault: undefined,
    asked: () =>
      server.requests.reduce((sum, { range }) => {
        const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
        return sum + (end === undefined ? 0 : Number(end) - Number(start) + 1);
      }, 0),
    close: async () => server[Symbol.asyncDispose](),
  };
  server.misbehave = (request, response, seen) => {
    if (request.url === '/page') return (response.setHeader('Content-Type', 'text/html').end('<!doctype html>'), true);
    if (request.url === '/harness.js') return (response.setHeader('Content-Type', 'text/javascript').end(script), true);
    return request.url!.endsWith(FILE) && (site.fault?.(request, response, seen) ?? false);
  };
  return site;
}

/** A page of the site, and the harness in it. */
async function openTab(page: Page, { server }: Site): Promise<Tab> {
  await page.goto(new URL('/page', server.url).href);
  return new Tab(page);
}

class Tab {
  constructor(readonly page: Page) {}

  #call<Result>(name: keyof typeof Harness, ...args: readonly unknown[]): Promise<Result> {
    return this.page.evaluate(
      async ([name, args]) => {
        const address = '/harness.js';
        const harness = (await import(address)) as Record<string, (...args: unknown[]) => unknown>;
        return (await harness[name]!(...args)) as never;
      },
      [name, args] as const,
    );
  }

  visit = (stallMs?: number): Promise<number> => this.#call('visit', stallMs);
  /** All of the file by default. */
  read = (visit: number, from = 0, to?: number): Promise<string> => this.#call('read', visit, from, to);
  warnings = (visit: number): Promise<string> => this.#call('warnings', visit);
  kept = (): Promise<{ bytes: number; complete: boolean }[]> => this.#call('kept');
  spoil = (how: 'flip' | 'truncate' | 'evict'): Promise<void> => this.#call('spoil', how);

  /** A new visit that reads everything. */
  async load(stallMs?: number): Promise<{ found: string; warnings: string }> {
    const visit = await this.visit(stallMs);
    return { found: await this.read(visit), warnings: await this.warnings(visit) };
  }
}

const whole = { found: sha256(first), warnings: '' };
const newer = { found: sha256(second), warnings: '' };
/** Of a server that gives nothing by which versions could be told apart: nothing is stored, which is said once. */
const unkept = (of: typeof whole): object => ({ ...of, warnings: expect.stringContaining('is not cached') });
const fill = async (tab: Tab): Promise<void> => expect(await tab.load()).toEqual(whole);
/** The server has the second version from now on. */
const change = ({ server }: Site, etag: string | undefined = '"two"'): void => {
  server.files.set(FILE, second);
  server.etag = etag;
};
const status =
  (code: number, headers: Record<string, string> = {}, body = ''): Misbehaviour =>
  (_, response) => (response.writeHead(code, headers).end(body), true);
/** A range whose headers are otherwise than they should be. */
const range =
  (header: (start: number, end: number) => string): Misbehaviour =>
  (request, response) => {
    const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range!)!.map(Number);
    const bytes = first.subarray(start!, end! + 1);
    response.writeHead(206, { 'Content-Range': header(start!, end!), ETag: '"one"' }).end(bytes);
    return true;
  };
const wholeFile =
  (bytes: Uint8Array): Misbehaviour =>
  (_, response) => (response.writeHead(200, { 'Content-Length': bytes.byteLength }).end(bytes), true);
/** Something every so often, for as long as somebody listens. */
const trickle = (response: ServerResponse, everyMs: number): true => {
  response.writeHead(206, { 'Content-Range': `bytes 0-${PROBE - 1}/${SIZE}`, 'Content-Length': PROBE });
  const timer = setInterval(() => response.write('x'), everyMs);
  response.on('close', () => clearInterval(timer));
  return true;
};

type Row = readonly [name: string, run: (tab: Tab, site: Site) => Promise<void>];

const kept = (name: string, fault: Misbehaviour, why: RegExp): Row => [
  `${name}, complete: the cached copy, with a warning`,
  async (tab, site) => {
    await fill(tab);
    site.fault = fault;
    expect(await tab.load()).toEqual({ found: sha256(first), warnings: expect.stringMatching(why) });
    expect(await tab.kept()).toMatchObject([{ bytes: SIZE, complete: true }]);
    site.fault = undefined;
    site.server.requests.length = 0;
    await fill(tab);
    expect(site.asked()).toBe(PROBE);
  },
];
const refused = (name: string, fault: Misbehaviour, message: RegExp, stallMs?: number): Row => [
  `${name}: an error`,
  async (tab, site) => {
    site.fault = fault;
    expect((await tab.load(stallMs)).found).toMatch(message);
    // Nothing of it stays.
    site.fault = undefined;
    await fill(tab);
  },
];

const rows: readonly Row[] = [
  [
    'every second answer is cut off: whole, and little is fetched twice',
    async (tab, site) => {
      let count = 0;
      site.fault = (request, response) => {
        if (count++ % 2 === 1) return false;
        const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range!)!.map(Number);
        response.writeHead(206, {
          'Content-Range': `bytes ${start}-${end}/${SIZE}`,
          'Content-Length': end! + 1 - start!,
          ETag: '"one"',
        });
        response.write(first.subarray(start, (start! + end!) / 2), () => response.destroy());
        return true;
      };
      await fill(tab);
    },
  ],
  [
    'a piece that is cut short is fetched again',
    async (tab, site) => {
      await fill(tab);
      await tab.spoil('truncate');
      site.server.requests.length = 0;
      await fill(tab);
      expect(site.asked()).toBe(PROBE + PIECE_BYTES);
    },
  ],
  [
    'a piece that is altered at the same length is fetched again, with a warning',
    async (tab, site) => {
      await fill(tab);
      await tab.spoil('flip');
      site.server.requests.length = 0;
      const warnings = expect.stringMatching(/is damaged, and is fetched again/);
      expect(await tab.load()).toEqual({ ...whole, warnings });
      expect(site.asked()).toBe(PROBE + PIECE_BYTES);
      await fill(tab);
    },
  ],
  [
    'everything is evicted in the middle of a load: whole, with a warning',
    async (tab) => {
      const visit = await tab.visit();
      await tab.read(visit, 0, HALF);
      await tab.spoil('evict');
      expect(await tab.read(visit)).toBe(sha256(first));
      expect(await tab.warnings(visit)).toMatch(/is not cached any further/);
      await fill(tab);
    },
  ],
  [
    'another ETag while an older visit reads from its cache: the old version, whole',
    async (tab, site) => {
      const visit = await tab.visit();
      await tab.read(visit);
      change(site);
      expect(await tab.read(visit)).toBe(sha256(first));
      expect(await tab.load()).toEqual(newer);
      expect(await tab.kept()).toMatchObject([{ bytes: SIZE, complete: true }]);
    },
  ],
  [
    'another ETag half-way: "has changed", and the new version when loaded again',
    async (tab, site) => {
      const visit = await tab.visit();
      await tab.read(visit, 0, HALF);
      change(site);
      expect(await tab.read(visit)).toMatch(/^io: .* has changed while it was being read; load the model again/);
      expect(await tab.load()).toEqual(newer);
    },
  ],
  [
    'two tabs with the old and the new version: neither spoils the other',
    async (tab, site) => {
      const old = await tab.visit();
      await tab.read(old, 0, HALF);
      change(site);
      const other = await openTab(await tab.page.context().newPage(), site);
      expect(await other.load()).toEqual(newer);
      expect(await tab.read(old)).toMatch(/^io: .* has changed/);
      site.server.requests.length = 0;
      expect(await other.load()).toEqual(newer);
      expect(site.asked()).toBe(PROBE);
    },
  ],
  [
    'no ETag and no date, complete: it is not kept, so a change is noticed',
    async (tab, site) => {
      site.server.etag = undefined;
      expect(await tab.load()).toEqual(unkept(whole));
      change(site, undefined);
      expect(await tab.load()).toEqual(newer);
    },
  ],
  [
    'no ETag and no date, half of it cached: the versions are not mixed',
    async (tab, site) => {
      site.server.etag = undefined;
      await tab.read(await tab.visit(), 0, HALF);
      change(site, undefined);
      expect(await tab.load()).toEqual(newer);
    },
  ],
  ...[404, 410].map((code) => kept(`HTTP ${code}`, status(code), /no longer has all of it/)),
  kept('a web page', status(200, { 'Content-Type': 'text/html' }, '<p>sign in'), /no longer has all of it/),
  ...[401, 403].map((code) => kept(`HTTP ${code}`, status(code), /the server refuses it/)),
  kept('HTTP 500', status(500), /can't be reached.*HTTP 500/),
  kept('HTTP 503 for a day', status(503, { 'Retry-After': '86400' }), /asks to wait 86400 s/),
  kept('HTTP 204', status(204), /the server refuses it.*HTTP 204/),
  kept('a redirect to itself', status(302, { Location: `/model/${FILE}` }), /can't be reached/),
  kept('a server that is gone', (request) => (request.socket.destroy(), true), /can't be reached/),
  refused(
    'a Content-Range of another total',
    (request, response, seen) => {
      if (request.headers.range!.startsWith('bytes=0-65535')) return false;
      return range((start, end) => `bytes ${start}-${end}/${SIZE + 1}`)(request, response, seen);
    },
    /^io: .* has changed/,
  ),
  refused(
    'a Content-Range of another start',
    range((start, end) => `bytes ${start + 1}-${end + 1}/${SIZE}`),
    /^io: .* sent bytes 1 to 65537; expected 0 to 65536/,
  ),
  refused(
    'a Content-Range of no known form',
    range(() => 'pieces 1 of 2'),
    /^io: .* has Content-Range 'pieces 1 of 2'/,
  ),
  refused(
    'a total of 2^60',
    range((start, end) => `bytes ${start}-${end}/${2n ** 60n}`),
    /^io: .* has Content-Range/,
  ),
  refused(
    'a total of 400 digits',
    range((start, end) => `bytes ${start}-${end}/${'9'.repeat(400)}`),
    /^io: .* has Content-Range/,
  ),
  [
    'whole files in place of ranges, of at most 32 MiB: whole',
    async (tab, site) => {
      site.fault = wholeFile(first);
      expect(await tab.load()).toEqual(unkept(whole));
    },
  ],
  refused(
    'whole files of 40 MB in place of ranges',
    wholeFile(new Uint8Array(40_000_000)),
    /^io: .* sends whole files only/,
  ),
  refused(
    'bytes that say they are compressed, and are not',
    (_, response) => {
      response.writeHead(206, { 'Content-Encoding': 'gzip', 'Content-Range': `bytes 0-${PROBE - 1}/${SIZE}` });
      return (response.end(first.subarray(0, PROBE)), true);
    },
    /^io: .* failed 2 times/,
  ),
  refused('headers that never come', () => true, /^io: .* failed 2 times.*nothing came for 0.3 s/, 300),
  refused(
    'a byte now and then',
    (_, response) => trickle(response, 60),
    /^io: .* failed 2 times.*only \d+ bytes came for 1 s/,
    1000,
  ),
  [
    'no room for all of it: whole, with a warning, and what fits is kept',
    async (tab, site) => {
      const session = await tab.page.context().newCDPSession(tab.page);
      await session.send('Storage.overrideQuotaForOrigin', {
        origin: new URL(site.server.url).origin,
        quotaSize: 6_000_000,
      });
      const { found, warnings } = await tab.load();
      expect(found).toBe(sha256(first));
      expect(warnings).toMatch(/is not cached any further.*storage for this site is full/);
      expect(await tab.kept()).toMatchObject([{ complete: false }]);
    },
  ],
];

for (const [name, run] of drawn(rows, 5, 'cache table')) {
  test(name, async ({ page }) => {
    const site = await openSite();
    await run(await openTab(page, site), site);
    await site.close();
  });
}
