import byIntegers from '../../lib/half_by_integers.wgsl?raw';
import halvedUnits from '../../lib/halved_units.wgsl?raw';
import keptHalves from '../../lib/kept_halves.wgsl?raw';
import keptIq4Xs from '../../lib/kept_iq4_xs.wgsl?raw';
import keptMinima from '../../lib/kept_minima.wgsl?raw';
import keptNvfp4 from '../../lib/kept_nvfp4.wgsl?raw';
import keptPairs from '../../lib/kept_pairs.wgsl?raw';
import keptQ2K from '../../lib/kept_q2_k.wgsl?raw';
import keptQ3K from '../../lib/kept_q3_k.wgsl?raw';
import keptQ6K from '../../lib/kept_q6_k.wgsl?raw';
import keptScale from '../../lib/kept_scale.wgsl?raw';
import plainSum from '../../lib/plain_sum.wgsl?raw';
import kept from '../../lib/weights_kept.wgsl?raw';
import wholeUnits from '../../lib/whole_units.wgsl?raw';
import { SplitkvError } from '../../../src/base/errors.js';
import { floatFromHalf } from '../float16.js';
import { type CodedType, factorRows, highWords, KEPT_BLOCKS, TILE, UNIT_ELEMENTS, UNIT_WORDS } from '../pack.js';
import { unitOf } from '../unit_wgsl.js';
import { finite, type KeptPlanes, putHalf } from './kept.js';

/** A block whose elements have codes. */
interface Coded extends Pick<KeptPlanes, 'bytes' | 'factors' | 'resize'> {
  /** The codes of elements 32 group + 4 part on, a byte each. */
  codes(block: DataView, group: number, part: number): number;
  /** Writes what the block's groups have beside their codes. `first`: where 32 rows of the block have it in `to`. */
  beside(block: DataView, to: Uint32Array, first: number, lane: number, factor?: number): void;
  /** As weights_kept.wgsl says. */
  readonly lines: string;
  /** What codes stand for. */
  readonly numbers?: 'uneven' | 'e2m1';
}

const LOW = 0x0f0f0f0f;

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

/** The bits of an f32. */
function bitsOf(value: number): number {
  floats[0] = value;
  return floatBits[0]!;
}

/** Of the f32 that an f16 is. */
const floatOf = (half: number): number => bitsOf(floatFromHalf(finite(half)));

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
const MINIMA: Coded['factors'] = [
  [0, 1 / 240],
  [2, 1 / 32],
];

/** Of blocks with one f16 or two; with one, code `middle / step` is zero. */
const halvesOf = (halves: 1 | 2, middle = 0, step = 1): string =>
  `const FACTORS = ${halves}u;\nconst CODE_MIDDLE = ${middle}.0;\nconst CODE_STEP = ${step}.0;\n${byIntegers}${keptHalves}`;

/** Blocks of 32: f16 d, of some types f16 m, of some the fifth bits in 4 bytes, then the nibbles. [lane] d or (d, m). */
function smallBlock(high: 0 | 1, halves: 1 | 2, size: number, middle = 0): Coded {
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
    lines: halvesOf(halves, middle),
  };
}

/** With an f16 d alone, at a byte. */
const oneScale = (at: number, bytes: number, codes: Coded['codes'], lines: string): Coded => ({
  bytes,
  factors: [[at, 1]],
  codes,
  beside: (block, to, first, lane) => putHalf(to, first, 0, lane, finite(block.getUint16(at, true))),
  lines,
});

