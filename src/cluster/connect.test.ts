import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { nkeys } from '@nats-io/nats-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { VERSION } from '../base/version.js';
import { connectCluster, isName, subjectOf } from './connect.js';
import type { NatsServer } from './node_nats_server.js';
import { natsServer, startNats } from './testing/nats_server.js';

test('names and subjects', () => {
  expect(subjectOf('main', 'ranks', 'gpu-a', '*', '>')).toBe('splitkv.main.ranks.gpu-a.*.>');
  for (const name of ['a', 'GPU_1', 'x'.repeat(63)]) expect(isName(name), name).toBe(true);
  for (const name of ['', '-a', 'a.b', 'a b', '*', '>', 'ä', 'x'.repeat(64), 'a\n', 7, undefined]) {
    expect(isName(name), String(name)).toBe(false);
  }
  expect(() => subjectOf('main', 'a.b')).toThrow(/part of a subject "a\.b": expected 1 to 63/);
  expect(() => subjectOf('main', '>', 'a')).toThrow(/part of a subject ">"/);
  expect(() => subjectOf('x'.repeat(100))).toThrow(/cluster "x{80}\.\.\."/);
});

test("machines compare the package's version", () => {
  expect(VERSION).toBe((JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }).version);
});

describe('addresses and identities that are refused', () => {
  const refused: [options: Parameters<typeof connectCluster>[0], message: RegExp][] = [
    [{ servers: 'http://127.0.0.1:4222' }, /http:.*expected the address/],
    [{ servers: [] }, /no server is named/],
    [{ servers: 'nats://me:secret@127.0.0.1' }, /^cluster 127\.0\.0\.1: others see an address(?!.*secret)/],
    // NATS's client would go to the second one.
    [{ servers: 'wss://good.example/x://evil.example' }, /^cluster good\.example: the address names two machines/],
    [{ servers: 'nats://good.example?a=//evil.example' }, /names two machines/],
    [{ servers: ['nats://127.0.0.1', 'ws://127.0.0.1'] }, /of one kind/],
    [{ servers: '127.0.0.1', name: 'a.b' }, /cluster "a\.b"/],
    [{ servers: '127.0.0.1', token: 'a', nkey: 'b' }, /token and nkey are two/],
    [{ servers: '127.0.0.1', nkey: 'SUnothing' }, /this nkey can't be read/],
  ];
  test.each(refused)('%j', async (options, message) => {
    await expect(connectCluster(options)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringMatching(message),
    });
  });

  test('where no server is', async () => {
    await expect(connectCluster({ servers: 'nats://127.0.0.1:9' })).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/no NATS server answers.*splitkv cluster/),
    });
  });
});

