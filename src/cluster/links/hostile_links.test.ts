import { decode, encode } from 'cborg/extended';
import { describe, expect, test, vi } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { Random } from '../../base/random.js';
import { drawSeed } from '../../gpu/testing/draw.js';
import { connectCluster } from '../connect.js';
import { checkCommand, checkLink, checkMeasure, checkReport, placeHere } from '../ranks/check_messages.js';
import { readCard } from '../ranks/rank_card.js';
import { natsServer, startNats } from '../testing/nats_server.js';
import {
  Assembler,
  checkedMessage,
  type Frame,
  frameOf,
  HEADER_BYTES,
  NatsLink,
  newLink,
  readFrame,
} from './nats_link.js';

/** A hundred thousand: SPLITKV_CLUSTER_FUZZ=100000 npx vitest run src/cluster/links/hostile_links.test.ts */
const ROUNDS = Number(process.env['SPLITKV_CLUSTER_FUZZ'] ?? 4000);
const random = new Random(drawSeed);

/** Something that `change` broke, or bytes that were never anything. */
function changed(bytes: Uint8Array): Uint8Array {
  const out = new Uint8Array(bytes);
  switch (random.integer(4)) {
    case 0:
      return out.subarray(0, random.integer(out.length + 1));
    case 1: {
      const more = new Uint8Array(out.length + 1 + random.integer(40));
      more.set(out);
      return more;
    }
    case 2:
      return Uint8Array.from({ length: random.integer(80) }, () => random.integer(256));
    default:
      for (let count = 1 + random.integer(4); count > 0 && out.length > 0; count--) {
        out[random.integer(Math.min(out.length, random.integer(2) === 0 ? HEADER_BYTES : out.length))] =
          random.integer(256);
      }
      return out;
  }
}

/** Undefined where it is taken, otherwise what it throws, which is an error of ours. */
function refused(take: () => unknown): SplitkvError | undefined {
  try {
    take();
    return undefined;
  } catch (error) {
    expect(error).toBeInstanceOf(SplitkvError);
    return error as SplitkvError;
  }
}

const messages: readonly unknown[] = [
  { type: 'request', id: 3, request: { type: 'open', adapter: {} } },
  { type: 'request', id: 4, request: { type: 'call', method: 'step', args: [0, true, 7] } },
  { type: 'request', id: 5, request: { type: 'connect', ports: new Map([[1, newLink()[0]]]) } },
  { type: 'abort', reason: { kind: 'error', code: 'peer_lost', message: 'why' } },
  { type: 'answer', id: 9, result: new Float32Array([1, -0, Number.NaN]) },
  { type: 'bytes', channel: 2, bytes: new Uint8Array([1, 2, 3, 4]) },
  { type: 'progress', progress: { loadedBytes: 1, totalBytes: 2, tensorsLoaded: 0, tensorsTotal: 4 } },
];

test('data arrives as it was, with its types', () => {
  const value = {
    floats: new Float32Array([1, -0, Number.NaN, Infinity]),
    words: new Uint32Array([1, 2 ** 32 - 1]),
    bytes: new Uint8Array([0, 255]),
    map: new Map([[3, [1, 2]]]),
    nothing: undefined,
    none: null,
    zero: -0,
    text: 'ä\u0000',
    deep: [{ a: [true, 1.5, -(2 ** 40)] }],
  };
  const arrived = decode(encode(value));
  expect(arrived).toEqual(value);
  expect(Object.keys(arrived as object)).toEqual(expect.arrayContaining(Object.keys(value)));
});

test('pieces of every size make up their messages again', () => {
  for (let round = 0; round < 200; round++) {
    const message = Uint8Array.from({ length: 1 + random.integer(5000) }, () => random.integer(256));
    const assembler = new Assembler();
    let whole: Uint8Array | undefined;
    for (let at = 0, number = 1; at < message.length; number++) {
      const bytes = message.subarray(at, (at += 1 + random.integer(700)));
      const frame = readFrame(frameOf({ type: 'piece', number, total: message.length, bytes }));
      expect(frame).toEqual({ type: 'piece', number, total: message.length, bytes });
      expect(whole).toBeUndefined();
      whole = assembler.take(frame as Extract<Frame, { type: 'piece' }>);
    }
    expect(whole).toEqual(message);
  }
});

