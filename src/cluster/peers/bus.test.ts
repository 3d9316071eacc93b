import { encode } from 'cborg/extended';
import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { pause, until } from '../../base/waits.js';
import { drawSeed } from '../../gpu/testing/draw.js';
import { connectCluster } from '../connect.js';
import { NatsLink, newLink } from '../links/nats_link.js';
import { busesOf, FakeChannel, peersOf } from '../testing/fake_channels.js';
import { PeerBus } from './bus.js';

const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);
function heard(bus: PeerBus, subject: string): number[][] {
  const all: number[][] = [];
  bus.subscribe(subject, { callback: (_, { data }) => all.push([...data]) });
  return all;
}

test('who subscribed hears it, in order, once, and nobody else', async () => {
  const { hub, leaves } = busesOf(2);
  const [a, b] = leaves as [PeerBus, PeerBus];
  const all = [hub, a, b].map((bus) => heard(bus, 's.one'));
  const other = heard(b, 's.two');
  await pause(20);
  for (let at = 0; at < 50; at++) a.publish('s.one', bytes(at));
  hub.publish('s.one', bytes(99));
  await until(() => all[2]!.length === 51, 5000);
  const sent = Array.from({ length: 50 }, (_, at) => [at]);
  expect(all[0]!.toSorted((x, y) => x[0]! - y[0]!)).toEqual([...sent, [99]]);
  for (const each of all) expect(each.filter(([value]) => value !== 99)).toEqual(sent);
  expect(other).toEqual([]);
});

test('a subscription that ended is sent nothing', async () => {
  const { hub, leaves, channels } = busesOf(1);
  const { unsubscribe } = leaves[0]!.subscribe('s', { callback: () => {} });
  await pause(20);
  unsubscribe();
  await pause(20);
  const before = channels[0]![0].mostBuffered;
  hub.publish('s', bytes(1));
  expect(channels[0]![0].sent).toEqual([]);
  expect(channels[0]![0].mostBuffered).toBe(before);
});

test('requests are answered over the hub, and one without an answer ends', async () => {
  const { hub, leaves } = busesOf(2);
  const [a, b] = leaves as [PeerBus, PeerBus];
  for (const [bus, own] of [[hub, 1] as const, [b, 2] as const]) {
    bus.subscribe('roll', { callback: (_, message) => message.respond(bytes(own)) });
  }
  b.subscribe('b.only', { callback: (_, message) => message.respond(bytes(message.data[0]! + 1)) });
  await pause(20);
  expect([...(await a.request('b.only', bytes(6), { timeout: 5000 })).data]).toEqual([7]);
  const answers = await a.requestMany('roll', bytes(), { maxWait: 5000, stall: 200 });
  expect(answers.map(({ data }) => data[0]!).toSorted((x, y) => x - y)).toEqual([1, 2]);
  await expect(a.request('nobody', bytes(), { timeout: 50 })).rejects.toThrow('no answer in time');
});

test('a rank is claimed by the page that it joined alone', async () => {
  const { hub, leaves } = busesOf(2);
  const [a, b] = leaves as [PeerBus, PeerBus];
  const claims = heard(b, 'splitkv.main.claim.b');
  await pause(20);
  a.publish('splitkv.main.claim.b', bytes(1));
  hub.publish('splitkv.main.claim.b', bytes(2));
  await until(() => claims.length > 0, 5000);
  await pause(20);
  expect(claims).toEqual([[2]]);
});

test('what is large is refused, and a link cuts it to pieces', async () => {
  const { hub, leaves, channels } = busesOf(1);
  expect(() => hub.publish('s', new Uint8Array(2 ** 16))).toThrow(/65536 bytes: \d+ are the most/);
  const [near, far] = newLink();
  const [mine, theirs] = await Promise.all([connectCluster(peersOf(hub)), connectCluster(peersOf(leaves[0]!))]);
  const came: unknown[] = [];
  const sizes: number[] = [];
  const send = channels[0]![0].send.bind(channels[0]![0]);
  channels[0]![0].send = (data) => {
    sizes.push((data as unknown as Uint8Array).byteLength);
    send(data);
  };
  const ended = (why: string): void => void came.push(why);
  const [a, b] = [
    new NatsLink(mine, near, { message: () => {}, ended }),
    new NatsLink(theirs, far, { message: (value) => came.push(value), ended }),
  ];
  const large = Uint8Array.from({ length: 3_000_000 }, (_, at) => at * 7);
  a.post({ large });
  await until(() => came.length > 0, 10_000);
  expect(Buffer.compare((came[0] as { large: Uint8Array }).large, large)).toBe(0);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(65_536);
  expect(sizes.length).toBeGreaterThan(45);
  b.close();
  a.close();
});

