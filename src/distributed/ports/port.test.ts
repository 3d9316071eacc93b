import { expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { decodeReason, encodeReason } from './port.js';
import { SharedSlots } from './port_transport.js';
import { words } from '../testing/test_rank.js';

const cross = (reason: unknown): unknown => decodeReason(structuredClone(encodeReason(reason)));

test("an abort's reason crosses with its class, code and message; what can't be cloned as text", () => {
  const known = cross(new SplitkvError('limit', 'too much'));
  expect(known).toBeInstanceOf(SplitkvError);
  expect(known).toMatchObject({ code: 'limit', message: 'too much' });
  const full = new SplitkvError('context_full', 'too long', { details: { tokens: 9, most: 8 } });
  expect(cross(full)).toMatchObject({ details: { tokens: 9, most: 8 } });
  expect(cross(new TypeError('wrong'))).toEqual(new Error('wrong'));
  expect(cross({ a: 1 })).toEqual({ a: 1 });
  expect(cross(undefined)).toBeUndefined();
  expect(cross(Symbol('s'))).toBe('Symbol(s)');
});

test('shared slots hold small messages until they are taken; others go elsewhere', () => {
  const sender = new SharedSlots();
  const receiver = new SharedSlots(sender.buffer);
  const message = (seed: number): Uint8Array => new Uint8Array(words(10 + seed, seed).buffer);
  const taken: number[] = [];
  for (let slot = sender.put(message(0)); slot !== undefined; slot = sender.put(message(taken.length)))
    taken.push(slot);
  expect(taken.length).toBeGreaterThan(1);
  expect(new Set(taken).size).toBe(taken.length);
  for (const [seed, slot] of taken.entries()) {
    const into = new Uint8Array(message(seed).byteLength);
    receiver.take(slot, into);
    expect(into).toEqual(message(seed));
    expect(sender.put(message(seed))).toBe(slot);
  }
  receiver.take(taken[0]!, new Uint8Array(4));
  expect(sender.put(new Uint8Array(2 ** 20))).toBeUndefined();
});
