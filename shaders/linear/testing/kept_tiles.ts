/**
 * Room: what tests of matrix kernels share. Blocks that are kept as a file has them: random ones, and what packed ones are, said once
 * more (here).
 */

import { type Codebook, codebook } from '../../../src/base/codebooks/codebooks.js';
import { ceilDiv } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { floatFromHalf } from '../float16.js';
import {
  blockElements,
  type CodebookType,
  type CodedType,
  isCodebook,
  isKept,
  KEPT_BLOCKS,
  KEPT_TYPES,
  type KeptType,
  packedLayout,
  type PackedTiles,
  type MatrixType,
  packTiles,
  UNIT_ELEMENTS,
  unpackTiles,
} from '../pack.js';
import { loadKept, packKeptRow, randomBlocks } from '../kept/kept.js';

await loadKept(KEPT_TYPES);

const MOST_FOUND: readonly KeptType[] = ['q4_k', 'q6_k'];

/** Those of most files and one drawn of the others, for a kernel's cases. */
export const someKept = (kernel: string): readonly KeptType[] => [
  ...MOST_FOUND,
  ...drawn(
    KEPT_TYPES.filter((type) => !MOST_FOUND.includes(type)),
    1,
    `kept of ${kernel}`,
  ),
];

/** Random blocks of a file, row after row: values about `size`; some scales are subnormal, negative or zero. */
export function randomRows(type: KeptType, random: Random, n: number, width: number, size: number): Uint8Array {
  return randomBlocks(type, random, n * ceilDiv(width, blockElements(type)), size, () => {
    const draw = random.integer(16);
    return draw === 0 ? 0 : draw === 1 ? -1 : draw < 4 ? 0.01 : 0.5 + random.integer(256) / 256;
  });
}

/** A packed weight of random numbers about `size`, with the blocks of a type that is kept as a file has it. */
export function randomTiles(type: MatrixType, random: Random, n: number, width: number, size: number): PackedTiles {
  if (!isKept(type)) return packTiles(type, random.normals(n * width, size), n, width);
  return keptTiles(type, randomRows(type, random, n, width, size), n, width);
}

export function keptTiles(type: KeptType, bytes: Uint8Array, n: number, width: number): Required<PackedTiles> {
  const layout = packedLayout(type, n, width);
  const weight = new Uint32Array(layout.weightBytes / 4);
  const scale = new Uint32Array(layout.scaleBytes / 4);
  for (let row = 0; row < n; row++) packKeptRow(type, { weight, scale }, row, bytes, (row * bytes.length) / n, width);
  return { weight, scale };
}

const signedByte = (word: number, byte: number): number => (word << (24 - 8 * byte)) >> 24;
const half = (words: Uint32Array, first: number, at: number): number =>
  (words[first + (at >> 1)]! >>> ((at & 1) * 16)) & 0xffff;
const wide = (bits: number): number => (1 + (bits & 1023) / 1024) * 2 ** ((bits >> 10) - 24);

/** Of element `k` of a block in lane `lane`, whose factors begin at word `first`: its factor and summand. */
type Line = (scale: Uint32Array, first: number, k: number, lane: number) => readonly [number, number];

const minima: Line = (scale, first, k, lane) => {
  const factors = half(scale, first, (k >> 5) * 32 + lane);
  const d = scale[first + 128 + lane]!;
  return [wide(d & 0xffff) * signedByte(factors, 0), wide(d >>> 16) * signedByte(factors, 1)];
};
const floatAt = (scale: Uint32Array, at: number): number => new Float32Array(scale.buffer, scale.byteOffset)[at]!;
const oneHalf =
  (middle: number, step = 1): Line =>
  (scale, first, _, lane) => {
    const d = step * floatFromHalf(half(scale, first, lane));
    return [d, -middle * d];
  };
const twoHalves: Line = (scale, first, _, lane) => [
  floatFromHalf(half(scale, first, lane * 2)),
  floatFromHalf(half(scale, first, lane * 2 + 1)),
];

