import { Random } from '../../../base/random.js';
import { BLOCK_TYPES, type BlockType, blockOf, type FloatDtype, isBlockType } from '../../dtype.js';
import { encode, f16Bits } from '../../testing/encode.js';
import { halfValues } from '../../convert.js';

/** Types that tests can write. */
export type WritableType = FloatDtype | BlockType;

/** One block: `values` into `bytes`. Simple roundings, not llama.cpp's searches for the best scales. */
type EncodeBlock = (values: Float32Array, bytes: Uint8Array) => void;

const clamp = (value: number, low: number, high: number): number => Math.min(Math.max(value, low), high);

/** Writes the nearest f16 at `bytes[at]` and returns what it is. */
function half(bytes: Uint8Array, at: number, value: number): number {
  const bits = f16Bits(value);
  bytes[at] = bits & 255;
  bytes[at + 1] = bits >> 8;
  return halfValues()[bits]!;
}

/** Multiples of the value of largest magnitude over -2^(bits - 1). */
const symmetric = (bits: number, values: Float32Array, d: number): number[] => {
  const middle = 2 ** (bits - 1);
  return Array.from(values, (value) => (d === 0 ? middle : clamp(Math.round(value / d) + middle, 0, 2 * middle - 1)));
};
const extremeOf = (values: Float32Array): number =>
  values.reduce((extreme, value) => (Math.abs(value) > Math.abs(extreme) ? value : extreme), 0);

/** Low 4 bits of elements j and j + 16 in one byte. */
function putNibbles(bytes: Uint8Array, at: number, quants: readonly number[]): void {
  for (let j = 0; j < 16; j++) bytes[at + j] = (quants[j]! & 15) | ((quants[16 + j]! & 15) << 4);
}
function putFifthBits(bytes: Uint8Array, at: number, quants: readonly number[]): void {
  quants.forEach((q, j) => (bytes[at + (j >> 3)]! |= (q >> 4) << (j & 7)));
}

const zeroPoint =
  (bits: 4 | 5): EncodeBlock =>
  (values, bytes) => {
    const d = half(bytes, 0, extremeOf(values) / -(2 ** (bits - 1)));
    const quants = symmetric(bits, values, d);
    putNibbles(bytes, bits === 4 ? 2 : 6, quants);
    if (bits === 5) putFifthBits(bytes, 2, quants);
  };

const withMinimum =
  (bits: 4 | 5): EncodeBlock =>
  (values, bytes) => {
    const levels = 2 ** bits - 1;
    const m = half(bytes, 2, Math.min(...values));
    const d = half(bytes, 0, (Math.max(...values) - m) / levels);
    const quants = Array.from(values, (value) => (d === 0 ? 0 : clamp(Math.round((value - m) / d), 0, levels)));
    putNibbles(bytes, bits === 4 ? 4 : 8, quants);
    if (bits === 5) putFifthBits(bytes, 4, quants);
  };

const kBlock =
  (bits: 4 | 5): EncodeBlock =>
  (values, bytes) => {
    const levels = 2 ** bits - 1;
    const groups = Array.from({ length: 8 }, (_, g) => values.subarray(g * 32, g * 32 + 32));
    const minimums = groups.map((group) => Math.max(0, -Math.min(...group)));
    const scales = groups.map((group, g) => (Math.max(...group) + minimums[g]!) / levels);
    const d = half(bytes, 0, Math.max(...scales) / 63);
    const m = half(bytes, 2, Math.max(...minimums) / 63);
    const sixBits = (value: number, unit: number): number => (unit === 0 ? 0 : clamp(Math.round(value / unit), 0, 63));
    const sc = scales.map((scale) => sixBits(scale, d));
    const mins = minimums.map((minimum) => sixBits(minimum, m));
    for (let j = 0; j < 4; j++) {
      bytes[4 + j] = sc[j]! | ((sc[j + 4]! >> 4) << 6);
      bytes[8 + j] = mins[j]! | ((mins[j + 4]! >> 4) << 6);
      bytes[12 + j] = (sc[j + 4]! & 15) | ((mins[j + 4]! & 15) << 4);
    }
    groups.forEach((group, g) => {
      const step = d * sc[g]!;
      group.forEach((value, l) => {
        const q = step === 0 ? 0 : clamp(Math.round((value + m * mins[g]!) / step), 0, levels);
        bytes[(bits === 4 ? 16 : 48) + (g >> 1) * 32 + l]! |= (q & 15) << ((g & 1) * 4);
        if (bits === 5) bytes[16 + l]! |= (q >> 4) << g;
      });
    });
  };