test('hostile frames, cards, commands, reports and messages are refused with an error of ours, or are whole', () => {
  const frames: readonly Frame[] = [
    { type: 'piece', number: 7, total: 64, bytes: new Uint8Array(64) },
    { type: 'beat', sent: 3, received: 4 },
    { type: 'end' },
  ];
  const card = { name: 'a', id: 'b', version: '1', busy: false, adapter: { name: 'x' } };
  const counts = { taken: 0, refused: 0 };
  const count = (error: SplitkvError | undefined): void => void (error ? counts.refused++ : counts.taken++);
  for (let round = 0; round < ROUNDS; round++) {
    const frame = changed(frameOf(frames[round % frames.length]!));
    const assembler = new Assembler();
    count(
      refused(() => {
        const read = readFrame(frame);
        if (read.type === 'piece') assembler.take(read);
      }),
    );
    count(refused(() => readCard(changed(encode(card)))));
    let value: unknown;
    try {
      value = decode(changed(encode(messages[round % messages.length])));
    } catch {
      // A link ends by it: `a link ends by whatever is hostile`.
      continue;
    }
    count(refused(() => checkCommand(value)));
    count(refused(() => checkReport(value)));
    count(refused(() => checkedMessage(value)));
  }
  expect(counts.refused).toBeGreaterThan(ROUNDS);
});

test('what a coordinator may ask, and what not', () => {
  const call = (method: unknown): unknown => ({ type: 'request', id: 1, request: { type: 'call', method, args: [] } });
  for (const method of ['step', 'reset', 'counts', 'prefill']) expect(checkCommand(call(method))).toEqual(call(method));
  for (const method of ['dispose', 'abort', 'constructor', 'facts', '__proto__', 'toString', 'hasOwnProperty', '', 7]) {
    expect(() => checkCommand(call(method)), String(method)).toThrow(/no coordinator gives/);
  }
  const at = (href: string) => () => placeHere({ kind: 'url', href, network: {} }, 'file:///srv/models');
  expect(at('file:///home/me/tiny-gqa/')()).toMatchObject({ href: 'file:///srv/models/tiny-gqa' });
  expect(at('https://host/model')()).toMatchObject({ href: 'https://host/model' });
  for (const href of [
    'file:///etc/..',
    'file:///etc/%2e%2e',
    'file:///etc/%2e%2e%2fpasswd',
    'file:///a/.ssh',
    'file:///',
    'ftp://host/model',
    '/etc/passwd',
    'blob:x',
  ]) {
    expect(at(href), href).toThrow(SplitkvError);
  }
});

test('what a rank may measure, and what not', () => {
  const rows = { secondsPerByte: 1e-9, secondsPerByteRow: 0, layerSeconds: 0, attention: 1e-9 };
  const times = { dispatchSeconds: 1e-6, submitSeconds: 1e-5, waitSeconds: 1e-4 };
  const measure = {
    name: 'x',
    dense: { generated: rows, prompt: rows },
    head: { secondsPerByte: 1, secondsPerByteRow: 1 },
    ...times,
  };
  expect(checkMeasure(measure)).toBe(measure);
  for (const wrong of [
    {},
    { ...measure, head: undefined },
    { ...measure, waitSeconds: Number.NaN },
    { ...measure, dense: { generated: rows } },
    { ...measure, dense: { generated: rows, prompt: { ...rows, attention: '1' } } },
  ]) {
    expect(() => checkMeasure(wrong as never)).toThrow(SplitkvError);
  }
  expect(checkLink({ latencySeconds: 1, bytesPerSecond: 2 })).toEqual({ latencySeconds: 1, bytesPerSecond: 2 });
  expect(() => checkLink({ latencySeconds: 0, bytesPerSecond: Infinity })).toThrow(SplitkvError);
});

