import { expect, test } from 'vitest';
import type { RunStats } from '../../src/index.js';
import { figures, rankTraffic } from './figures.js';

const rank = (bytes: number, exchange: number, wait = 0): RunStats['ranks'][number] => ({
  adapter: 'gpu',
  weight_bytes: 1,
  kv_bytes: 1,
  bytes_per_token: bytes,
  us_per_exchange: 1,
  compute_ms_per_token: exchange > 0 ? 60 : 0,
  exchange_ms_per_token: exchange,
  wait_ms_per_token: wait,
});
const stats = (ranks: RunStats['ranks'], speed = 12.34): RunStats => ({
  tokens_per_second: speed,
  ttft_ms: 5,
  dispatches_per_token: 30,
  exchanges_per_token: ranks.length > 1 ? 11 : 0,
  adapter: 'gpu',
  ranks,
  plan: 'tp',
  precision: 'exact',
  variants: {},
  tuning: { state: 'software', choices: 0, known: 0, measured: 0, left: 0, chosen: {}, ms: 0 },
});

test('one rank has a speed and no traffic', () => {
  const one = stats([rank(0, 0)]);
  expect(figures(one)).toEqual([['Tokens/s', '12.3']]);
  expect(rankTraffic(one, 0)).toEqual([]);
});

test('traffic of all ranks, and of each', () => {
  const two = stats([rank(1024, 0.3), rank(512, 1.5, 20)]);
  expect(figures(two)).toEqual([
    ['Tokens/s', '12.3'],
    ['Exchanges per token', '11'],
    ['Sent per token', '1.5 KiB'],
    ['Exchange and wait per token', '21.5 ms'],
  ]);
  expect(rankTraffic(two, 1)).toEqual([
    ['Sent per token', '512 B'],
    ['Computes', '60.0 ms'],
    ['Exchanges', '1.50 ms'],
    ['Waits', '20.0 ms'],
  ]);
});

test('a rank that has nothing to send says so', () => {
  const two = stats([rank(0, 0.3), rank(0, 1.5, 20)]);
  expect(figures(two)[2]).toEqual(['Sent per token', '0 B']);
  expect(rankTraffic(two, 1)[0]).toEqual(['Sent per token', '0 B']);
});

test("attention's time stands beside what a rank computes, where it was taken", () => {
  const attention = { kv_tokens_per_step: [9, 3], busiest_kv_tokens_per_step: 9, utilisation: 12 / 18 };
  const two = stats([rank(1024, 0.3), rank(512, 1.5, 20)]);
  expect(rankTraffic({ ...two, attention }, 1)).toHaveLength(4);
  expect(rankTraffic({ ...two, attention: { ...attention, ms_per_step: [7, 2.5] } }, 1)[2]).toEqual([
    'Attention',
    '2.50 ms',
  ]);
});

test('while an answer is written its own tokens count', () => {
  const two = stats([rank(1024, 0.3), rank(512, 1.5, 20)]);
  expect(figures(two, { tokens: 11, seconds: 2 })[0]).toEqual(['Tokens/s', '5.0']);
  expect(figures(two, { tokens: 1, seconds: 0 })[0]).toEqual(['Tokens/s', '–']);
});

test('what nobody measured yet is no zero', () => {
  const fresh = stats([rank(0, 0), rank(0, 0)], 0);
  expect(figures(fresh).map(([, text]) => text)).toEqual(['–', '11', '–', '–']);
  expect(rankTraffic(fresh, 0).map(([, text]) => text)).toEqual(['–', '–', '–', '–']);
});