const LINES: Readonly<Record<CodedType, Line>> = {
  q2_k(scale, first, k, lane) {
    const pair = (scale[first + (k >> 6) * 32 + lane]! >>> (((k >> 4) & 3) * 8)) & 255;
    const d = scale[first + 128 + lane]!;
    return [floatFromHalf(d & 0xffff) * (pair & 15), -floatFromHalf(d >>> 16) * (pair >> 4)];
  },
  q3_k(scale, first, k, lane) {
    const factor = signedByte(scale[first + (k >> 6) * 32 + lane]!, (k >> 4) & 3);
    const d = floatFromHalf(half(scale, first + 128, lane)) * factor;
    return [d, -4 * d];
  },
  q4_k: minima,
  q5_k: minima,
  q6_k(scale, first, k, lane) {
    const unit = (k >> 5) * 32 + lane;
    const factor = floatAt(scale, first + 128 + lane) * signedByte(half(scale, first, unit), (k >> 4) & 1);
    return [factor, -32 * factor];
  },
  q4_1: twoHalves,
  q5_0: oneHalf(16),
  q5_1: twoHalves,
  iq4_nl: oneHalf(0),
  iq4_xs(scale, first, k, lane) {
    const factor = signedByte(scale[first + (k >> 5) * 8 + (lane >> 2)]!, lane & 3);
    return [floatAt(scale, first + 64 + lane) * factor, 0];
  },
  tq2_0: oneHalf(1),
  q1_0: oneHalf(0.5, 2),
  q2_0: oneHalf(1),
  nvfp4(scale, first, k, lane) {
    const byte = (half(scale, first, (k >> 5) * 32 + lane) >> (((k >> 4) & 1) * 8)) & 255;
    const number = byte & 127;
    const size = byte === 127 ? 0 : number < 8 ? number * 2 ** -10 : (8 + (number & 7)) * 2 ** ((number >> 3) - 11);
    return [Math.fround(size * floatAt(scale, first + 32 + (lane >> 3))), 0];
  },
};

/** By code. */
const UNEVEN = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const NUMBERS: { readonly [Type in KeptType]?: readonly number[] } = {
  iq4_nl: UNEVEN,
  iq4_xs: UNEVEN,
  nvfp4: [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12],
};

/** Of a unit of a codebook type: its four words, what is beside it and the half there. */
interface UnitWords {
  readonly words: Uint32Array;
  readonly beside: Uint32Array;
  readonly half: number;
}
/** Of element `k` of a unit: its number, by its scale. */
type NumberAt = (unit: UnitWords, k: number) => number;

const bits = (words: ArrayLike<number>, at: number, count: number): number => {
  let value = 0;
  for (let i = 0; i < count; i++) value += ((words[(at + i) >> 5]! >>> ((at + i) & 31)) & 1) * 2 ** i;
  return value;
};
const books = new Map<Codebook, Uint16Array>();
const sizeOf = (book: Codebook, row: number, k: number): number => {
  const rows = books.get(book) ?? codebook(book);
  books.set(book, rows);
  const [count, width] = book.startsWith('iq3') ? [4, 3] : [8, 2];
  return (rows[row]! >> ((k % count) * width)) & (2 ** width - 1);
};
/** Of 7 signs of eight elements: the eighth makes the number of negative ones even. */
const negative = (signs: number, k: number): number => {
  const odd = [0, 1, 2, 3, 4, 5, 6].reduce((sum, i) => sum ^ (signs >> i), 0) & 1;
  return ((signs | (odd << 7)) >> (k % 8)) & 1;
};
const times = (number: number, isNegative: number, scale: number): number =>
  (isNegative ? -number : number) * (2 * scale + 1);
const IQ2 = [8, 25, 43];
const IQ3_XXS = [4, 12, 20, 28, 36, 44, 52, 62];
const digitOf = (fraction: number, n: number): number => Math.floor((fraction % 3 ** -n) * 3 ** (n + 1)) - 1;

const UNITS: Readonly<Record<CodebookType, readonly [words: number, halves: number, NumberAt]>> = {
  iq2_xxs: [
    0,
    0,
    ({ words }, k) => {
      const [piece, eight] = [(k >> 5) * 64, (k >> 3) & 3];
      const number = IQ2[sizeOf('iq2_xxs', bits(words, piece + 8 * eight, 8), k)]!;
      return times(number, negative(bits(words, piece + 32 + 7 * eight, 7), k), bits(words, piece + 60, 4)) / 8;
    },
  ],
  iq2_xs: [
    0,
    1,
    ({ words, half: scales }, k) => {
      const at = (k >> 3) * 16;
      const number = IQ2[sizeOf('iq2_xs', bits(words, at, 9), k)]!;
      return times(number, negative(bits(words, at + 9, 7), k), (scales >> ((k >> 4) * 4)) & 15) / 8;
    },
  ],
  iq2_s: [
    1,
    0,
    ({ words, beside }, k) => {
      const [piece, eight] = [(k >> 5) * 64, (k >> 3) & 3];
      const row = bits(words, piece + 8 * eight, 8) + 256 * bits(beside, (k >> 3) * 2, 2);
      const sign = bits(words, piece + 32 + (k & 31), 1);
      return times(IQ2[sizeOf('iq2_s', row, k)]!, sign, bits(beside, 16 + (k >> 4) * 4, 4)) / 8;
    },
  ],
  iq3_xxs: [
    2,
    0,
    ({ words, beside }, k) => {
      const number = IQ3_XXS[sizeOf('iq3_xxs', bits(words, (k >> 2) * 8, 8), k)]!;
      const piece = (k >> 5) * 32;
      return times(number, negative(bits(beside, piece + 7 * ((k >> 3) & 3), 7), k), bits(beside, piece + 28, 4)) / 4;
    },
  ],
  iq3_s: [
    3,
    0,
    ({ words, beside }, k) => {
      const row = bits(words, (k >> 2) * 8, 8) + 256 * bits(beside, 64 + (k >> 2), 1);
      return times(2 * sizeOf('iq3_s', row, k) + 1, bits(beside, k, 1), bits(beside, 80 + (k >> 5) * 4, 4));
    },
  ],
  iq1_s: [
    2,
    0,
    ({ words, beside }, k) => {
      const piece = (k >> 5) * 16;
      const row = bits(words, (k >> 3) * 8, 8) + 256 * bits(beside, piece + 3 * ((k >> 3) & 3), 3);
      const number = sizeOf('iq1', row, k) - 1 + (bits(beside, piece + 15, 1) ? -1 : 1) / 8;
      return times(number, 0, bits(beside, piece + 12, 3));
    },
  ],
  iq1_m: [
    3,
    0,
    ({ words, beside }, k) => {
      const eight = (k >> 3) * 4;
      const row = bits(words, (k >> 3) * 8, 8) + 256 * bits(beside, eight, 3);
      const number = sizeOf('iq1', row, k) - 1 + (bits(beside, eight + 3, 1) ? -1 : 1) / 8;
      return times(number, 0, bits(beside, 64 + (k >> 6) * 16 + ((k >> 4) & 3) * 3, 3));
    },
  ],
  tq1_0: [
    2,
    1,
    ({ words, beside, half: highest }, k) => {
      const [piece, part, j] = [k >> 5, (k >> 2) & 7, k & 3];
      if (part < 5) return digitOf(bits(words, piece * 32 + j * 8, 8) / 256, part);
      const others = bits(beside, piece * 16, 16) + 65536 * ((highest >> (piece * 4)) & 15);
      return digitOf(((others >> (j * 5)) & 31) / 32, part - 5);
    },
  ],
};