describe.skipIf(!natsServer)('a link', () => {
  test(
    'ends by whatever is hostile, with one reason, and stays whole where it is not',
    { timeout: 600_000 },
    async () => {
      const server = await startNats();
      const cluster = await connectCluster({ servers: server.url });
      const rounds = Math.ceil(ROUNDS / 20);
      let ended = 0;
      for (let round = 0; round < rounds; round++) {
        const [near, far] = newLink();
        const arrived: unknown[] = [];
        let why: string | undefined;
        let told = 0;
        const link = new NatsLink(cluster, near, {
          message: (value) => void arrived.push(checkedMessage(value).message),
          ended: (text) => {
            why = text;
            told++;
          },
        });
        const send = (bytes: Uint8Array): void =>
          cluster.connection.publish(cluster.subject('link', far.id, 'a'), bytes);
        const whole = encode({ type: 'close' });
        send(frameOf({ type: 'beat', sent: 0, received: 0 }));
        send(frameOf({ type: 'piece', number: 1, total: whole.length, bytes: whole }));
        const piece = frameOf({ type: 'piece', number: 2, total: whole.length, bytes: whole });
        for (let frame = 0; frame < 20; frame++) send(changed(piece));
        await cluster.connection.flush();
        // The first message came before anything hostile; what came later is whole.
        expect(arrived[0]).toEqual({ type: 'close' });
        for (const message of arrived) expect(message).toEqual({ type: 'close' });
        expect(told).toBeLessThanOrEqual(1);
        if (why !== undefined) ended++;
        link.close();
      }
      expect(ended).toBeGreaterThan(rounds * 0.9);
      await cluster.close();
      await server.stop();
    },
  );

  test('carries messages larger than the server takes, and more than its window, in order', async () => {
    const server = await startNats({ lines: ['max_payload: 70000'] });
    const cluster = await connectCluster({ servers: server.url });
    const [near, far] = newLink();
    const sizes = Array.from({ length: 12 }, (_, at) => 1 + 2_500_000 * (at % 3));
    const arrived: number[] = [];
    const done = new Promise<string>((resolve) => {
      new NatsLink(cluster, far, {
        message: (value) => {
          const bytes = value as Uint8Array;
          expect(bytes.every((byte) => byte === arrived.length)).toBe(true);
          arrived.push(bytes.length);
        },
        ended: resolve,
      });
    });
    const link = new NatsLink(cluster, near, { message: () => {}, ended: () => {} });
    for (const [at, size] of sizes.entries()) link.post(new Uint8Array(size).fill(at));
    link.close();
    expect(await done).toBe('it left');
    expect(arrived).toEqual(sizes);
    await cluster.close();
    await server.stop();
  });

  test('whose peer never comes, or is silent, ends by itself', async () => {
    const server = await startNats();
    const cluster = await connectCluster({ servers: server.url });
    const [near, far] = newLink();
    const why = await new Promise<string>((resolve) => {
      new NatsLink(cluster, near, { message: () => {}, ended: resolve });
      cluster.connection.publish(cluster.subject('link', far.id, 'a'), frameOf({ type: 'beat', sent: 0, received: 0 }));
    });
    expect(why).toMatch(/nothing came from it for \d/);
    await cluster.close();
    await server.stop();
  });

  test('holds no more of a message than it may have, nor for long', { timeout: 60_000 }, async () => {
    const server = await startNats();
    const cluster = await connectCluster({ servers: server.url });
    const endOf = async (total: number, pieces: number): Promise<string> => {
      const [near, far] = newLink();
      const to = cluster.subject('link', near.id, 'a');
      const why = new Promise<string>((ended) => {
        new NatsLink(cluster, near, { message: () => ended('a message'), ended }, 1_000_000);
      });
      for (let number = 1; number <= pieces; number++) {
        const bytes = new Uint8Array(1000);
        cluster.connection.publish(to, frameOf({ type: 'piece', number, total, bytes }));
      }
      // It lives.
      const send = (): void => cluster.connection.publish(to, frameOf({ type: 'beat', sent: pieces, received: 0 }));
      const beats = setInterval(send, 200);
      expect(far.side).toBe('b');
      return why.finally(() => clearInterval(beats));
    };
    const [large, begun] = await Promise.all([endOf(2 ** 31, 1), endOf(1_000_000, 10)]);
    expect(large).toBe('it began a message of 2.0 GiB, and 977 KiB are the most');
    expect(begun).toBe('it began a message and sent no more of it');
    await cluster.close();
    await server.stop();
  });

  test('lives on where the timers of one end stand still, as those of a page that is hidden for long', async () => {
    const server = await startNats();
    const cluster = await connectCluster({ servers: server.url });
    const [hidden, steady] = newLink();
    const ends: string[] = [];
    const arrived: unknown[] = [];
    const events = {
      message: (value: unknown): void => void arrived.push(value),
      ended: (why: string): void => void ends.push(why),
    };
    const timer = vi.spyOn(globalThis, 'setInterval').mockReturnValueOnce(0 as never);
    const page = new NatsLink(cluster, hidden, events);
    timer.mockRestore();
    const rank = new NatsLink(cluster, steady, events);
    // Longer than an end may be silent.
    await new Promise((resolve) => setTimeout(resolve, 3000));
    rank.post('still there?');
    page.post('yes');
    await vi.waitFor(() => expect(arrived).toEqual(expect.arrayContaining(['still there?', 'yes'])));
    expect(ends).toEqual([]);
    page.close();
    rank.close();
    await cluster.close();
    await server.stop();
  });
});
