import { expect, test } from 'vitest';
import { median } from '../base/stats.js';
import { converter } from './convert.js';

// Conversion beside a DataView read a number, in turns on the same bytes: npx vitest run -c vitest.bench.config.ts src/loader/convert
const COUNT = 4 * 1024 * 1024;
const TURNS = 9;

test('times as fast as a DataView a number', () => {
  const bytes = new Uint8Array(COUNT * 2).map((_, i) => (i * 2_654_435_761) >>> 24);
  const bits = new Uint32Array(1);
  const f32 = new Float32Array(bits.buffer);
  const slow = new Float32Array(COUNT);
  const fast = new Float32Array(COUNT);
  const seconds = (run: () => void): number => {
    const started = performance.now();
    run();
    return (performance.now() - started) / 1000;
  };
  const ratios = Array.from({ length: TURNS }, () => {
    const byView = seconds(() => {
      const view = new DataView(bytes.buffer);
      for (let i = 0; i < COUNT; i++) {
        bits[0] = view.getUint16(2 * i, true) << 16;
        slow[i] = f32[0]!;
      }
    });
    return byView / seconds(() => converter('BF16', bytes)(0, COUNT, fast, 0));
  });
  expect(Buffer.compare(Buffer.from(fast.buffer), Buffer.from(slow.buffer))).toBe(0);
  console.log(JSON.stringify({ dtype: 'BF16', times_as_fast: median(ratios), samples: ratios }));
});
