import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { httpSource } from './http_source.js';
import { type Misbehaviour, startServer, type TestServer } from '../testing/http_server.js';
import { randomBytes } from '../testing/source_suite.js';

const big = randomBytes(200_000);
let server: TestServer;

beforeEach(async () => {
  server = await startServer({ 'config.json': new TextEncoder().encode('{}'), 'w.safetensors': big });
});
afterEach(() => server[Symbol.asyncDispose]());

const quick = { backoffMs: 5 };
const source = (options = {}) => httpSource(server.url, { ...quick, ...options });
/** Answers of the server in order; further requests are answered as they should be. */
const first =
  (...answers: ((...args: Parameters<Misbehaviour>) => void)[]): Misbehaviour =>
  (request, response, seen) => {
    answers[seen]?.(request, response, seen);
    return seen < answers.length;
  };
const status =
  (code: number, headers = {}) =>
  (_: unknown, response: Parameters<Misbehaviour>[1]) =>
    void response.writeHead(code, headers).end('no');

describe('httpSource', () => {
  it('asks once for a small file and by range for a large one', async () => {
    const http = source();
    expect(await http.size('config.json')).toBe(2);
    await http.read('config.json', 0, 2);
    expect(await http.read('w.safetensors', 100_000, 100_010)).toEqual(big.slice(100_000, 100_010));
    expect(server.requests.map(({ range }) => range)).toEqual([
      'bytes=0-65535',
      'bytes=0-65535',
      'bytes=100000-100009',
    ]);
    expect(await http.version('w.safetensors')).toBe('"one"');
  });

  it('sends the query of a signed URL with every file, and keeps it out of names and messages', async () => {
    const http = httpSource(`${server.url}?token=secret`, quick);
    await http.read('w.safetensors', 100_000, 100_010);
    expect(server.requests.map(({ url }) => url)).toEqual([
      '/model/w.safetensors?token=secret',
      '/model/w.safetensors?token=secret',
    ]);
    server.misbehave = (_, response) => (response.writeHead(403).end(), true);
    await expect(http.size('config.json')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/^(?!.*secret).*HTTP 403.*access token/),
    });
    expect(http.name).toBe(server.url);
  });

  it('sends the headers given', async () => {
    let seen: string | undefined;
    server.misbehave = (request) => ((seen = request.headers.authorization), false);
    await source({ headers: { authorization: 'Bearer x' } }).size('config.json');
    expect(seen).toBe('Bearer x');
  });

  it('takes a missing file from 404, 410 and from a page sent in its place', async () => {
    expect(await source().size('model.safetensors.index.json')).toBeUndefined();
    server.misbehave = (_, response) => (response.writeHead(410).end(), true);
    expect(await source().size('a.json')).toBeUndefined();
    server.misbehave = (_, response) => (
      response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end('<html>'),
      true
    );
    const page = source();
    expect(await page.size('a.json')).toBeUndefined();
    expect(page.absence!('a.json')).toBe(`GET ${server.url}a.json answered with a web page (text/html)`);
    await expect(page.read('a.json', 0, 1)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('answered with a web page'),
    });
  });

  it('says so when pages come in place of ranges', async () => {
    const read = source();
    await read.size('model.safetensors');
    server.misbehave = (_, response) => (
      response.writeHead(200, { 'Content-Type': 'text/html' }).end('<html>sign in</html>'),
      true
    );
    await expect(read.read('model.safetensors', 70_000, 80_000)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('answered with a web page'),
    });
  });

  const hex = 'ab'.repeat(32);
  const base64 = Buffer.from(hex, 'hex').toString('base64');
  it.each([
    ['X-Linked-Etag', `"${hex}"`, hex],
    ['X-Linked-Etag', '"3b3cb2aae7d1b48e4cfb46c5b8bdc12c1f2f7a04"', undefined], // of a small file: git's SHA-1
    ['Repr-Digest', `sha-512=:AAAA:, sha-256=:${base64}:`, hex],
    ['Digest', `SHA-256=${base64}`, hex],
    ['Digest', 'SHA-256=short', undefined],
    ['ETag', `"${hex}"`, undefined], // anything may be an ETag
  ])('takes the SHA-256 of a file from its headers: %s: %s', async (name, value, expected) => {
    server.misbehave = (_, response) => (response.setHeader(name, value), false);
    expect(await source().sha256!('config.json')).toBe(expected);
  });

  it('uses Last-Modified for want of an ETag, and no version for want of both', async () => {
    server.etag = undefined;
    expect(await source().version('config.json')).toBeUndefined();
    server.misbehave = (_, response) => (response.setHeader('Last-Modified', 'Tue, 01 Sep 2026 00:00:00 GMT'), false);
    expect(await source().version('config.json')).toBe('Tue, 01 Sep 2026 00:00:00 GMT');
  });
});

