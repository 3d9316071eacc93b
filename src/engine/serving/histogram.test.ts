import { expect, test } from 'vitest';
import { Histogram } from './histogram.js';

test('a sample counts in its bucket and all larger ones; a bound belongs to the bucket below it', () => {
  const histogram = new Histogram([1, 2, 5]);
  for (const value of [0.5, 1, 1.5, 4, 100]) histogram.observe(value);
  expect(histogram.counts).toEqual({ bounds: [1, 2, 5], counts: [2, 3, 4], count: 5, sum: 107 });
});
