import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { expectedLargest, expertsRead } from './step_time.js';

test('one rank has them all; ranks without experts have none', () => {
  expect(expectedLargest(6, [1])).toBe(6);
  expect(expectedLargest(6, [1, 0])).toBe(6);
  expect(expectedLargest(0, [0.5, 0.5])).toBe(0);
});

test('two fair coins, by hand', () => {
  // X and Y of B(2, 1/2) each: P(max = 0) = 1/16, P(max <= 1) = 9/16.
  expect(expectedLargest(2, [0.5, 0.5])).toBeCloseTo(1 - 1 / 16 + 1 - 9 / 16, 12);
});

test.each([
  [6, 2],
  [6, 4],
  [8, 8],
  [512, 4],
])('%i pairs over %i ranks: near what throwing dice gives', (pairs, ranks) => {
  const random = new Random(1);
  let total = 0;
  const throws = 4000;
  for (let i = 0; i < throws; i++) {
    const loads = new Array<number>(ranks).fill(0);
    for (let pair = 0; pair < pairs; pair++) loads[random.integer(ranks)]!++;
    total += Math.max(...loads);
  }
  const expected = expectedLargest(pairs, Array(ranks).fill(1 / ranks) as number[]);
  // Pairs on one rank aren't on another, which counting them as independent leaves out.
  expect(expected / (total / throws)).toBeGreaterThan(0.9);
  expect(expected / (total / throws)).toBeLessThan(1.02);
  expect(expected).toBeGreaterThan(pairs / ranks);
});

test('experts read: those of one row, at last all, never more', () => {
  expect(expertsRead(1, 2, 8)).toBeCloseTo(2, 12);
  expect(expertsRead(1, 1.5, 4)).toBeCloseTo(1.5, 12);
  // Two rows of two each among eight: half of the second row's are new but for 2 * 2 / 8.
  expect(expertsRead(2, 4, 8)).toBeCloseTo(3.5, 12);
  expect(expertsRead(512, 1024, 8)).toBeCloseTo(8, 6);
  expect(expertsRead(0, 0, 8)).toBe(0);
  expect(expertsRead(4, 0, 0)).toBe(0);
});