/** Where blocks have f16s, of types for which nothing is searched here, and what those are where values are about 1. */
const RANDOM = {
  IQ2_XXS: { at: 0, d: 1 / 80 },
  IQ2_XS: { at: 0, d: 1 / 80 },
  IQ2_S: { at: 0, d: 1 / 80 },
  IQ3_XXS: { at: 0, d: 1 / 130 },
  IQ3_S: { at: 0, d: 1 / 130 },
  IQ1_S: { at: 0, d: 1 / 6 },
  IQ1_M: { at: undefined, d: 1 / 6 },
  TQ1_0: { at: 52, d: 1 },
  TQ2_0: { at: 64, d: 1 },
  Q1_0: { at: 0, d: 1 },
  Q2_0: { at: 0, d: 1 },
  NVFP4: { at: undefined, d: 1 / 3 },
} as const;

/** Random bits about as large as the values. */
function randomBlock(type: keyof typeof RANDOM, values: Float32Array, bytes: Uint8Array, random: Random): void {
  const { at, d } = RANDOM[type];
  const size = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = random.integer(256);
  if (at !== undefined) half(bytes, at, size * d);
  // The highest 4 bits of four halves.
  else if (type === 'IQ1_M') {
    const bits = f16Bits(size * d);
    for (let i = 0; i < 4; i++) bytes[49 + i * 2] = (bytes[49 + i * 2]! & 15) | (((bits >> (i * 4)) & 15) << 4);
  } else {
    const exponent = clamp(Math.round(Math.log2(size * d)) + 7, 0, 15);
    for (let i = 0; i < 4; i++) bytes[i] = (exponent << 3) | (bytes[i]! & 3);
  }
}

