import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../src/base/errors.js';
import { Random } from '../../src/base/random.js';
import { floatFromHalf, halfFromFloat } from './float16.js';
import {
  packedLayout,
  type MatrixType,
  packTiles,
  roundWeights,
  unpackTiles,
  KEPT_TYPES,
  UNIT_ELEMENTS,
  WEIGHT_TYPES,
} from './pack.js';
import { roundToHalf } from './round_weights.js';

describe('half precision', () => {
  test('every half survives the way to f32 and back', () => {
    for (let bits = 0; bits < 0x10000; bits++) {
      const value = floatFromHalf(bits);
      if (Number.isNaN(value)) expect(halfFromFloat(value) & 0x7fff).toBe(0x7e00);
      else expect(halfFromFloat(value)).toBe(bits);
    }
  });

  test('rounds to nearest, ties to even, between all neighbours', () => {
    for (let bits = 0; bits < 0x7bff; bits++) {
      const low = floatFromHalf(bits);
      const high = floatFromHalf(bits + 1);
      const middle = (low + high) / 2;
      const even = bits % 2 === 0 ? bits : bits + 1;
      expect(halfFromFloat(middle)).toBe(even);
      expect(halfFromFloat(-middle)).toBe(even | 0x8000);
      expect(halfFromFloat(low + (high - low) * 0.498)).toBe(bits);
      expect(halfFromFloat(low + (high - low) * 0.502)).toBe(bits + 1);
    }
  });

  test('overflow gives infinity from 65520 on', () => {
    expect(halfFromFloat(65504)).toBe(0x7bff);
    expect(halfFromFloat(Math.fround(65519.996))).toBe(0x7bff);
    expect(halfFromFloat(65520)).toBe(0x7c00);
    expect(halfFromFloat(-1e30)).toBe(0xfc00);
    expect(halfFromFloat(Number.POSITIVE_INFINITY)).toBe(0x7c00);
  });

  test('agrees with the arithmetic definition on any f32', () => {
    fc.assert(
      fc.property(fc.float({ noNaN: true, noDefaultInfinity: true }), (x) => {
        expect(floatFromHalf(halfFromFloat(x)) + 0).toBe(roundToHalf(x) + 0);
      }),
      { numRuns: 2000 },
    );
  });
});

const types: readonly MatrixType[] = [...WEIGHT_TYPES, 'mxfp4'];

