import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import type { SplitkvError } from '../../base/errors.js';
import { GatewayCall, ReplicaGoneError } from '../gateway/replica_set.js';
import {
  type Beat,
  encode,
  PROTOCOL,
  readBeat,
  readToGateway,
  readToReplica,
  type ToGateway,
  type ToReplica,
} from './messages.js';

const SEED = Number(process.env['SPLITKV_SEED'] ?? 1);
const ROUNDS = Number(process.env['SPLITKV_MESSAGES'] ?? 4000);

const beat: Beat = {
  protocol: PROTOCOL,
  name: 'a',
  instance: '0123abcd',
  model: 'm',
  version: '1',
  fingerprint: 'fp_1',
  adapter: 'cpu',
  status: 'ok',
  slots: 4,
  room: 8,
  running: 1,
  waiting: 0,
  draining: false,
  left: false,
  lag: 3,
  promptTokens: 1,
  cachedTokens: 2,
  generatedTokens: 3,
};
const ask: ToReplica = {
  kind: 'ask',
  id: 1,
  method: 'POST',
  path: '/v1/completions',
  headers: { 'content-type': 'application/json' },
  client: 'abc',
  bytes: 2,
  prefix: '',
};
const answers: ToGateway[] = [
  { kind: 'head', id: 1, seq: 0, status: 200, headers: { 'content-type': 'application/json' } },
  { kind: 'data', id: 1, seq: 1 },
  { kind: 'alive', id: 1, seq: 2 },
  { kind: 'end', id: 1, seq: 3 },
  { kind: 'gone', id: 1, seq: 3, why: 'x' },
];
const readers = [readBeat, readToReplica, readToGateway];

test('what is written is read', () => {
  const bytes = Uint8Array.of(1, 10, 3);
  expect(readToReplica(encode(ask, bytes))).toEqual({ head: ask, bytes });
  for (const head of answers) expect(readToGateway(encode(head, bytes))).toEqual({ head, bytes });
  expect(readBeat(encode(beat))).toEqual({ beat, prefixes: undefined });
});

/** Bytes changed, cut, doubled; values of a head replaced. */
function damaged(random: Random, message: Uint8Array): Uint8Array {
  const kind = random.integer(4);
  if (kind === 0) return message.slice(0, random.integer(message.length));
  if (kind === 1) {
    const changed = message.slice();
    for (let count = random.integer(6); count >= 0; count--)
      changed[random.integer(changed.length)] = random.integer(256);
    return changed;
  }
  const text = new TextDecoder().decode(message);
  const values = ['-1', '1e999', 'null', '[]', '{}', '""', '"\\u0000"', '9007199254740993', '"/../ x"', '1.5', 'true'];
  const value = values[random.integer(values.length)]!;
  let at = random.integer(8);
  const replaced = text.replace(/:("[^"]*"|[\w.]+)/g, (found) => (at-- === 0 ? `:${value}` : found));
  return new TextEncoder().encode(kind === 2 ? replaced : replaced.replace('"kind"', '"__proto__"'));
}

test(`${ROUNDS} messages that nobody sends are refused or harmless`, () => {
  const random = new Random(SEED);
  const messages = [beat, ask, ...answers];
  let refused = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const message = encode(messages[random.integer(messages.length)]!, new Uint8Array(random.integer(20)));
    const bytes = damaged(random, message);
    for (const read of readers) {
      try {
        read(bytes);
      } catch (error) {
        refused++;
        expect((error as SplitkvError).code, `seed ${SEED}, round ${round}`).toBe('format');
      }
    }
  }
  expect(refused).toBeGreaterThan(ROUNDS);
});

test('answers in any order end well or with an error, and once', async () => {
  const random = new Random(SEED);
  for (let round = 0; round < ROUNDS / 4; round++) {
    let ends = 0;
    const call = new GatewayCall(1, { maxPayload: 1000, send: () => {}, onEnd: () => ends++ });
    call.start({
      method: 'POST',
      path: '/',
      headers: {},
      client: 'a',
      prefix: new Uint32Array(),
      body: new Uint8Array(),
    });
    const heard: number[] = [];
    for (let count = random.integer(8); count >= 0; count--) {
      const head = answers[random.integer(answers.length)]!;
      // Mostly in order.
      call.hear(random.integer(3) > 0 ? { ...head, seq: heard.length } : head, Uint8Array.of(heard.length));
      heard.push(head.seq);
    }
    call.fail('over');
    expect(ends).toBe(1);
    const got = await (async () => {
      await call.head();
      let bytes = 0;
      for await (const chunk of call.chunks()) bytes += chunk.length;
      return bytes;
    })().catch((error: unknown) => error);
    if (typeof got !== 'number') expect(got).toBeInstanceOf(ReplicaGoneError);
  }
});
