import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { EventStream, Exchange, type ExchangeOptions } from './exchange.js';
import { RawConnection } from '../testing/raw_connection.js';
import { until } from '../testing/until.js';

let close: (() => Promise<void>) | undefined;
afterEach(async () => {
  await close?.();
});

/** A connection that has asked, and the exchange on the server's side. */
async function open(
  stallMs: number,
  stream: Partial<ExchangeOptions> = {},
): Promise<{
  client: RawConnection;
  exchange: Exchange;
  closed: Promise<unknown>;
  server: ReturnType<typeof createServer>;
}> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  close = () =>
    new Promise((done) => {
      server.close(() => done());
      server.closeAllConnections();
    });
  const asked = new Promise<Exchange>((resolve) =>
    server.once('request', (request, response) =>
      resolve(new Exchange(request, response, { stallMs, maxBufferedBytes: 1000, heartbeatMs: 10, ...stream }, '')),
    ),
  );
  const client = await RawConnection.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  client.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  const exchange = await asked;
  const closed = new Promise((resolve) => exchange.response.once('close', resolve));
  return { client, exchange, closed, server };
}

/** More than the sockets in between hold. */
const LARGE = 'x'.repeat(32 * 2 ** 20);
const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('a finished answer that nobody takes is given up after a while', async () => {
  const { client, exchange, closed } = await open(150);
  client.pause();
  exchange.send(200, 'text/plain', LARGE);
  await closed;
  expect(exchange.outcome).toBe('too_slow');
  expect(exchange.signal.aborted).toBe(true);
  client.vanish();
});

test('a slow reader that reads is waited for', async () => {
  const { client, exchange, closed } = await open(20_000);
  client.pause();
  exchange.send(200, 'text/plain', LARGE);
  await new Promise((resolve) => setTimeout(resolve, 100));
  client.resume();
  await closed;
  expect(exchange.outcome).toBe('completed');
  expect(exchange.signal.aborted).toBe(false);
  client.vanish();
});

test('a stream that nobody reads ends when its buffer is full, and the work on it stops', async () => {
  const { client, exchange, closed } = await open(60_000, { maxBufferedBytes: 100_000, heartbeatMs: 10 });
  client.pause();
  const stream = new EventStream(exchange);
  const event = { text: 'x'.repeat(10_000) };
  while (!exchange.signal.aborted) {
    stream.send(event);
    expect(exchange.response.writableLength).toBeLessThan(120_000);
    await tick();
  }
  await closed;
  expect(exchange.outcome).toBe('too_slow');
  stream.send(event);
  stream.end('completed', '[DONE]');
  expect(exchange.outcome).toBe('too_slow');
  client.vanish();
});

test('a stream: events, comments in silence, a mark at the end, and no timer after it', async () => {
  const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const { client, exchange, closed } = await open(60_000, { maxBufferedBytes: 1000, heartbeatMs: 10 });
  const before = timers();
  const stream = new EventStream(exchange);
  expect(timers()).toBeGreaterThan(before);
  await until(() => client.received.includes(': waiting\n\n'));
  stream.send({ a: 1 });
  stream.end('completed', '[DONE]');
  await closed;
  await until(() => client.received.endsWith('0\r\n\r\n'));
  expect(client.received).toContain('data: {"a":1}\n\n');
  expect(client.received).toContain('data: [DONE]\n\n');
  expect(client.received).toMatch(/content-type: text\/event-stream/i);
  expect(exchange.outcome).toBe('completed');
  await until(() => timers() <= before);
  client.vanish();
});

test('a client that is gone', async () => {
  const { client, exchange, closed } = await open(60_000, { maxBufferedBytes: 1000, heartbeatMs: 60_000 });
  const stream = new EventStream(exchange);
  client.vanish();
  await closed;
  expect(exchange.outcome).toBe('vanished');
  expect(exchange.signal.aborted).toBe(true);
  stream.send({ a: 1 });
  exchange.sendJson(200, {});
});
