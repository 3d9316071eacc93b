import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { converter } from './convert.js';
import type { FloatDtype } from './dtype.js';
import { bf16Bits, encode, f16Bits } from './testing/encode.js';

function convert(dtype: FloatDtype, bytes: Uint8Array<ArrayBuffer>, count: number): Float32Array {
  const out = new Float32Array(count);
  converter(dtype, bytes)(0, count, out, 0);
  return out;
}

const bits = (values: Float32Array): Uint32Array => new Uint32Array(values.buffer, values.byteOffset, values.length);
const allHalves = Uint16Array.from({ length: 65536 }, (_, i) => i);

/** A half by its definition (IEEE 754 binary16), in f64. */
function halfValue(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

describe('converter', () => {
  it('F16: all 65536, exactly', () => {
    const values = convert('F16', new Uint8Array(allHalves.buffer), 65536);
    for (let half = 0; half < 65536; half++) {
      if (!Object.is(values[half], halfValue(half)))
        expect.fail(`half ${half}: ${values[half]}, expected ${halfValue(half)}`);
    }
    // NaNs keep their payload.
    const payloads = bits(values)
      .filter((_, half) => Number.isNaN(values[half]))
      .map((value) => (value & 0x7fffff) >> 13);
    expect([...payloads]).toEqual(
      Array.from(allHalves.filter((half) => Number.isNaN(halfValue(half)))).map((half) => half & 1023),
    );
  });

  it('BF16: all 65536, by their bits', () => {
    const values = bits(convert('BF16', new Uint8Array(allHalves.buffer), 65536));
    expect(values.findIndex((value, i) => value !== i * 65536)).toBe(-1);
  });

  it('F32: any bits, signalling NaNs among them', () => {
    fc.assert(
      fc.property(fc.uint32Array({ maxLength: 50 }), (words) => {
        expect(bits(convert('F32', new Uint8Array(words.slice().buffer), words.length))).toEqual(
          new Uint32Array(words),
        );
      }),
    );
    expect(bits(convert('F32', new Uint8Array(Uint32Array.of(0x7f800001).buffer), 1))[0]).toBe(0x7f800001);
  });

  it('F64: rounds to nearest', () => {
    fc.assert(
      fc.property(fc.float64Array({ maxLength: 50 }), (values) => {
        expect(convert('F64', new Uint8Array(values.slice().buffer), values.length)).toEqual(new Float32Array(values));
      }),
    );
  });

  it.each(['F64', 'F32', 'F16', 'BF16'] as const)('%s: a part, from bytes at any offset, into a part', (dtype) => {
    const values = [1, -2, 0.5, 4, -0.25, 3];
    for (let offset = 0; offset < 9; offset++) {
      const bytes = new Uint8Array(offset + 8 * values.length);
      encode(dtype, values, bytes, offset);
      const size = { F64: 8, F32: 4, F16: 2, BF16: 2 }[dtype];
      const out = new Float32Array(8).fill(9);
      converter(dtype, bytes.subarray(offset, offset + size * values.length))(1, 4, out.subarray(1), 2);
      expect([...out]).toEqual([9, 9, 9, -2, 0.5, 4, 9, 9]);
    }
  });
});

describe('the encoder of the tests', () => {
  it('gives every half and bf16 back', () => {
    for (let half = 0; half < 65536; half++) {
      const value = halfValue(half);
      if (!Number.isNaN(value) && f16Bits(value) !== half) expect.fail(`${value}: ${f16Bits(value)}, expected ${half}`);
    }
    const values = convert('BF16', new Uint8Array(allHalves.buffer), 65536);
    const wrong = allHalves.filter((half) => !Number.isNaN(values[half]) && bf16Bits(values[half]!) !== half);
    expect([...wrong]).toEqual([]);
  });

  it('rounds to the nearest, ties to even', () => {
    for (let half = 0; half < 0x7bff; half++) {
      const [low, high] = [halfValue(half), halfValue(half + 1)];
      const got = [(low + high) / 2, low + (high - low) * 0.49, low + (high - low) * 0.51].map(f16Bits);
      if (got[0] !== half + (half % 2) || got[1] !== half || got[2] !== half + 1)
        expect.fail(`around ${low}: ${got.join(', ')}`);
    }
    expect([f16Bits(65519), f16Bits(65520), f16Bits(-1e30), f16Bits(2 ** -25)]).toEqual([0x7bff, 0x7c00, 0xfc00, 0]);
    expect([bf16Bits(1 + 2 ** -8), bf16Bits(1 + 3 * 2 ** -8), bf16Bits(1 + 2 ** -8 + 2 ** -20)]).toEqual([
      0x3f80, 0x3f82, 0x3f81,
    ]);
  });
});