describe('a server that ignores ranges', () => {
  const whole: Misbehaviour = (request, response) => {
    const file = server.files.get(request.url!.split('/').at(-1)!)!;
    response.writeHead(200, { 'Content-Length': file.byteLength }).end(file);
    return true;
  };

  it('is good enough for small files, read once', async () => {
    server.misbehave = whole;
    const http = source();
    expect(await http.read('w.safetensors', 150_000, 150_003)).toEqual(big.slice(150_000, 150_003));
    expect(Buffer.compare(await http.read('w.safetensors', 0, 200_000), big)).toBe(0);
    expect(server.requests.length).toBe(1);
  });

  it('is an error for large ones, without downloading them, saying what to enable', async () => {
    let closed: Promise<void> | undefined;
    server.misbehave = (_, response) => {
      closed = new Promise((resolve) => response.on('close', resolve));
      response.writeHead(200, { 'Content-Length': 5e9 }).write(new Uint8Array(1000));
      return true;
    };
    const http = source();
    expect(await http.size('w.safetensors')).toBe(5e9);
    await expect(http.read('w.safetensors', 0, 10)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/4\.7 GiB.*expected 206.*Accept-Ranges/),
    });
    await closed;
  });

  it('is an error too when it does not say how large they are', async () => {
    server.misbehave = (_, response) => {
      response.writeHead(200);
      const piece = new Uint8Array(1024 * 1024);
      const more = (): void => void response.write(piece, (error) => error ?? setTimeout(more));
      more();
      return true;
    };
    await expect(source().size('w.safetensors')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/more than 32 MiB/),
    });
  });

  it('may begin to only after the first look', async () => {
    const http = source();
    await http.size('w.safetensors');
    server.misbehave = whole;
    await expect(http.read('w.safetensors', 100_000, 100_010)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('expected 206'),
    });
  });
});

describe('a server of another origin that hides Content-Range', () => {
  it('is asked for the size in another way', async () => {
    // As CORS does: the header is sent, the page can't see it.
    const hiding: typeof fetch = async (url, init) => {
      const response = await fetch(url, init);
      const headers = new Headers(response.headers);
      headers.delete('content-range');
      return new Response(response.body, { status: response.status, headers });
    };
    const http = source({ fetch: hiding });
    expect(await http.size('config.json')).toBe(2);
    expect(await http.size('w.safetensors')).toBe(200_000);
    expect(await http.read('w.safetensors', 100_000, 100_010)).toEqual(big.slice(100_000, 100_010));
  });
});