describe.skipIf(!natsServer)('a server', () => {
  let open: NatsServer;
  beforeAll(async () => {
    open = await startNats();
  });
  afterAll(() => open.stop());

  test('messages go by TCP and by WebSocket, below one prefix', async () => {
    const tcp = await connectCluster({ servers: open.url });
    const byWeb = connectCluster({ servers: open.webSocketUrl });
    const hasWeb = typeof WebSocket !== 'undefined';
    if (!hasWeb)
      await expect(byWeb).rejects.toMatchObject({ code: 'usage', message: expect.stringContaining('Node 22') });
    const web = hasWeb ? await byWeb : await connectCluster({ servers: open.url });
    tcp.connection.subscribe(tcp.subject('echo'), {
      callback: (_error, message) => void message.respond(message.data),
    });
    await tcp.connection.flush();
    const { data, subject } = await web.connection.request(web.subject('echo'), new Uint8Array([1, 2, 3]));
    expect([...data]).toEqual([1, 2, 3]);
    expect(subject).toMatch(/^splitkv\.main\.inbox\./);
    expect(tcp.connection.info?.jetstream).toBe(true);
    await tcp.close();
    await web.close();
    await tcp.close();
  });

  test('a page of any site may come where a token is asked for, else none but those that are named', async () => {
    const upgrade = (server: NatsServer, origin?: string, host?: string): Promise<number> =>
      new Promise((resolve, reject) => {
        const headers = {
          Connection: 'Upgrade',
          Upgrade: 'websocket',
          'Sec-WebSocket-Version': '13',
          'Sec-WebSocket-Key': Buffer.alloc(16).toString('base64'),
          ...(origin !== undefined && { Origin: origin }),
          ...(host !== undefined && { Host: host }),
        };
        const asked = request(server.webSocketUrl.replace('ws:', 'http:'), { headers });
        asked.once('upgrade', (_response, socket) => {
          socket.destroy();
          resolve(101);
        });
        asked.once('response', (response) => {
          response.resume();
          resolve(response.statusCode!);
        });
        asked.once('error', reject);
        asked.end();
      });
    const named = await startNats({ origins: ['https://good.example'] });
    const closed = await startNats({ token: 'secret' });
    expect(await upgrade(open)).toBe(101);
    expect(await upgrade(open, 'https://evil.example')).toBe(403);
    const { port, host: here } = new URL(open.webSocketUrl);
    const pages = [
      `http://evil.example:${port}`,
      'https://none.invalid:1',
      `http://${here}`,
      'null',
      'http://localhost',
    ];
    for (const origin of pages) {
      // A page whose name was pointed at this machine sends that name as Host.
      const host = URL.canParse(origin) ? new URL(origin).host : `evil.example:${port}`;
      expect(await upgrade(open, origin, host), origin).toBe(403);
      expect(await upgrade(open, origin), origin).toBe(403);
    }
    expect(await upgrade(named, `http://evil.example:${port}`, `evil.example:${port}`)).toBe(403);
    expect(await upgrade(open, undefined, `evil.example:${port}`)).toBe(101);
    expect(await upgrade(named, 'https://good.example')).toBe(101);
    expect(await upgrade(named, 'https://evil.example')).toBe(403);
    expect(await upgrade(closed, 'https://good.example')).toBe(101);
    await named.stop();
    await closed.stop();
  });

  test('a connection outlives its server', async () => {
    const first = await startNats();
    const { connection, close, subject } = await connectCluster({ servers: first.url });
    await first.stop('SIGKILL');
    const second = await startNats({ port: Number(new URL(first.url).port) });
    const back = async (): Promise<void> => {
      for await (const { type } of connection.status()) if (type === 'reconnect') return;
    };
    await back();
    const heard = new Promise((resolve) => {
      connection.subscribe(subject('a'), { callback: (_error, message) => resolve(message.string()) });
    });
    connection.publish(subject('a'), 'here');
    expect(await heard).toBe('here');
    await close();
    await second.stop();
  });

  test('a token is asked for', async () => {
    const closed = await startNats({ token: 'secret' });
    for (const token of [undefined, 'wrong']) {
      const came = connectCluster({ servers: closed.url, ...(token !== undefined && { token }) });
      await expect(came).rejects.toMatchObject({
        code: 'usage',
        message: expect.stringMatching(/refuses this account.*--token-file/),
      });
    }
    await (await connectCluster({ servers: closed.url, token: 'secret' })).close();
    await closed.stop();
  });

  test("keys and TLS, by docs/cluster.md's configuration", async () => {
    const [keys, tls] = [...readFileSync('docs/cluster.md', 'utf8').matchAll(/```conf\n([^]*?)```/g)].map(
      ([, text]) => text!,
    );
    const folder = mkdtempSync(join(tmpdir(), 'splitkv-tls-'));
    const file = (name: string): string => join(folder, name);
    const owner = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'];
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', file('server.key')];
    const made = spawnSync('openssl', ['req', '-x509', ...key, ...owner, '-out', file('server.pem')]);
    const hasTls = made.status === 0;
    const user = nkeys.createUser();
    const nkey = new TextDecoder().decode(user.getSeed());
    const lines = [keys!.replace('UPUBLICKEY', user.getPublicKey())];
    if (hasTls) lines.push(tls!.replace('server.pem', file('server.pem')).replace('server.key', file('server.key')));
    const closed = await startNats({ lines });
    const ca = hasTls ? readFileSync(file('server.pem'), 'utf8') : undefined;
    const access = { servers: closed.url, ...(ca !== undefined && { tls: { ca } }) };
    await expect(connectCluster(access)).rejects.toMatchObject({ code: 'usage' });
    const another = new TextDecoder().decode(nkeys.createUser().getSeed());
    await expect(connectCluster({ ...access, nkey: another })).rejects.toMatchObject({ code: 'usage' });
    if (hasTls)
      await expect(connectCluster({ servers: closed.url, nkey })).rejects.toMatchObject({ name: 'SplitkvError' });
    const { connection, subject, close } = await connectCluster({ ...access, nkey });
    connection.subscribe(subject('echo'), { callback: (_error, message) => void message.respond('here') });
    expect((await connection.request(subject('echo'))).string()).toBe('here');
    // Nothing but this cluster's subjects.
    const refusals = (async () => {
      for await (const status of connection.status()) if (status.type === 'error') return status.error.message;
      return undefined;
    })();
    connection.publish('splitkv.another.echo');
    expect(await refusals).toMatch(/Permissions Violation/i);
    await close();
    await closed.stop();
    rmSync(folder, { recursive: true });
  });

  test('a server of tiny messages is refused, and one that others reach without a token', async () => {
    const small = await startNats({ lines: ['max_payload: 1024'] });
    await expect(connectCluster({ servers: small.url })).rejects.toMatchObject({
      code: 'limit',
      message: expect.stringContaining('1024 bytes'),
    });
    await small.stop();
    await expect(startNats({ host: '0.0.0.0' })).rejects.toMatchObject({ code: 'usage' });
  });

  test('a server that ends says why', async () => {
    await expect(startNats({ lines: ['no such line {'] })).rejects.toMatchObject({ code: 'io' });
  });
});
