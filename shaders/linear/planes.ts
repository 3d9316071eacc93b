import { formatError } from '../../src/base/errors.js';
import { ceilDiv } from '../../src/base/math.js';
import type { Random } from '../../src/base/random.js';
import { floatFromHalf, halfFromFloat } from './float16.js';
import { highWords, KEPT_BLOCKS, type KeptType, TILE, UNIT_ELEMENTS, UNIT_WORDS } from './pack.js';

/** A file's block, and what becomes of it: bits in another order, no number is rounded. */
interface Kept {
  /** Of a block in the file. */
  readonly bytes: number;
  /** Where a block has f16s, and what they are where values are about 1. */
  readonly factors: readonly (readonly [at: number, value: number])[];
  /** The codes of elements 32 group + 4 part on, a byte each. */
  codes(block: DataView, group: number, part: number): number;
  /** Writes what the block's groups have beside their codes. `first`: where 32 rows of the block have it in `to`. */
  beside(block: DataView, to: Uint32Array, first: number, lane: number): void;
}

const LOW = 0x0f0f0f0f;

/** To the half of a word that `unit` and `lane` have of those from `first` on. */
function putHalf(to: Uint32Array, first: number, unit: number, lane: number, half: number): void {
  to[first + ((unit * TILE + lane) >>> 1)]! |= (half & 0xffff) << ((lane & 1) * 16);
}

/** @throws SplitkvError `format` for infinity and NaN */
export function finite(half: number): number {
  if ((half & 0x7c00) !== 0x7c00) return half;
  throw formatError(
    'weights: the scale of a block is not finite (NaN or infinity): the checkpoint is damaged; get it again',
  );
}

/**
 * The magnitude of an f16 as 16 bits whose exponent has six, so that no GPU takes small ones for zero: (e << 10 | f) is
 * (1 + f / 1024) 2^(e - 24). Zero and signs are the factors' matter.
 */
function wideHalf(half: number): number {
  const [exponent, fraction] = [(finite(half) >>> 10) & 31, half & 1023];
  if (exponent > 0) return ((exponent + 9) << 10) | fraction;
  const place = 31 - Math.clz32(fraction | 1);
  return (place << 10) | ((fraction << (10 - place)) & 1023);
}

/** Times the sign of an f16, or 0. */
const signOf = (half: number): number => ((half & 0x7fff) === 0 ? 0 : half & 0x8000 ? -1 : 1);

/** The 6-bit scale and minimum of group `j` of 8: the first four lie whole in bytes 0 to 3 and 4 to 7, the others in two parts. */
function sixBits(block: DataView, j: number): readonly [scale: number, minimum: number] {
  const byte = (i: number): number => block.getUint8(4 + i);
  if (j < 4) return [byte(j) & 63, byte(j + 4) & 63];
  return [(byte(j + 4) & 15) | ((byte(j - 4) >> 6) << 4), (byte(j + 4) >> 4) | ((byte(j) >> 6) << 4)];
}

/** [unit][lane] (signed scale, signed minimum) in bytes, then [lane] (d, dmin). */
function putScalesAndMinima(block: DataView, to: Uint32Array, first: number, lane: number): void {
  const [d, dmin] = [block.getUint16(0, true), block.getUint16(2, true)];
  for (let group = 0; group < 8; group++) {
    const [scale, minimum] = sixBits(block, group);
    // The minimum is taken off.
    putHalf(to, first, group, lane, ((scale * signOf(d)) & 0xff) | ((minimum * -signOf(dmin)) << 8));
  }
  to[first + 128 + lane] = wideHalf(d) | (wideHalf(dmin) << 16);
}

const floats = new Float32Array(1);
const floatBits = new Uint32Array(floats.buffer);

/** The bits of the f32 that an f16 is. */
function floatOf(half: number): number {
  floats[0] = floatFromHalf(finite(half));
  return floatBits[0]!;
}

/** Of 32 codes in 16 bytes: low nibbles are elements 0 to 15, high ones 16 to 31. */
const nibblesAt = (block: DataView, at: number, part: number): number =>
  (block.getUint32(at + (part & 3) * 4, true) >>> ((part >> 2) * 4)) & LOW;
