import { afterEach, describe, expect, test } from 'vitest';
import { HttpFront, type FrontOptions } from '../front.js';
import type { OwnMetrics } from '../server_metrics.js';
import { RawConnection } from '../testing/raw_connection.js';
import { until } from '../testing/until.js';
import { addressOf } from './connections.js';
import type { Exchange } from './exchange.js';

let front: HttpFront | undefined;
const open: RawConnection[] = [];
afterEach(async () => {
  for (const connection of open.splice(0)) connection.vanish();
  await front?.close();
  front = undefined;
});

/** A server whose answers to prompts never end. */
class EndlessServer extends HttpFront {
  protected answer = ({ signal }: Exchange): Promise<void> =>
    new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
  protected status = (): string => 'ok';
  protected modelNames = (): readonly string[] => [];
  protected ownMetrics = (): OwnMetrics => ({ unread: 0 });
}

async function start(options: FrontOptions): Promise<string> {
  front = await new EndlessServer(options).listen();
  return front.url;
}

async function connect(url: string, from?: string): Promise<RawConnection> {
  const connection = await RawConnection.open(url, from);
  open.push(connection);
  return connection;
}

/** Connections that asked for something and were answered, one after the other. */
async function idle(url: string, count: number, from?: string): Promise<RawConnection[]> {
  const connections: RawConnection[] = [];
  for (let i = 0; i < count; i++) {
    const connection = await connect(url, from);
    connection.get('/version');
    connections.push(connection);
  }
  await until(() => connections.every(({ received, closed }) => closed || received.includes('version')));
  return connections;
}

/** The status of an answer on a connection of its own; 0: it was closed without one. */
async function status(url: string, path: string, from?: string): Promise<number> {
  const connection = await connect(url, from);
  connection.get(path);
  await until(() => connection.received.includes('\r\n\r\n') || connection.closed);
  return Number(/^HTTP\/1\.1 (\d+)/.exec(connection.received)?.[1] ?? 0);
}

const PROBES = ['/livez', '/readyz', '/health'];
/** Only Linux has all of 127.0.0.0/8 unasked. */
const OTHER = '127.0.0.2';
const hasOther = process.platform === 'linux';

describe('connections', () => {
  test('eleven hundred idle ones of one client: it and others still come in', { timeout: 60_000 }, async () => {
    const url = await start({});
    const connections = await idle(url, 1100);
    expect(connections.filter(({ closed }) => !closed).length).toBeLessThanOrEqual(512);
    for (const path of [...PROBES, '/version']) {
      expect(await status(url, path)).toBe(200);
      if (hasOther) expect(await status(url, path, OTHER)).toBe(200);
    }
  });

  test('the one that is idle longest is closed, and one that is used is not', { timeout: 60_000 }, async () => {
    const url = await start({ maxConnections: 6, maxConnectionsPerAddress: 3 });
    const [first, second, third] = await idle(url, 3);
    first!.received = '';
    first!.get('/version');
    await until(() => first!.received.includes('version'));
    expect(await status(url, '/version')).toBe(200);
    await until(() => second!.closed);
    expect([first!.closed, third!.closed]).toEqual([false, false]);
  });

  test('all are busy: the address has no more, but for probes; others come in', { timeout: 60_000 }, async () => {
    const url = await start({ maxConnections: 8, maxConnectionsPerAddress: 4 });
    for (let i = 0; i < 4; i++) (await connect(url)).post('/v1/completions', {});
    await until(() => front!.live === 4);
    const refused = await connect(url);
    refused.post('/v1/completions', {});
    await until(() => refused.closed);
    expect(refused.received).toMatch(/^HTTP\/1\.1 503 /);
    expect(refused.received).toContain('"too_many_connections"');
    expect(refused.received).toMatch(/^retry-after: 1\r$/im);
    for (const path of PROBES) expect(await status(url, path)).toBe(200);
    if (hasOther) expect(await status(url, '/version', OTHER)).toBe(200);
    // As soon as one has ended there is room.
    open[0]!.vanish();
    await until(async () => (await status(url, '/version')) === 200);
  });

  test.skipIf(!hasOther)('all places are taken: of whoever has most the idle go', { timeout: 60_000 }, async () => {
    const url = await start({ maxConnections: 8, maxConnectionsPerAddress: 8 });
    const few = await idle(url, 2, '127.0.0.3');
    const many = await idle(url, 6, OTHER);
    expect(await status(url, '/version')).toBe(200);
    await until(() => many[0]!.closed);
    expect(few.some(({ closed }) => closed)).toBe(false);
  });

  test('those that say nothing make room after a while, and slow headers, too', { timeout: 60_000 }, async () => {
    const url = await start({ maxConnections: 4, maxConnectionsPerAddress: 4 });
    const silent = [await connect(url), await connect(url), await connect(url), await connect(url)];
    silent[3]!.send('GET /version HT');
    expect(await status(url, '/livez')).toBe(200);
    await until(async () => (await status(url, '/version')) === 200);
    await until(() => silent[0]!.closed);
  });

  test('connections beyond all limits that say nothing keep no probe out', { timeout: 60_000 }, async () => {
    const url = await start({ maxConnections: 2, maxConnectionsPerAddress: 2 });
    for (let i = 0; i < 2; i++) (await connect(url)).post('/v1/completions', {});
    await until(() => front!.live === 2);
    const beyond: RawConnection[] = [];
    for (let i = 0; i < 200; i++) beyond.push(await connect(url));
    expect(await status(url, '/livez')).toBe(200);
    // All are closed by themselves.
    await until(() => beyond.every(({ closed }) => closed));
  });

  test('a proxy in front may have all', { timeout: 60_000 }, async () => {
    const url = await start({ maxConnections: 20, maxConnectionsPerAddress: 20 });
    for (let i = 0; i < 19; i++) (await connect(url)).post('/v1/completions', {});
    await until(() => front!.live === 19);
    expect(await status(url, '/version')).toBe(200);
  });
});

test(
  'a client that is refused again and again hears of it later, and others at once',
  { timeout: 60_000 },
  async () => {
    const url = await start({ apiKeys: ['a', 'b'] });
    let told = 0;
    const ask = async (key: string): Promise<number> =>
      (await fetch(`${url}/v1/other`, { headers: { Authorization: `Bearer ${key}` } })).status;
    const rude = Array.from({ length: 200 }, () => ask('a').finally(() => told++));
    await Promise.race(rude);
    expect(await ask('b')).toBe(404);
    expect(told).toBeLessThan(100);
    expect(new Set(await Promise.all(rude))).toEqual(new Set([404]));
  },
);

test.each([
  ['127.0.0.1', '127.0.0.1'],
  ['::ffff:10.1.2.3', '10.1.2.3'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:DB8:1:2:ffff::1', '2001:db8:1:2::/64'],
  ['2001:db8::1', '2001:db8:0:0::/64'],
  ['2001:0db8:0000:0000:1::', '2001:db8:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['64:ff9b::10.0.0.1', '64:ff9b:0:0::/64'],
  ['0123456789abcdef', '0123456789abcdef'],
  ['', ''],
])('%s counts as %s', (address, expected) => {
  expect(addressOf(address)).toBe(expected);
});
