import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fitLinear, type LinearSample } from './measure.js';

const positive = (low: number, high: number) => fc.double({ min: low, max: high, noNaN: true });
const grid = (time: (bytes: number, rows: number) => number): LinearSample[] =>
  [1e5, 1e6, 4e6].flatMap((bytes) =>
    [1, 8].map((rows) => ({ read: bytes, multiplied: bytes * rows, seconds: time(bytes, rows) })),
  );

test('finds what the times were made of', () => {
  fc.assert(
    fc.property(positive(1e-6, 1e-4), positive(1e-11, 1e-9), positive(1e-12, 1e-9), (fixed, byte, byteRow) => {
      const fit = fitLinear(grid((bytes, rows) => fixed + bytes * (byte + rows * byteRow)));
      expect(fit.fixedSeconds / fixed).toBeCloseTo(1, 4);
      expect(fit.secondsPerByte / byte).toBeCloseTo(1, 4);
      expect(fit.secondsPerByteRow / byteRow).toBeCloseTo(1, 4);
    }),
  );
});

test('is near where times are noisy, and never negative', () => {
  fc.assert(
    fc.property(fc.array(positive(0.9, 1.1), { minLength: 6, maxLength: 6 }), (noise) => {
      const samples = grid((bytes, rows) => 1e-5 + bytes * (1e-10 + rows * 1e-11)).map((sample, i) => ({
        ...sample,
        seconds: sample.seconds * noise[i]!,
      }));
      const { fixedSeconds, secondsPerByte, secondsPerByteRow } = fitLinear(samples);
      expect(Math.min(fixedSeconds, secondsPerByte, secondsPerByteRow)).toBeGreaterThanOrEqual(0);
      for (const { read, multiplied, seconds } of samples) {
        const predicted = fixedSeconds + read * secondsPerByte + multiplied * secondsPerByteRow;
        expect(Math.abs(predicted / seconds - 1)).toBeLessThan(0.25);
      }
    }),
  );
});

test('rows that cost nothing, and times that only rows explain', () => {
  expect(fitLinear(grid((bytes) => 1e-5 + bytes * 1e-10)).secondsPerByteRow).toBeCloseTo(0, 15);
  expect(fitLinear(grid((bytes, rows) => bytes * rows * 1e-10)).secondsPerByte).toBeCloseTo(0, 15);
  // More rows in less time: noise, not a negative cost.
  const falling = fitLinear(grid((bytes, rows) => 1e-5 + bytes * (1e-10 - rows * 1e-12)));
  expect(falling.secondsPerByteRow).toBe(0);
});

test('one sample is a rate; none, or a broken clock, is an error', () => {
  expect(fitLinear([{ read: 1e6, multiplied: 1e6, seconds: 1e-3 }])).toEqual({
    fixedSeconds: 0,
    secondsPerByte: expect.closeTo(1e-9, 15),
    secondsPerByteRow: 0,
  });
  expect(() => fitLinear([])).toThrow('no samples');
  expect(() => fitLinear([{ read: 1, multiplied: 1, seconds: 0 }])).toThrow('"seconds":0');
});