/** Bit i of the word is the fifth of element i. */
const fifthsAt = (block: DataView, at: number, part: number): number =>
  ((((block.getUint32(at, true) >>> (part * 4)) & 15) * 0x00204081) & 0x01010101) << 4;

/** Q4_K's and Q5_K's nibbles: low and high ones of 32 bytes are groups side by side. */
const pairedAt = (block: DataView, at: number, group: number, part: number): number =>
  (block.getUint32(at + (group >> 1) * 32 + part * 4, true) >>> ((group & 1) * 4)) & LOW;
/** Q2_K's and Q3_K's pairs of bits: of 128 elements four groups share 32 bytes. */
const quartersAt = (block: DataView, at: number, group: number, part: number): number =>
  (block.getUint32(at + (group >> 2) * 32 + part * 4, true) >>> ((group & 3) * 2)) & 0x03030303;
const MINIMA: Kept['factors'] = [
  [0, 1 / 240],
  [2, 1 / 32],
];

/** Blocks of 32: f16 d, of some types f16 m, of some the fifth bits in 4 bytes, then the nibbles. [lane] d or (d, m). */
function smallBlock(high: 0 | 1, halves: 1 | 2, size: number): Kept {
  const fifths = halves * 2;
  const nibbles = fifths + high * 4;
  return {
    bytes: nibbles + 16,
    factors:
      halves === 1
        ? [[0, size]]
        : [
            [0, size],
            [2, -1],
          ],
    codes: (block, _, part) => nibblesAt(block, nibbles, part) | (high ? fifthsAt(block, fifths, part) : 0),
    beside(block, to, first, lane) {
      const d = finite(block.getUint16(0, true));
      if (halves === 1) putHalf(to, first, 0, lane, d);
      else to[first + lane] = d | (finite(block.getUint16(2, true)) << 16);
    },
  };
}

const KEPT: Readonly<Record<KeptType, Kept>> = {
  q2_k: {
    bytes: 84,
    factors: [
      [80, 1 / 10],
      [82, 1 / 7],
    ],
    codes: (block, group, part) => quartersAt(block, 16, group, part),
    /** [unit][lane] of four (scale, minimum) in bytes as they are, then [lane] (d, dmin). */
    beside(block, to, first, lane) {
      for (let unit = 0; unit < 4; unit++) to[first + unit * TILE + lane] = block.getUint32(unit * 4, true);
      to[first + 128 + lane] = finite(block.getUint16(80, true)) | (finite(block.getUint16(82, true)) << 16);
    },
  },
  q3_k: {
    bytes: 110,
    factors: [[108, 1 / 40]],
    codes: (block, group, part) =>
      quartersAt(block, 32, group, part) | (((block.getUint32(part * 4, true) >>> group) & 0x01010101) << 2),
    /** [unit][lane] of four signed scales in bytes, then [lane] d. */
    beside(block, to, first, lane) {
      for (let s = 0; s < 16; s++) {
        const low = (block.getUint8(96 + (s & 7)) >> ((s >> 3) * 4)) & 15;
        const high = (block.getUint8(104 + (s & 3)) >> ((s >> 2) * 2)) & 3;
        to[first + (s >> 2) * TILE + lane]! |= (((low | (high << 4)) - 32) & 0xff) << ((s & 3) * 8);
      }
      putHalf(to, first + 128, 0, lane, finite(block.getUint16(108, true)));
    },
  },
  q4_k: {
    bytes: 144,
    factors: MINIMA,
    codes: (block, group, part) => pairedAt(block, 16, group, part),
    beside: putScalesAndMinima,
  },
  q5_k: {
    bytes: 176,
    factors: MINIMA,
    codes: (block, group, part) =>
      pairedAt(block, 48, group, part) | (((block.getUint32(16 + part * 4, true) >>> group) & 0x01010101) << 4),
    beside: putScalesAndMinima,
  },
  q6_k: {
    bytes: 210,
    factors: [[208, 1 / 1200]],
    codes(block, group, part) {
      const [half, inHalf] = [group >> 2, group & 3];
      const low = block.getUint32(half * 64 + (inHalf & 1) * 32 + part * 4, true) >>> ((inHalf >> 1) * 4);
      const high = block.getUint32(128 + half * 32 + part * 4, true) >>> (inHalf * 2);
      return (low & LOW) | ((high & 0x03030303) << 4);
    },
    /** [unit][lane] of two scales in bytes, [lane] d. */
    beside(block, to, first, lane) {
      for (let group = 0; group < 8; group++) putHalf(to, first, group, lane, block.getUint16(192 + group * 2, true));
      to[first + 128 + lane] = floatOf(block.getUint16(208, true));
    },
  },
  q4_1: smallBlock(0, 2, 1 / 8),
  q5_0: smallBlock(1, 1, 1 / 10),
  q5_1: smallBlock(1, 2, 1 / 16),
  iq4_nl: smallBlock(0, 1, 1 / 70),
  iq4_xs: {
    bytes: 136,
    factors: [[0, 1 / 1200]],
    codes: (block, group, part) => nibblesAt(block, 8 + group * 16, part),
    /** [unit][lane] scales in bytes, [lane] d. */
    beside(block, to, first, lane) {
      for (let group = 0; group < 8; group++) {
        const low = (block.getUint8(4 + (group >> 1)) >> ((group & 1) * 4)) & 15;
        const high = (block.getUint16(2, true) >> (group * 2)) & 3;
        to[first + group * 8 + (lane >> 2)]! |= (((low | (high << 4)) - 32) & 0xff) << ((lane & 3) * 8);
      }
      to[first + 64 + lane] = floatOf(block.getUint16(0, true));
    },
  },
};