const encoders: Readonly<Record<Exclude<BlockType, keyof typeof RANDOM>, EncodeBlock>> = {
  Q4_0: zeroPoint(4),
  Q4_1: withMinimum(4),
  Q5_0: zeroPoint(5),
  Q5_1: withMinimum(5),
  Q8_0(values, bytes) {
    const d = half(bytes, 0, Math.abs(extremeOf(values)) / 127);
    values.forEach((value, j) => (bytes[2 + j] = d === 0 ? 0 : clamp(Math.round(value / d), -128, 127)));
  },
  Q2_K(values, bytes) {
    const groups = Array.from({ length: 16 }, (_, g) => values.subarray(g * 16, g * 16 + 16));
    const minimums = groups.map((group) => Math.max(0, -Math.min(...group)));
    const scales = groups.map((group, g) => (Math.max(...group) + minimums[g]!) / 3);
    const d = half(bytes, 80, Math.max(...scales) / 15);
    const m = half(bytes, 82, Math.max(...minimums) / 15);
    groups.forEach((group, g) => {
      const [sc, min] = [fourBits(scales[g]!, d), fourBits(minimums[g]!, m)];
      bytes[g] = sc | (min << 4);
      group.forEach((value, l) => {
        const q = d * sc === 0 ? 0 : clamp(Math.round((value + m * min) / (d * sc)), 0, 3);
        bytes[16 + (g >> 3) * 32 + (g & 1) * 16 + l]! |= q << (g & 6);
      });
    });
  },
  Q3_K(values, bytes) {
    const groups = Array.from({ length: 16 }, (_, g) => values.subarray(g * 16, g * 16 + 16));
    const scales = groups.map((group) => extremeOf(group) / -4);
    const d = half(bytes, 108, Math.max(...scales.map(Math.abs)) / 31);
    groups.forEach((group, g) => {
      const sc = sixBitScale(scales[g]!, d);
      bytes[96 + (g & 7)]! |= (sc & 15) << ((g >> 3) * 4);
      bytes[104 + (g & 3)]! |= (sc >> 4) << ((g >> 2) * 2);
      symmetric(3, group, d * (sc - 32)).forEach((q, l) => {
        bytes[32 + (g >> 3) * 32 + (g & 1) * 16 + l]! |= (q & 3) << (g & 6);
        bytes[(g & 1) * 16 + l]! |= (q >> 2) << (g >> 1);
      });
    });
  },
  Q4_K: kBlock(4),
  Q5_K: kBlock(5),
  Q6_K(values, bytes) {
    const groups = Array.from({ length: 16 }, (_, g) => values.subarray(g * 16, g * 16 + 16));
    const scales = groups.map((group) => extremeOf(group) / -32);
    const d = half(bytes, 208, Math.max(...scales.map(Math.abs)) / 127);
    const sc = scales.map((scale) => (d === 0 ? 0 : clamp(Math.round(scale / d), -128, 127)));
    sc.forEach((scale, g) => (bytes[192 + g] = scale));
    for (let i = 0; i < 256; i++) {
      const step = d * sc[i >> 4]!;
      const q = step === 0 ? 32 : clamp(Math.round(values[i]! / step) + 32, 0, 63);
      // Of each 128: element i's low bits are in byte i mod 64, its high ones in byte i mod 32.
      const [half128, inHalf] = [i >> 7, i & 127];
      bytes[half128 * 64 + (inHalf & 63)]! |= (q & 15) << ((inHalf >> 6) * 4);
      bytes[128 + half128 * 32 + (inHalf & 31)]! |= (q >> 4) << ((inHalf >> 5) * 2);
    }
  },
  IQ4_NL(values, bytes) {
    const d = half(bytes, 0, extremeOf(values) / -127);
    putNibbles(bytes, 2, nearest(uneven, values, d));
  },
  IQ4_XS(values, bytes) {
    const groups = Array.from({ length: 8 }, (_, g) => values.subarray(g * 32, g * 32 + 32));
    const scales = groups.map((group) => extremeOf(group) / -127);
    const d = half(bytes, 0, Math.max(...scales.map(Math.abs)) / 31);
    groups.forEach((group, g) => {
      const sc = sixBitScale(scales[g]!, d);
      bytes[2 + (g >> 2)]! |= (sc >> 4) << ((g & 3) * 2);
      bytes[4 + (g >> 1)]! |= (sc & 15) << ((g & 1) * 4);
      putNibbles(bytes, 8 + g * 16, nearest(uneven, group, d * (sc - 32)));
    });
  },
  MXFP4(values, bytes) {
    // The power of two by which the largest is at most 6.
    const exponent = clamp(Math.ceil(Math.log2(Math.abs(extremeOf(values)) / 6 || 1)) + 127, 0, 254);
    bytes[0] = exponent;
    putNibbles(bytes, 1, nearest(e2m1, values, 2 ** (exponent - 127)));
  },
};

const fourBits = (value: number, unit: number): number => (unit === 0 ? 0 : clamp(Math.round(value / unit), 0, 15));
/** 0 to 63 for -32 to 31. */
const sixBitScale = (scale: number, unit: number): number =>
  unit === 0 ? 32 : clamp(Math.round(scale / unit), -32, 31) + 32;

const uneven = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
const nearest = (table: readonly number[], values: Float32Array, d: number): number[] =>
  Array.from(values, (value) => {
    const distances = table.map((one) => Math.abs(one * d - value));
    return distances.indexOf(Math.min(...distances));
  });

/** Values as the bytes of a type; of a quantised type their number must be a multiple of its block. */
export function encodeAs(type: WritableType, values: Float32Array): Uint8Array<ArrayBuffer> {
  const { elements, bytes } = blockOf(type);
  const out = new Uint8Array((values.length / elements) * bytes);
  if (!isBlockType(type)) {
    encode(type, values, out);
    return out;
  }
  const random = new Random(values.length);
  for (let block = 0; block * elements < values.length; block++) {
    const from = values.subarray(block * elements, (block + 1) * elements);
    const to = out.subarray(block * bytes, (block + 1) * bytes);
    if (isRandom(type)) randomBlock(type, from, to, random);
    else encoders[type](from, to);
  }
  return out;
}

export const blockTypes = Object.keys(BLOCK_TYPES) as BlockType[];
export type EncodedType = keyof typeof encoders;
const isRandom = (type: BlockType): type is keyof typeof RANDOM => Object.hasOwn(RANDOM, type);
/** Those that are written with the values, and not at random. */
export const encodedTypes = Object.keys(encoders) as EncodedType[];
