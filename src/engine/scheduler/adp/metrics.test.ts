import { expect, test } from 'vitest';
import { BalanceMeter, balanceRatio, solTps } from './metrics.js';

test('the balance of one iteration', () => {
  expect(balanceRatio([4, 4, 4, 4])).toBe(1);
  expect(balanceRatio([8, 0, 0, 0])).toBe(0.25);
  expect(balanceRatio([0, 0])).toBe(1);
});

test('means, and throughput at perfect balance', () => {
  const meter = new BalanceMeter();
  meter.add([10, 10], 1); // balance 1
  meter.add([40, 20], 3); // balance 0.75
  const { summary } = meter;
  expect(summary.balance).toBe(0.875);
  expect(summary.weighedBalance).toBe((10 + 30) / (10 + 40));
  // 1 * 1 + 3 * 0.75 of 4 seconds.
  expect(summary.solSecondsTotal).toBe(3.25);
  expect(solTps(100, summary)).toBeCloseTo((100 * 4) / 3.25, 12);
});
