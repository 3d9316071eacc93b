import { describe, expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { baseEntries, capacity, givenBudgets, isCompressed, proportionalEntries } from './budgets.js';
import { compressionOptions } from './options.js';

const model = { numLayers: 2, numKvHeads: 3 };
const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

describe('budgets', () => {
  test('a budget counts the window, and never evicts it', () => {
    const options = { budget: 0.2, window: 32 };
    expect([capacity(options, 1000), baseEntries(options, 1000)]).toEqual([200, 168]);
    expect([capacity(options, 100), baseEntries(options, 100)]).toEqual([32, 0]);
    expect([capacity(options, 20), isCompressed(options, 20)]).toEqual([20, false]);
    expect([isCompressed(options, 32), isCompressed(options, 33)]).toEqual([false, true]);
    expect(isCompressed({ budget: 1, window: 32 }, 5000)).toBe(false);
  });

  test('static budgets follow the loads over all layers, and add up', () => {
    const loads = [
      [100, 50, 50],
      [25, 25, 350],
    ];
    const options = compressionOptions({ policy: 'static', budget: 0.1, window: 10, loads }, model);
    const caps = givenBudgets(options, model, 1000);
    expect(caps).toEqual([
      [90, 40, 40],
      [15, 15, 340],
    ]);
    expect(sum(caps.flat()) + 6 * 10).toBe(6 * 100);
    // More than the prompt holds goes to the others.
    const half = givenBudgets({ ...options, budget: 0.5 }, model, 1000);
    expect(half[1]![2]).toBe(990);
    expect(sum(half.flat()) + 6 * 10).toBe(6 * 500);
    expect(givenBudgets({ ...options, policy: 'snap' }, model, 1000)).toEqual([
      [90, 90, 90],
      [90, 90, 90],
    ]);
  });

  test('proportional entries add up within their bounds, whatever the loads', () => {
    const random = new Random(5);
    for (let i = 0; i < 200; i++) {
      const loads = Array.from({ length: 1 + random.integer(12) }, () =>
        random.next() < 0.2 ? 0 : 100 * random.next(),
      );
      if (!loads.some((load) => load > 0)) loads[0] = 1;
      const least = random.integer(20);
      const most = least + random.integer(300);
      const total = random.integer(400 * loads.length);
      const entries = proportionalEntries(loads, total, { least, most });
      expect(sum(entries)).toBe(Math.min(Math.max(total, least * loads.length), most * loads.length));
      for (const [head, kept] of entries.entries()) {
        expect(kept).toBeGreaterThanOrEqual(least);
        expect(kept).toBeLessThanOrEqual(most);
        for (const [other, load] of loads.entries()) {
          if (load > loads[head]! + 1e-6) expect(entries[other]!).toBeGreaterThanOrEqual(kept - 1);
        }
      }
    }
  });

  test('options that cannot be are refused with what they may be', () => {
    const given = { policy: 'ada', budget: 0.2 } as const;
    expect(compressionOptions(given, model)).toEqual({ ...given, window: 32, poolWidth: 7, floor: 0.2 });
    expect(() => compressionOptions({ ...given, budget: 0 }, model)).toThrow(/kvBudget 0: .*above 0/);
    expect(() => compressionOptions({ ...given, budget: 1.5 }, model)).toThrow(/kvBudget 1.5/);
    expect(() => compressionOptions({ ...given, policy: 'adq' as 'ada' }, model)).toThrow(/Did you mean 'ada'/);
    expect(() => compressionOptions({ ...given, window: 0 }, model)).toThrow(/kvWindow 0/);
    expect(() => compressionOptions({ ...given, poolWidth: 6 }, model)).toThrow(/kvKernel 6: expected an odd/);
    expect(() => compressionOptions({ ...given, floor: -0.1 }, model)).toThrow(/kvAlpha -0.1/);
    expect(() => compressionOptions({ ...given, policy: 'static' }, model)).toThrow(/splitkv profile/);
    const loads = [[1, 2, 3]];
    expect(() => compressionOptions({ ...given, policy: 'static', loads }, model)).toThrow(/1 layers of 3 kv heads/);
    const zeros = [
      [0, 0, 0],
      [0, 0, 0],
    ];
    expect(() => compressionOptions({ ...given, policy: 'static', loads: zeros }, model)).toThrow(/every load is 0/);
  });
});
