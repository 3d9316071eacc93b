import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Random } from '../base/random.js';
import { converter } from './convert.js';
import { BLOCK_TYPES, blockOf } from './dtype.js';
import { TensorReader } from './tensor_reader.js';
import { MemorySource } from './testing/memory_source.js';
import { encodeAs, type EncodedType, encodedTypes } from './gguf/testing/quantise.js';

/** Steps between neighbouring values, for values within +-1 or so: 2 over the number of levels, and as much again for rounded scales. */
const tolerance: Readonly<Record<EncodedType, number>> = {
  Q4_0: 0.2,
  Q4_1: 0.1,
  Q5_0: 0.1,
  Q5_1: 0.05,
  Q8_0: 0.01,
  Q2_K: 0.5,
  Q3_K: 0.4,
  Q4_K: 0.12,
  Q5_K: 0.06,
  Q6_K: 0.05,
  IQ4_NL: 0.2,
  IQ4_XS: 0.2,
  MXFP4: 0.35,
};

describe.each(encodedTypes)('%s', (type) => {
  const { elements } = BLOCK_TYPES[type];
  const values = new Random(5).normals(8 * elements, 0.3).map((value) => Math.max(-1, Math.min(1, value)));
  const bytes = encodeAs(type, values);
  const whole = new Float32Array(values.length);
  converter(type, bytes)(0, values.length, whole, 0);

  it('gives back what was stored, to the type', () => {
    const error = Math.max(...whole.map((value, i) => Math.abs(value - values[i]!)));
    expect(error).toBeLessThan(tolerance[type]);
    expect(error).toBeGreaterThan(0);
    expect(whole.some((value) => value < -0.3) && whole.some((value) => value > 0.3)).toBe(true);
  });

  it('any part of it, at any place', () => {
    const span = fc.tuple(fc.nat(values.length), fc.nat(values.length), fc.nat(9));
    fc.assert(
      fc.property(span, ([a, b, at]) => {
        const [from, to] = [Math.min(a, b), Math.max(a, b)];
        const out = new Float32Array(to - from + at + 1).fill(7);
        converter(type, bytes)(from, to, out, at);
        const filled = (count: number): number[] => Array.from({ length: count }, () => 7);
        expect([...out]).toEqual([...filled(at), ...whole.subarray(from, to), 7]);
      }),
      { numRuns: 50 },
    );
  });

  it('columns of a matrix, reading whole blocks and no more', async () => {
    const [rows, columns] = [2, 4 * elements];
    const source = new MemorySource({ f: new Uint8Array([1, 2, 3, ...bytes]) });
    const entry = { name: 'w', file: 'f', dtype: type, shape: [rows, columns], start: 3, end: 3 + bytes.length };
    const reader = new TensorReader(source, { tensors: new Map([['w', entry]]), totalBytes: bytes.length, files: [] });
    const got = await reader.readRows('w', 0, rows, { columns: [elements + 5, 3 * elements] });
    const expected = [0, 1].flatMap((row) => [
      ...whole.subarray(row * columns + elements + 5, row * columns + 3 * elements),
    ]);
    expect([...got]).toEqual(expected);
    const block = blockOf(type).bytes;
    expect(source.reads).toEqual([{ file: 'f', start: 3 + block, end: 3 + 4 * block + 3 * block }]);
  });
});

it('a row that is no whole number of blocks is refused', async () => {
  const entry = { name: 'w', file: 'f', dtype: 'Q8_0', shape: [2, 48], start: 0, end: 102 } as const;
  const index = { tensors: new Map([['w', entry]]), totalBytes: 102, files: [] };
  const reader = new TensorReader(new MemorySource({ f: new Uint8Array(102) }), index);
  await expect(reader.readRows('w', 0, 1)).rejects.toMatchObject({
    code: 'unsupported',
    message: expect.stringContaining('rows of 48; expected a multiple of 32'),
  });
});

/** Two blocks written by hand from the layouts of ggml-common.h. */
describe('by hand', () => {
  const half = (value: 1 | 2 | 0.5): [number, number] => [0, { 1: 0x3c, 2: 0x40, 0.5: 0x38 }[value]];
  const decode = (type: EncodedType, bytes: number[]): number[] => {
    const out = new Float32Array(BLOCK_TYPES[type].elements);
    converter(type, Uint8Array.from(bytes))(0, out.length, out, 0);
    return [...out];
  };

  it('Q4_0', () => {
    const values = decode('Q4_0', [...half(0.5), 0x10, 0xf8, ...new Array<number>(14).fill(0x88)]);
    expect([values[0], values[1], values[2], values[16], values[17]]).toEqual([-4, 0, 0, -3.5, 3.5]);
  });

  it('Q5_1', () => {
    const values = decode('Q5_1', [...half(2), ...half(1), 1, 0, 0, 0x80, 0x3f, ...new Array<number>(15).fill(0)]);
    expect([values[0], values[1], values[16], values[31]]).toEqual([2 * 31 + 1, 1, 2 * 3 + 1, 2 * 16 + 1]);
  });

  it('Q4_K', () => {
    // Scales 1..8 and minimums 0, but that of group 5: scale 5 + 32 = 37, minimum 1 + 16 = 17.
    const scales = [1, 2 | (2 << 6), 3, 4, 0, 0 | (1 << 6), 0, 0, 5, 5 | (1 << 4), 7, 8];
    const values = decode('Q4_K', [...half(1), ...half(2), ...scales, ...new Array<number>(128).fill(0x53)]);
    expect([values[0], values[32], values[64], values[160], values[255]]).toEqual([3, 10, 9, 37 * 5 - 2 * 17, 40]);
  });

  it('Q3_K', () => {
    // Group 9 of 16: low bits 5 of the scale, high bits 3: 53 - 32 = 21. Its elements are 2 + 4 - 4 = 2 and 1 - 4 = -3.
    const block = new Array<number>(110).fill(0);
    [block[109], block[96 + 1], block[104 + 1]] = [half(0.5)[1], 5 << 4, 3 << 4];
    [block[32 + 32 + 16], block[32 + 32 + 17], block[16]] = [2, 1, 1 << 4];
    const values = decode('Q3_K', block);
    expect(values.slice(144, 147)).toEqual([2 * 10.5, -3 * 10.5, -4 * 10.5]);
  });

  it('MXFP4, with the smallest and the largest scales', () => {
    const of = (scale: number): number[] => decode('MXFP4', [scale, 0x71, 0x0a, ...new Array<number>(14).fill(0)]);
    expect([0, 1, 16, 17].map((i) => of(127)[i])).toEqual([0.5, -1, 6, 0]);
    expect([0, 1, 16].map((i) => of(0)[i])).toEqual([2 ** -128, -(2 ** -127), 6 * 2 ** -127]);
    expect([0, 1, 16].map((i) => of(254)[i])).toEqual([2 ** 126, -(2 ** 127), Infinity]);
    expect([0, 1, 16].map((i) => of(255)[i])).toEqual([NaN, NaN, NaN]);
  });
});