const CODED: Readonly<Record<CodedType, Coded>> = {
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
    lines: byIntegers + keptQ2K,
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
    lines: byIntegers + keptQ3K,
  },
  q4_k: {
    bytes: 144,
    factors: MINIMA,
    codes: (block, group, part) => pairedAt(block, 16, group, part),
    beside: putScalesAndMinima,
    lines: keptPairs + keptMinima,
  },
  q5_k: {
    bytes: 176,
    factors: MINIMA,
    codes: (block, group, part) =>
      pairedAt(block, 48, group, part) | (((block.getUint32(16 + part * 4, true) >>> group) & 0x01010101) << 4),
    beside: putScalesAndMinima,
    lines: keptPairs + keptMinima,
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
    lines: keptPairs + keptQ6K,
  },
  q4_1: smallBlock(0, 2, 1 / 8),
  q5_0: smallBlock(1, 1, 1 / 10, 16),
  q5_1: smallBlock(1, 2, 1 / 16),
  iq4_nl: { ...smallBlock(0, 1, 1 / 70), numbers: 'uneven' },
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
    lines: keptIq4Xs,
    numbers: 'uneven',
  },
  tq2_0: oneScale(64, 66, (block, group, part) => quartersAt(block, 0, group, part), halvesOf(1, 1)),
  q1_0: oneScale(
    0,
    18,
    (block, group, part) => {
      const bits = block.getUint32(2 + group * 4, true) >>> (part * 4);
      return ((bits & 15) * 0x00204081) & 0x01010101;
    },
    halvesOf(1, 1, 2),
  ),
  q2_0: oneScale(
    0,
    18,
    (block, group, part) => {
      const four = block.getUint8(2 + group * 8 + part);
      return (four | (four << 6) | (four << 12) | (four << 18)) & 0x03030303;
    },
    halvesOf(1, 1),
  ),
  nvfp4: {
    bytes: 36,
    factors: [],
    // Of 16 elements 8 bytes have those of eight in their low halves, the other eight in their high ones.
    codes: (block, group, part) =>
      (block.getUint32(4 + group * 16 + (part >> 2) * 8 + (part & 1) * 4, true) >>> ((part & 2) * 2)) & LOW,
    /** [unit][lane] of two scales, then the tensor's factor, which `factorRows` have together. */
    beside(block, to, first, lane, factor = 1) {
      for (let group = 0; group < 2; group++) putHalf(to, first, group, lane, block.getUint16(group * 2, true));
      const at = first + 32 + Math.floor(lane / factorRows('nvfp4'));
      const bits = bitsOf(factor);
      if (to[at] !== 0 && to[at] !== bits)
        throw new SplitkvError('internal', 'nvfp4: rows that share a factor have two');
      to[at] = bits;
    },
    /** A scale has no sign, and no number below 2^-9. */
    resize(block, size) {
      const exponent = size === 0 ? 0 : Math.min(Math.max(Math.round(Math.log2(Math.abs(size) / 3)) + 7, 1), 15);
      for (let at = 0; at < 4; at++) block.setUint8(at, (exponent << 3) | (block.getUint8(at) & 3));
    },
    lines: keptNvfp4,
    numbers: 'e2m1',
  },
};

/** Units, and what they have beside them. */
function packCoded(type: CodedType, { codes: codesOf, beside }: Coded): KeptPlanes['pack'] {
  const { elements, low, high } = KEPT_BLOCKS[type];
  const each = highWords(KEPT_BLOCKS[type]);
  // Vec4s of a unit, and of a word of it.
  const [parts, inWord] = [UNIT_ELEMENTS[type] / 4, 8 / low];
  const units = elements / UNIT_ELEMENTS[type];
  const lowest = (2 ** low - 1) * 0x01010101;
  return (block, { weight, scale }, firstWord, first, lane, factor) => {
    for (let i = 0; i < elements / 4; i++) {
      const codes = codesOf(block, i >> 3, i & 7);
      const [unit, part] = [Math.floor(i / parts), i % parts];
      const word = firstWord + unit * UNIT_WORDS + Math.floor(part / inWord);
      weight[word]! |= (codes & lowest) << ((part % inWord) * low);
      if (high === 0) continue;
      // In bits `place` on of the bytes of the unit's words, one behind the other.
      const place = part * high;
      scale[first + (unit * TILE + lane) * each + (place >> 3)]! |= ((codes & ~lowest) >>> low) << (place & 7);
    }
    beside(block, scale, first + units * TILE * each, lane, factor);
  };
}

/** As weights_kept.wgsl says. */
function wgslOf(type: CodedType, { lines, numbers }: Coded): string {
  const { elements, words, low, high } = KEPT_BLOCKS[type];
  const unit = UNIT_ELEMENTS[type];
  return `${unitOf(unit)}const BLOCK_UNITS = ${elements / unit}u;
const BLOCK_WORDS = ${words}u;
const LOW = ${low}u;
const HIGH = ${high}u;
const HIGH_WORDS = ${highWords(KEPT_BLOCKS[type])}u;
const UNEVEN = ${numbers === 'uneven'};
const E2M1 = ${numbers === 'e2m1'};
${lines}${keptScale}${kept}${plainSum}${unit > 32 ? halvedUnits : wholeUnits}`;
}

export const PLANES = Object.fromEntries(
  Object.entries(CODED).map(([name, coded]): [string, KeptPlanes] => {
    const type = name as CodedType;
    return [name, { ...coded, pack: packCoded(type, coded), wgsl: wgslOf(type, coded) }];
  }),
);
