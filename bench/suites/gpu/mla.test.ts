import { expect, test } from 'vitest';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { runGpu } from '../gpu.js';
import { DEEPSEEK_V2_LITE, type LatentWidths, promptMultiplyAdds, rowsToExpand } from './mla.js';

test('the multiply-adds of both forms are those of their products', () => {
  const widths: LatentWidths = { heads: 3, rank: 8, nope: 4, rope: 2, v: 6 };
  const counted = { absorbed: 0, expanded: 0 };
  const [rows, before] = [5, 7];
  for (let head = 0; head < 3; head++) {
    for (let key = 0; key < before + rows; key++) counted.expanded += 8 * 4 + 8 * 6;
    for (let row = 0; row < rows; row++) {
      counted.absorbed += 4 * 8 + 8 * 6;
      for (let key = 0; key <= before + row; key++) {
        counted.absorbed += 8 + 2 + 8;
        counted.expanded += 4 + 2 + 6;
      }
    }
  }
  expect(promptMultiplyAdds(widths, rows, before)).toEqual(counted);
});

test('behind a long context expanding gains from so many rows on, and never for a row alone', () => {
  expect(rowsToExpand(DEEPSEEK_V2_LITE)).toBe(171);
  const sizes = [8, 32, 64, 128, 192, 512, 1024];
  const shapes = sizes.flatMap((rank) =>
    sizes.flatMap((nope) => sizes.map((v): LatentWidths => ({ heads: 2, rank, nope, rope: 64, v }))),
  );
  for (const widths of [DEEPSEEK_V2_LITE, ...drawn(shapes, 40, 'latent widths')]) {
    const from = rowsToExpand(widths);
    expect(from).toBeGreaterThan(1);
    const gains = (rows: number): boolean => {
      const { absorbed, expanded } = promptMultiplyAdds(widths, rows, 1e12);
      return expanded < absorbed;
    };
    if (from < Infinity) expect([gains(from - 1), gains(from)]).toEqual([false, true]);
    else expect(gains(512)).toBe(false);
  }
});

test('both forms are timed on an adapter', { timeout: 120_000 }, async () => {
  const { results, failed } = await runGpu(
    {
      suite: 'gpu',
      adapter: { adapterName: (await testAdapters()).at(-1)!.name },
      models: [],
      load: {},
      parts: ['mla forms'],
      seconds: 600,
    },
    { signal: new AbortController().signal, onProgress: () => {}, onWarning: () => {} },
  );
  expect(failed).toBe(false);
  expect(results[0]!.rows.map((row) => [row['rows'], row['tokens before']])).toEqual([
    [16, 0],
    [64, 0],
    [16, 256],
    [64, 256],
  ]);
  for (const row of results[0]!.rows) expect(row['expanded / absorbed']).toBeGreaterThan(0);
});