describe('failures that pass', () => {
  it.each([408, 429, 500, 502, 503, 504])('tries again after HTTP %i', async (code) => {
    server.misbehave = first(status(code), status(code));
    expect(await source().size('config.json')).toBe(2);
    expect(server.requests.length).toBe(3);
  });

  it('tries again when the connection breaks, before or within the body', async () => {
    server.misbehave = first(
      (request) => void request.socket.destroy(),
      (_, response) => {
        response
          .writeHead(206, { 'Content-Range': 'bytes 0-65535/200000', 'Content-Length': 65536 })
          .write(big.subarray(0, 1000));
        setTimeout(() => response.destroy(), 20);
      },
    );
    expect(await source().read('w.safetensors', 0, 65536)).toHaveLength(65536);
    expect(server.requests.length).toBe(3);
  });

  it('tries again when the body is short without saying so', async () => {
    const http = source();
    await http.size('w.safetensors');
    let short = true;
    server.misbehave = (_, response) => {
      if (!short) return false;
      short = false;
      response.writeHead(206, { 'Content-Range': 'bytes 100000-100099/200000' }).end(big.subarray(100_000, 100_050)); // chunked
      return true;
    };
    expect(await http.read('w.safetensors', 100_000, 100_100)).toEqual(big.slice(100_000, 100_100));
  });

  it('tries again when nothing comes', async () => {
    server.misbehave = first(
      () => {},
      (_, response) => void response.writeHead(206, { 'Content-Range': 'bytes 0-65535/200000' }).write('x'),
    );
    expect(await source({ stallMs: 100 }).size('w.safetensors')).toBe(200_000);
    expect(server.requests.length).toBe(3);
  });

  it('and when next to nothing comes', async () => {
    const trickles: NodeJS.Timeout[] = [];
    server.misbehave = (_, response) => {
      response.writeHead(206, { 'Content-Range': 'bytes 0-65535/200000' });
      trickles.push(setInterval(() => response.write('x'), 20));
      return true;
    };
    await expect(source({ stallMs: 150, attempts: 2 }).size('w.safetensors')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/failed 2 times; the last time: only \d+ bytes came for 0.15 s/),
    });
    for (const trickle of trickles) clearInterval(trickle);
    // Slowly, but more than that: it takes longer than the limit, and is whole.
    server.misbehave = (_, response) => {
      response.writeHead(206, { 'Content-Range': 'bytes 0-65535/200000' });
      let at = 0;
      const send = (): void => {
        response.write(big.subarray(at, (at += 8192)));
        if (at < 65_536) setTimeout(send, 50);
        else response.end();
      };
      send();
      return true;
    };
    expect(await source({ stallMs: 300, attempts: 1 }).size('w.safetensors')).toBe(200_000);
  });

  it('of a body that says it is compressed, and is not', async () => {
    const headers = { 'Content-Range': 'bytes 0-65535/200000', 'Content-Encoding': 'gzip' };
    server.misbehave = (_, response) => {
      response.writeHead(206, headers).end(new Uint8Array(65_536).fill(7));
      return true;
    };
    await expect(source({ stallMs: 50, attempts: 2 }).size('w.safetensors')).rejects.toMatchObject({ code: 'io' });
    const signal = AbortSignal.timeout(50);
    await expect(source().size('w.safetensors', signal)).rejects.toMatchObject({ code: 'aborted' });
  });

  it('waits as long as Retry-After asks', async () => {
    server.misbehave = first(status(503, { 'Retry-After': '1' }));
    const started = performance.now();
    await source().size('config.json');
    expect(performance.now() - started).toBeGreaterThan(990);
  });

  it('waits until the date of Retry-After, but not for long', async () => {
    server.misbehave = first(status(429, { 'Retry-After': new Date(Date.now() + 3_600_000).toUTCString() }));
    await expect(source().size('config.json')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/HTTP 429.*asks to wait 3[56]\d\d s/),
    });
    expect(server.requests.length).toBe(1);
  });

  it('gives up, naming the URL and the last failure', async () => {
    server.misbehave = (_, response) => (response.writeHead(500).end(), true);
    await expect(source().size('config.json')).rejects.toMatchObject({
      code: 'io',
      message: `GET ${server.url}config.json failed 4 times; the last time: HTTP 500 Internal Server Error`,
    });
    expect(server.requests.length).toBe(4);
  });

  it('goes on where a body broke off, as often as it does, and tells of a stall', async () => {
    const waits: (string | undefined)[] = [];
    const http = source({ stallMs: 3500, onWait: (why: string | undefined) => waits.push(why) });
    await http.size('w.safetensors');
    const asked: number[] = [];
    server.misbehave = (request, response) => {
      const [start, end] = /(\d+)-(\d+)/.exec(request.headers.range!)!.slice(1).map(Number) as [number, number];
      if (asked.push(start) === 7) return false;
      response.writeHead(206, { 'Content-Range': `bytes ${start}-${end}/200000`, 'Content-Length': end + 1 - start });
      // The sixth stalls after its bytes: more often broken off than a request is tried that brings nothing.
      response.write(big.subarray(start, start + 10_000));
      if (asked.length < 6) setTimeout(() => response.destroy(), 20);
      return true;
    };
    expect(Buffer.compare(await http.read('w.safetensors', 100_000, 200_000), big.subarray(100_000))).toBe(0);
    expect(asked).toEqual([0, 1, 2, 3, 4, 5, 6].map((pieces) => 100_000 + pieces * 10_000));
    const told = waits.filter((why) => why !== undefined);
    expect(told.slice(0, 5)).toEqual(Array(5).fill(expect.stringMatching(/^the body broke off.*: trying again$/)));
    expect(told.slice(5)).toEqual([
      'nothing has come for 3 s',
      expect.stringMatching(/ came for 3\.5 s: trying again$/),
    ]);
    expect(waits.at(-1)).toBeUndefined();
  });

  it('waits for a network that was there, and goes on at once when it is back', async () => {
    const http = httpSource(server.url, { backoffMs: 600_000 });
    await http.size('w.safetensors');
    server.misbehave = (request) => (request.socket.destroy(), true);
    const page = new EventTarget();
    const offline = { onLine: false };
    vi.stubGlobal('navigator', offline);
    vi.stubGlobal('addEventListener', page.addEventListener.bind(page));
    vi.stubGlobal('removeEventListener', page.removeEventListener.bind(page));
    try {
      const read = http.read('w.safetensors', 100_000, 100_010);
      for (let tries = 0; tries < 7; tries++) {
        await vi.waitFor(() => expect(server.requests.length).toBe(2 + tries));
        if (tries === 6) {
          offline.onLine = true;
          server.misbehave = undefined;
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
        page.dispatchEvent(new Event('online'));
      }
      expect(await read).toEqual(big.slice(100_000, 100_010));
    } finally {
      vi.unstubAllGlobals();
    }
  });

  it('tries a server that is away once only, after the first time, until it answers', async () => {
    let away = true;
    const requests: unknown[] = [];
    const http = source({
      fetch: (url: string, init: RequestInit) => {
        requests.push(url);
        return away
          ? Promise.reject(new TypeError('fetch failed', { cause: new Error('ECONNREFUSED') }))
          : fetch(url, init);
      },
    });
    await expect(http.size('config.json')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/4 times.*fetch failed: ECONNREFUSED \(is the server up\?\)/),
    });
    await expect(http.size('config.json')).rejects.toMatchObject({ code: 'io' });
    expect(requests.length).toBe(5);
    away = false;
    expect(await http.size('config.json')).toBe(2);
    away = true;
    await expect(http.size('w.safetensors')).rejects.toMatchObject({ code: 'io' });
    expect(requests.length).toBe(10);
  });
});