/** The bytes of a file's block of a type. */
export const keptBlockBytes = (type: KeptType): number => KEPT[type].bytes;

/** Where it has f16s. */
export const keptHalves = (type: KeptType): readonly number[] => KEPT[type].factors.map(([at]) => at);

/** Blocks of random values about `size`, one behind the other. @param factor what each block's scales are multiplied by */
export function randomBlocks(
  type: KeptType,
  random: Random,
  count: number,
  size: number,
  factor: () => number = () => 1,
): Uint8Array<ArrayBuffer> {
  const { bytes: blockBytes, factors } = KEPT[type];
  const bytes = Uint8Array.from({ length: count * blockBytes }, () => random.integer(256));
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += blockBytes) {
    const times = size * factor();
    for (const [offset, value] of factors) view.setUint16(at + offset, halfFromFloat(value * times), true);
  }
  return bytes;
}

/**
 * Repacks the blocks of one row of `inFeatures` elements, `bytes` from `at` on, to row `row` of tiles (pack.ts), which are zero there.
 * @throws SplitkvError `format` for a scale that isn't finite
 */
export function packKeptRow(
  type: KeptType,
  { weight, scale }: { readonly weight: Uint32Array; readonly scale: Uint32Array },
  row: number,
  bytes: Uint8Array,
  at: number,
  inFeatures: number,
): void {
  const { bytes: blockBytes, codes: codesOf, beside } = KEPT[type];
  const { elements, words, low, high } = KEPT_BLOCKS[type];
  const each = highWords(KEPT_BLOCKS[type]);
  // Vec4s of a unit, and of a word of it.
  const [parts, inWord] = [UNIT_ELEMENTS[type] / 4, 8 / low];
  const units = elements / UNIT_ELEMENTS[type];
  const blocks = ceilDiv(inFeatures, elements);
  const [tile, lane] = [Math.floor(row / TILE), row % TILE];
  const lowest = low === 2 ? 0x03030303 : LOW;
  for (let b = 0; b < blocks; b++) {
    const block = new DataView(bytes.buffer, bytes.byteOffset + at + b * blockBytes, blockBytes);
    const first = (tile * blocks + b) * words;
    for (let i = 0; i < elements / 4; i++) {
      const codes = codesOf(block, i >> 3, i & 7);
      const [unit, part] = [Math.floor(i / parts), i % parts];
      const word = ((tile * blocks + b) * units + unit) * UNIT_WORDS + lane * 4 + Math.floor(part / inWord);
      weight[word]! |= (codes & lowest) << ((part % inWord) * low);
      if (high === 0) continue;
      // In bits `place` on of the bytes of the unit's words, one behind the other.
      const place = part * high;
      scale[first + (unit * TILE + lane) * each + (place >> 3)]! |= ((codes & ~lowest) >>> low) << (place & 7);
    }
    beside(block, scale, first + units * TILE * each, lane);
  }
}