function codebookValues(
  type: CodebookType,
  { weight, scale }: PackedTiles,
  n: number,
  width: number,
): Float32Array<ArrayBuffer> {
  const { elements, words: blockWords } = KEPT_BLOCKS[type];
  const unitElements = UNIT_ELEMENTS[type];
  const units = elements / unitElements;
  const blocks = ceilDiv(width, elements);
  const [words, halves, numberAt] = UNITS[type];
  const out = new Float32Array(n * width);
  for (let row = 0; row < n; row++) {
    const lane = row % 32;
    for (let start = 0; start < width; start += unitElements) {
      const block = (row >> 5) * blocks + Math.floor(start / elements);
      const unit = (start % elements) / unitElements;
      const first = (block * units + unit) * 128 + lane * 4;
      const besideAt = block * blockWords + (unit * 32 + lane) * words;
      const halvesAt = block * blockWords + units * 32 * words;
      const own: UnitWords = {
        words: weight.subarray(first, first + 4),
        beside: scale!.subarray(besideAt, besideAt + words),
        half: halves ? half(scale!, halvesAt, unit * 32 + lane) : 0,
      };
      const d = floatFromHalf(half(scale!, halvesAt + units * halves * 16, lane));
      for (let k = 0; k < unitElements && start + k < width; k++) out[row * width + start + k] = d * numberAt(own, k);
    }
  }
  return out;
}

/** The f32 values of packed rows, n x inFeatures: `unpackTiles`, also of types that are kept as a file has them. */
export function tileValues(type: MatrixType, packed: PackedTiles, n: number, width: number): Float32Array<ArrayBuffer> {
  if (!isKept(type)) return unpackTiles(type, packed, n, width);
  if (isCodebook(type)) return codebookValues(type, packed, n, width);
  const { elements: block, words, low, high } = KEPT_BLOCKS[type];
  const unitElements = 128 / low;
  const highWords = (unitElements * high) / 32;
  const blocks = ceilDiv(width, block);
  const out = new Float32Array(n * width);
  for (let row = 0; row < n; row++) {
    const [tile, lane] = [row >> 5, row % 32];
    for (let k = 0; k < width; k++) {
      const at = tile * blocks + Math.floor(k / block);
      const unit = Math.floor((tile * blocks * block + k) / unitElements);
      const inUnit = k % unitElements;
      const word = packed.weight[unit * 128 + lane * 4 + Math.floor((inUnit * low) / 32)]!;
      const lowest = (word >>> ((k & 3) * 8 + (((inUnit >> 2) * low) & 7))) & (2 ** low - 1);
      const first = at * words;
      const place = (inUnit >> 2) * high;
      const inBlock = Math.floor((k % block) / unitElements);
      const beside = high && packed.scale![first + (inBlock * 32 + lane) * highWords + (place >> 3)]! >>> (place & 7);
      const code = lowest | (((beside >>> ((k & 3) * 8)) & (2 ** high - 1)) << low);
      const [factor, summand] = LINES[type](packed.scale!, first + block * high, k % block, lane);
      out[row * width + k] = (NUMBERS[type]?.[code] ?? code) * factor + summand;
    }
  }
  return out;
}