describe('failures that stay', () => {
  it.each([400, 401, 403, 418])('HTTP %i is not tried again', async (code) => {
    server.misbehave = (_, response) => (response.writeHead(code).end(), true);
    await expect(source().size('config.json')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining(`HTTP ${code}; expected`),
    });
    expect(server.requests.length).toBe(1);
  });

  const ranges: [name: string, header: string | undefined, body: number, message: RegExp][] = [
    ['another range', 'bytes 100001-100010/200000', 10, /sent bytes 100001 to 100011; expected 100000 to 100010/],
    ['a shorter range', 'bytes 100000-100008/200000', 9, /sent bytes 100000 to 100009; expected 100000 to 100010/],
    ['another size', 'bytes 100000-100009/200001', 10, /has changed while it was being read/],
    ['no range', 'pages 1-2', 10, /Content-Range 'pages 1-2'; expected 'bytes START-END\/SIZE'/],
    ['more than was asked for', undefined, 11, /sent more than the 10 bytes/],
  ];
  it.each(ranges)('a 206 with %s', async (_, header, body, message) => {
    const http = source();
    await http.size('w.safetensors');
    server.misbehave = (__, response) => (
      response.writeHead(206, header === undefined ? {} : { 'Content-Range': header }).end(big.subarray(0, body)),
      true
    );
    await expect(http.read('w.safetensors', 100_000, 100_010)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(message),
    });
    expect(server.requests.length).toBe(2);
  });

  it('a first range that is not the first', async () => {
    server.misbehave = (_, response) => (
      response.writeHead(206, { 'Content-Range': 'bytes 1-10/200000' }).end(big.subarray(1, 11)),
      true
    );
    await expect(source().size('w.safetensors')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('expected 0 to 65536'),
    });
  });

  it('416 where there should be bytes', async () => {
    const http = source();
    await http.size('w.safetensors');
    server.files.set('w.safetensors', big.slice(0, 1000));
    await expect(http.read('w.safetensors', 100_000, 100_010)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/HTTP 416; expected the bytes 100000 to 100010/),
    });
  });

  it('a file that changes while it is read', async () => {
    const http = source();
    await http.size('w.safetensors');
    server.etag = '"two"';
    await expect(http.read('w.safetensors', 100_000, 100_010)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('has changed'),
    });
  });
});

describe('aborting', () => {
  it('ends a request that waits for the server, within the body and between tries', async () => {
    const cases: [Misbehaviour, (stop: AbortController) => void][] = [
      [() => true, (stop) => setTimeout(() => stop.abort(), 30)],
      [
        (_, response) => (response.writeHead(206, { 'Content-Range': 'bytes 0-65535/200000' }).write('x'), true),
        (stop) => setTimeout(() => stop.abort(), 60),
      ],
      [
        (_, response) => (response.writeHead(503, { 'Retry-After': '20' }).end(), true),
        (stop) => setTimeout(() => stop.abort(), 60),
      ],
    ];
    for (const [misbehave, abort] of cases) {
      const stop = new AbortController();
      let closed: Promise<void> | undefined;
      server.misbehave = (request, response, seen) => {
        closed = new Promise((resolve) => response.on('close', resolve));
        return misbehave(request, response, seen);
      };
      const started = performance.now();
      abort(stop);
      await expect(source().size('w.safetensors', stop.signal)).rejects.toMatchObject({
        code: 'aborted',
        message: expect.stringContaining('w.safetensors'),
      });
      expect(performance.now() - started).toBeLessThan(2000);
      await closed; // the connection isn't left open
    }
  });
});
