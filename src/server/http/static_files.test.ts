import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { serveFiles } from './static_files.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-files-'));
let server: Server;

beforeAll(async () => {
  mkdirSync(join(scratch, 'public/sub'), { recursive: true });
  mkdirSync(join(scratch, 'public-not'));
  writeFileSync(join(scratch, 'public/a.bin'), '0123456789');
  writeFileSync(join(scratch, 'public/empty'), '');
  writeFileSync(join(scratch, 'public/sub/ä b.json'), '{}');
  writeFileSync(join(scratch, 'public-not/secret'), 'secret');
  const files = serveFiles('/files', join(scratch, 'public'));
  server = createServer((req, res) => files(req, res, () => res.writeHead(299).end('next')));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
});
afterAll(() => {
  server.close();
  rmSync(scratch, { recursive: true });
});

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** A raw request: fetch would tidy the path before it is sent. */
function get(path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> {
  const { port } = server.address() as AddressInfo;
  return new Promise((resolve, reject) => {
    request({ port, host: '127.0.0.1', path, headers, method }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (text: string) => (body += text));
      response.on('end', () => resolve({ status: response.statusCode!, headers: response.headers, body }));
    })
      .on('error', reject)
      .end();
  });
}

describe('ranges', () => {
  test.each([
    ['bytes=2-4', 206, '234', 'bytes 2-4/10'],
    ['bytes=7-', 206, '789', 'bytes 7-9/10'],
    ['bytes=-3', 206, '789', 'bytes 7-9/10'],
    ['bytes=-99', 206, '0123456789', 'bytes 0-9/10'],
    ['bytes=8-99', 206, '89', 'bytes 8-9/10'],
    ['bytes=0-0', 206, '0', 'bytes 0-0/10'],
    ['bytes=10-12', 416, 'range not satisfiable', 'bytes */10'],
    ['bytes=5-3', 416, 'range not satisfiable', 'bytes */10'],
    ['bytes=1-2,4-5', 200, '0123456789', undefined],
    ['lines=1-2', 200, '0123456789', undefined],
  ])('%s', async (range, status, body, contentRange) => {
    const answer = await get('/files/a.bin', { range });
    expect(answer).toMatchObject({ status, body });
    expect(answer.headers['content-range']).toBe(contentRange);
  });

  test('If-Range keeps a stale range from being mixed with a new file', async () => {
    const { headers } = await get('/files/a.bin');
    const etag = headers['etag'] as string;
    expect((await get('/files/a.bin', { range: 'bytes=0-1', 'if-range': etag })).status).toBe(206);
    expect((await get('/files/a.bin', { range: 'bytes=0-1', 'if-range': '"old"' })).status).toBe(200);
    expect((await get('/files/a.bin', { 'if-none-match': etag })).status).toBe(304);
  });
});

test('HEAD tells the size without a body, an empty file is empty, names are decoded', async () => {
  const head = await get('/files/a.bin', {}, 'HEAD');
  expect(head).toMatchObject({ status: 200, body: '', headers: { 'content-length': '10', 'accept-ranges': 'bytes' } });
  expect(await get('/files/empty')).toMatchObject({ status: 200, body: '' });
  const json = await get('/files/sub/%C3%A4%20b.json?x=1');
  expect(json).toMatchObject({
    status: 200,
    body: '{}',
    headers: { 'content-type': 'application/json; charset=utf-8' },
  });
});

test.each([
  '/files/../public-not/secret',
  '/files/%2e%2e/public-not/secret',
  '/files/..%2fpublic-not%2fsecret',
  '/files/sub',
  '/files/no',
])('%s is not found', async (path) => {
  expect(await get(path)).toMatchObject({ status: 404, body: 'not found' });
});

test('other paths and methods are somebody else’s', async () => {
  expect((await get('/filesystem')).status).toBe(299);
  expect((await get('/%zz')).status).toBe(299);
  expect((await get('/files/a.bin', {}, 'POST')).status).toBe(405);
});
