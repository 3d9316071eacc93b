/**
 * Room: what tests of matrix kernels share. Blocks that are kept as a file has them: random ones, and what packed ones are, said once
 * more (here).
 */

import { ceilDiv } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { floatFromHalf } from '../float16.js';
import {
  blockElements,
  isKept,
  KEPT_BLOCKS,
  KEPT_TYPES,
  type KeptType,
  packedLayout,
  type PackedTiles,
  type PackedType,
  packTiles,
  unpackTiles,
} from '../pack.js';
import { packKeptRow, randomBlocks } from '../planes.js';

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
export function randomTiles(type: PackedType, random: Random, n: number, width: number, size: number): PackedTiles {
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
  (middle: number): Line =>
  (scale, first, _, lane) => {
    const d = floatFromHalf(half(scale, first, lane));
    return [d, -middle * d];
  };
const twoHalves: Line = (scale, first, _, lane) => [
  floatFromHalf(half(scale, first, lane * 2)),
  floatFromHalf(half(scale, first, lane * 2 + 1)),
];

const LINES: Readonly<Record<KeptType, Line>> = {
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
};

/** Of IQ4_NL and IQ4_XS, by code. */
const UNEVEN = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/** The f32 values of packed rows, n x inFeatures: `unpackTiles`, also of types that are kept as a file has them. */
export function tileValues(type: PackedType, packed: PackedTiles, n: number, width: number): Float32Array<ArrayBuffer> {
  if (!isKept(type)) return unpackTiles(type, packed, n, width);
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
      out[row * width + k] = (type.startsWith('iq4') ? UNEVEN[code]! : code) * factor + summand;
    }
  }
  return out;
}
