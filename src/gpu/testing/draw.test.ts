import { expect, test } from 'vitest';
import { drawnBy } from './draw.js';

const RUNS = 400;

test.each([
  [1, 2],
  [1, 4],
  [3, 5],
  [2, 37],
  [1, 40],
])('%i of %i: each has its turn, and none has far more than another', (count, of) => {
  const items = [...Array(of).keys()];
  for (const what of ['a', 'ranks on llvmpipe', 'ranks on SwiftShader', 'x'.repeat(80)]) {
    const turns = items.map(() => 0);
    for (let seed = 0; seed < RUNS; seed++) {
      for (const item of drawnBy(seed, items, count, what)) turns[item]!++;
    }
    expect(turns.reduce((sum, turn) => sum + turn)).toBe(RUNS * count);
    const fair = (RUNS * count) / of;
    expect(Math.min(...turns), `${what}: ${turns.join(' ')}`).toBeGreaterThan(fair / 4);
    expect(Math.max(...turns), `${what}: ${turns.join(' ')}`).toBeLessThan(fair * 3);
  }
});

test('what is drawn is in order, each once', () => {
  const draw = drawnBy(3, ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'], 6, 'letters');
  expect(draw).toEqual([...new Set(draw)].toSorted());
  expect(draw).toHaveLength(6);
});

test('a seed draws the same again, and draws of other names are others', () => {
  const items = [...Array(40).keys()];
  const draws = ['a', 'b', 'kernels', 'ranks'].map((what) => drawnBy(7, items, 10, what).join(' '));
  expect(['a', 'b', 'kernels', 'ranks'].map((what) => drawnBy(7, items, 10, what).join(' '))).toEqual(draws);
  expect(new Set(draws).size).toBe(4);
});

test('where no more are there than a run takes, all of them', () => {
  expect(drawnBy(1, ['a', 'b'], 2, 'all')).toEqual(['a', 'b']);
  expect(drawnBy(1, [], 2, 'none')).toEqual([]);
});