describe('packing', () => {
  test('layout of 33 x 40', () => {
    expect(packedLayout('f16', 33, 40)).toEqual({
      tiles: 2,
      units: 8,
      unitElements: 8,
      weightBytes: 2 * 8 * 32 * 16,
      scaleBytes: 0,
      tileWeightBytes: 8 * 32 * 16,
      tileScaleBytes: 0,
    });
    expect(packedLayout('q4', 33, 40)).toMatchObject({
      units: 2,
      scaleBytes: 2 * 2 * 32 * 2,
      tileWeightBytes: 2 * 512,
    });
  });

  test('words stand where the kernels read them', () => {
    // Row 33, element 37 of a 34 x 40 matrix is the only one that isn't zero.
    const rows = new Float32Array(34 * 40);
    rows[33 * 40 + 37] = -8;
    const word = (unit: number, units: number, at: number) => ((1 * units + unit) * 32 + 1) * 4 + at;
    const only = (words: Uint32Array, skip = 0) =>
      [...words].flatMap((value, index) => (value === skip ? [] : [[index, value]]));
    expect(only(packTiles('f32', rows, 34, 40).weight)).toEqual([[word(9, 16, 1), 0xc1000000]]);
    expect(only(packTiles('f16', rows, 34, 40).weight)).toEqual([[word(4, 8, 2), 0xc8000000]]);
    const q8 = packTiles('q8', rows, 34, 40);
    expect(only(q8.weight)).toEqual([[word(2, 4, 1), 0x00008100]]);
    // Block 1, lane 1 of tile 1: the high half of a word; 8/127 as f16.
    expect(only(q8.scale!)).toEqual([[(2 + 1) * 16, halfFromFloat(8 / 127) * 65536]]);
    const q4 = packTiles('q4', rows, 34, 40);
    // d = 1 and q = 0 at element 5 of unit 1: byte 1, high nibble; every other nibble of a row that exists is 8.
    expect(q4.weight[word(1, 2, 0)]).toBe(0x88880888);
    expect(only(q4.scale!)).toEqual([[(2 + 1) * 16, 0x3c000000]]);
  });

  test.each(types)('%s: unpacking gives what the formula says', (type) => {
    const random = new Random(7);
    for (const [n, k] of [
      [1, 8],
      [33, 40],
      [64, 100],
      [31, 257],
    ] as const) {
      const rows = random.normals(n * k, 0.3);
      rows.fill(0, 0, Math.min(k, 40)); // a zero block
      const unpacked = unpackTiles(type, packTiles(type, rows, n, k), n, k);
      const rounded = roundWeights(type, rows, n, k);
      for (let i = 0; i < rounded.length; i++) expect(unpacked[i]! + 0, `${n} x ${k} at ${i}`).toBe(rounded[i]! + 0);
    }
  });

  test.each(types)('%s: pieces of a tensor, and strided columns, pack like the whole', (type) => {
    const rows = new Random(8).normals(70 * 50);
    const whole = packTiles(type, rows, 70, 50);
    const first = packTiles(type, rows.subarray(0, 32 * 50), 32, 50);
    const rest = packTiles(type, rows.subarray(32 * 50), 38, 50);
    expect([...first.weight, ...rest.weight]).toEqual([...whole.weight]);
    expect([...(first.scale ?? []), ...(rest.scale ?? [])]).toEqual([...(whole.scale ?? [])]);
    const columns = new Float32Array(70 * 18);
    for (let n = 0; n < 70; n++) columns.set(rows.subarray(n * 50 + 32, n * 50 + 50), n * 18);
    expect(packTiles(type, rows.subarray(32), 70, 18, 50)).toEqual(packTiles(type, columns, 70, 18));
  });

  test('quantisation error stays within half a step (q4: a whole one at the far end)', () => {
    const block = fc.array(fc.float({ min: -100, max: 100, noNaN: true }), { minLength: 32, maxLength: 32 });
    fc.assert(
      fc.property(block, (values) => {
        const x = Float32Array.from(values);
        const largest = x.reduce((best, v) => Math.max(best, Math.abs(v)), 0);
        // f16 scales below 2^-14 lose relative precision: the bound is absolute there.
        const slack = largest * 2 ** -10 + 127 * 2 ** -25;
        const q8 = unpackTiles('q8', packTiles('q8', x, 1, 32), 1, 32);
        const q4 = unpackTiles('q4', packTiles('q4', x, 1, 32), 1, 32);
        for (let i = 0; i < 32; i++) {
          expect(Math.abs(q8[i]! - x[i]!)).toBeLessThanOrEqual((largest / 127) * 0.5 + slack);
          expect(Math.abs(q4[i]! - x[i]!)).toBeLessThanOrEqual(largest / 8 + slack);
        }
      }),
      { numRuns: 300 },
    );
  });

  test('numbers of MXFP4 stay as they are, whatever the scale of their block', () => {
    const numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 6].flatMap((value) => [value, -value]);
    const random = new Random(9);
    for (let scale = 0; scale <= 254; scale++) {
      for (const most of [2, 6, 16]) {
        // Those that f32 holds.
        const held = numbers.slice(0, most).filter((value) => Number.isFinite(Math.fround(value * 2 ** (scale - 127))));
        const row = Float32Array.from({ length: 32 }, () => held[random.integer(held.length)]! * 2 ** (scale - 127));
        expect(unpackTiles('mxfp4', packTiles('mxfp4', row, 1, 32), 1, 32).map((v) => v + 0)).toEqual(
          row.map((v) => v + 0),
        );
      }
    }
  });

  test('refuses weights that the type cannot hold', () => {
    const withValue = (value: number) => Float32Array.from({ length: 32 }, (_, k) => (k === 3 ? value : 1));
    const code = (run: () => unknown) => {
      try {
        run();
      } catch (error) {
        return error instanceof SplitkvError ? `${error.code}: ${error.message}` : 'another error';
      }
      return 'nothing';
    };
    expect(code(() => packTiles('f16', withValue(65520), 1, 32))).toMatch(/^unsupported: .*65520.*65504.*f32/);
    expect(code(() => packTiles('q4', withValue(-1e6), 1, 32))).toMatch(/^unsupported: .*-1000000/);
    expect(code(() => packTiles('q8', withValue(1e8), 1, 32))).toMatch(/^unsupported: .*100000000/);
    for (const type of ['f16', 'q8', 'q4', 'mxfp4'] as const) {
      expect(
        code(() => packTiles(type, withValue(Number.NaN), 1, 32)),
        type,
      ).toMatch(/^format: .*not finite/);
      expect(
        code(() => packTiles(type, withValue(-Infinity), 1, 32)),
        type,
      ).toMatch(/^format: .*not finite/);
    }
    expect(code(() => packTiles('q4', new Float32Array(10), 1, 32))).toMatch(/^internal/);
  });

  test('16 bytes hold the promised number of elements', () => {
    // By the bits of a value's main plane.
    const of = (type: string): number => (/^(i|t)?q1/.test(type) ? 128 : /^((i|t)?q2|i?q3)/.test(type) ? 64 : 32);
    const kept = Object.fromEntries(KEPT_TYPES.map((type) => [type, of(type)]));
    expect(UNIT_ELEMENTS).toEqual({ f32: 4, f16: 8, q8: 16, q4: 32, ...kept, mxfp4: 32 });
  });
});