test('a slow channel is filled no further than browsers take, and loses nothing', async () => {
  const { hub, leaves, channels } = busesOf(1, false);
  const [near, far] = channels[0]!;
  const all = heard(leaves[0]!, 's');
  far.flow();
  for (let at = 0; at < 100; at++)
    hub.publish(
      's',
      Uint8Array.from({ length: 50_000 }, () => at),
    );
  expect(near.bufferedAmount).toBeLessThan(2 ** 20 + 65_536);
  for (let at = 0; at < 20 && all.length < 100; at++) {
    near.flow();
    await pause(1);
  }
  expect(all.map(([first]) => first)).toEqual(Array.from({ length: 100 }, (_, at) => at));
  expect(near.mostBuffered).toBeLessThan(2 ** 20 + 65_536);
});

test('a member that goes ends its own bus, not the hub', async () => {
  const { hub, leaves } = busesOf(2);
  const [a, b] = leaves as [PeerBus, PeerBus];
  const all = heard(b, 's');
  a.end();
  expect(await a.closed()).toBeUndefined();
  expect(() => a.publish('s', bytes(1))).toThrow('closed');
  await pause(20);
  hub.publish('s', bytes(1));
  await until(() => all.length === 1, 5000);
  expect(hub.isClosed()).toBe(false);
  hub.end();
  expect((await b.closed())?.message).toBe('it left');
  const lost = new PeerBus(false);
  lost.join(FakeChannel.pair()[0])();
  expect((await lost.closed())?.message).toBe('it is out of reach');
});

test('a page that is busy for two seconds is not gone, and one that says nothing for five is', async () => {
  const { hub, leaves } = busesOf(1);
  const [near, far] = newLink();
  const [mine, theirs] = await Promise.all([connectCluster(peersOf(hub)), connectCluster(peersOf(leaves[0]!))]);
  let why = '';
  let isHeard = false;
  const link = new NatsLink(mine, near, { message: () => (isHeard = true), ended: (said) => (why = said) });
  const other = new NatsLink(theirs, far, { message: () => {}, ended: () => {} });
  other.post('here');
  await until(() => isHeard, 5000);
  leaves[0]!.publish = () => {};
  await pause(2500);
  expect(why).toBe('');
  await until(() => why !== '', 20_000);
  expect(why).toBe('nothing came from it for 4.8 s');
  other.close();
  link.close();
});

test('hostile frames end the channel that they came by, or are whole', async () => {
  const random = new Random(drawSeed);
  let ended = 0;
  for (let round = 0; round < 300; round++) {
    const [near, far] = FakeChannel.pair();
    const hub = new PeerBus(random.integer(2) === 0);
    let left = false;
    hub.join(near, () => (left = true));
    const length = random.integer(40);
    const frame = encode(['message', 's', new Uint8Array(length), '']);
    for (let at = 1 + random.integer(4); at > 0; at--) frame[random.integer(frame.length)] = random.integer(256);
    far.send(frame.subarray(0, random.integer(2) === 0 ? frame.length : random.integer(frame.length)));
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    if (left) ended++;
    expect(near.isOpen).toBe(!left);
  }
  expect(ended).toBeGreaterThan(100);
  const [near, far] = FakeChannel.pair(false);
  const hub = new PeerBus(true);
  let isLeft = false;
  hub.join(near, () => (isLeft = true));
  for (let at = 0; at < 10_001; at++) {
    far.send(encode(['subscribe', `s.${at}`]));
  }
  far.flow();
  expect(isLeft).toBe(true);
});

test('options of a server have no place beside peers', async () => {
  const { hub } = busesOf(0);
  await expect(connectCluster({ ...peersOf(hub), token: 'x' })).rejects.toThrow('token is of a server');
  await expect(connectCluster({})).rejects.toThrow('no server is named');
});
