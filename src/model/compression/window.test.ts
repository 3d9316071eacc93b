import { describe, expect, test } from 'vitest';
import type { Buffer } from '../../gpu/index.js';
import { makePlan, planTopology, scoreRoutes } from '../../placement/index.js';
import { gqaShape } from '../../placement/testing/shapes.js';
import { scoreRegions } from './prompt_compression.js';
import { checkWindowFits } from './budgets.js';

describe('the window of a prompt', () => {
  test('must fit a prompt step', () => {
    expect(() => checkWindowFits(64, 32)).toThrow(/kvWindow 64: .* 32 rows/);
    checkWindowFits(32, 32);
  });
});

describe('scores of heads that ranks split', () => {
  test.each([2, 4])('%i ranks: what one sends is what the others receive, and all heads arrive', (ranks) => {
    const plan = makePlan('tp', ranks, gqaShape(4));
    const regionsOf = scoreRegions({ buffer: {} as Buffer, stride: 1024 }, () => true);
    const step = { rows: [16], chunks: 3 };
    const routes = scoreRoutes(planTopology(plan), 0);
    expect(routes).toHaveLength(ranks * (ranks - 1));
    for (let rank = 0; rank < ranks; rank++) {
      const got = routes.filter(({ to }) => to === rank).flatMap((route) => regionsOf(route, 'receive', step));
      const own = regionsOf(
        routes.find(({ from }) => from === rank)!,
        'send',
        step,
      );
      expect([...own, ...got].map(({ offset }) => offset).sort((a, b) => a - b)).toEqual([0, 4096, 8192, 12288]);
      expect(got.every(({ size }) => size === 3 * 256 * 4)).toBe(true);
    }
  });

  test.each([
    ['adp x tp', ['0>1', '1>0', '2>3', '3>2']],
    ['tp x token', ['0>2', '1>3', '2>0', '3>1']],
  ] as const)('%s: among ranks that keep the same sequences, and no others', (policy, expected) => {
    const topology = planTopology(makePlan(policy, 4, gqaShape(4)));
    const ways = scoreRoutes(topology, 0).map(({ from, to }) => `${from}>${to}`);
    expect(ways.toSorted()).toEqual(expected);
  });
});
