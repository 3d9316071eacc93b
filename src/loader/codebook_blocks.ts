import { type Codebook, codebook, trit } from '../base/codebooks/codebooks.js';
import { type DecodeBlock, DOUBLED_E2M1, halfAt, halfValues, wordAt } from './convert.js';

/** Of four elements: their codebook's row, a bit for each that is negative (of IQ1: one, of their shift), and their scale. */
type Four = readonly [row: number, negative: number, scale: number];

/** A number by its size; of IQ1 before a shift, which takes 2 off. */
type NumberOf = (size: number) => number;

/** Of 7 signs: the eighth makes their number even. */
function eighth(signs: number): number {
  let odd = signs ^ (signs >> 4);
  odd ^= odd >> 2;
  return signs | (((odd ^ (odd >> 1)) & 1) << 7);
}
/** Of the eight that four `i` is one half of. */
const halfOf = (signs: number, i: number): number => (signs >> ((i & 1) * 4)) & 15;
const nibble = (byte: number, high: number): number => (byte >> ((high & 1) * 4)) & 15;

/** 32 elements' signs and scale in a word. */
const packed = (word: number, i: number): readonly [number, number] => [
  halfOf(eighth((word >>> (((i >> 1) & 3) * 7)) & 127), i),
  word >>> 28,
];

const iq2: NumberOf = (size) => 8 + 17 * size + (size >> 1);
const iq1: NumberOf = (size) => 8 * size - 7;

/** value = d (2 scale + 1) unit number: f16 d, and of all factors the product is exact. */
interface CodebookType {
  readonly book: Codebook;
  readonly unit: number;
  readonly number: NumberOf;
  /** The `i`-th four of a block. */
  readonly four: (bytes: Uint8Array, at: number, i: number) => Four;
  /** Its bits, where it isn't the first. */
  readonly d?: (bytes: Uint8Array, at: number) => number;
}

const TYPES = {
  /** d, eight of (4 rows in bytes, a word). */
  IQ2_XXS: {
    book: 'iq2_xxs',
    unit: 1 / 8,
    number: iq2,
    four: (bytes, at, i) => {
      const first = at + 2 + (i >> 3) * 8;
      return [bytes[first + ((i >> 1) & 3)]!, ...packed(wordAt(bytes, first + 4), i)];
    },
  },
  /** d, 32 of (9 bits of a row, 7 signs), a scale of 4 bits for each 16. */
  IQ2_XS: {
    book: 'iq2_xs',
    unit: 1 / 8,
    number: iq2,
    four: (bytes, at, i) => {
      const pair = halfAt(bytes, at + 2 + (i >> 1) * 2);
      return [pair & 511, halfOf(eighth(pair >> 9), i), nibble(bytes[at + 66 + (i >> 3)]!, i >> 2)];
    },
  },
  /** d, 32 rows' low bytes, 32 of signs, two more bits of each row, scales. */
  IQ2_S: {
    book: 'iq2_s',
    unit: 1 / 8,
    number: iq2,
    four: (bytes, at, i) => {
      const high = (bytes[at + 66 + (i >> 3)]! >> (i & 6)) & 3;
      const row = bytes[at + 2 + (i >> 1)]! | (high << 8);
      return [row, halfOf(bytes[at + 34 + (i >> 1)]!, i), nibble(bytes[at + 74 + (i >> 3)]!, i >> 2)];
    },
  },
  /** d, 64 rows, eight words. */
  IQ3_XXS: {
    book: 'iq3_xxs',
    unit: 1 / 4,
    number: (size) => 4 + 8 * size + (size === 7 ? 2 : 0),
    four: (bytes, at, i) => [bytes[at + 2 + i]!, ...packed(wordAt(bytes, at + 66 + (i >> 3) * 4), i)],
  },
  /** d, 64 rows' low bytes, another bit of each, signs, a scale of 4 bits for each 32. */
  IQ3_S: {
    book: 'iq3_s',
    unit: 1,
    number: (size) => 2 * size + 1,
    four: (bytes, at, i) => {
      const high = (bytes[at + 66 + (i >> 3)]! >> (i & 7)) & 1;
      const signs = halfOf(bytes[at + 74 + (i >> 1)]!, i);
      return [bytes[at + 2 + i]! | (high << 8), signs, nibble(bytes[at + 106 + (i >> 4)]!, i >> 3)];
    },
  },
  /** d, 32 rows' low bytes, for each 32 elements (four of three more bits, a scale of 3, a shift). */
  IQ1_S: {
    book: 'iq1',
    unit: 1 / 8,
    number: iq1,
    four: (bytes, at, i) => {
      const high = halfAt(bytes, at + 34 + (i >> 3) * 2);
      const row = bytes[at + 2 + (i >> 1)]! | (((high >> (((i >> 1) & 3) * 3)) & 7) << 8);
      return [row, high >> 15, (high >> 12) & 7];
    },
  },
  /** 32 rows' low bytes, (three more bits, a shift) for each, four of (four scales of 3 bits, 4 bits of d). */
  IQ1_M: {
    book: 'iq1',
    unit: 1 / 8,
    number: iq1,
    four: (bytes, at, i) => {
      const high = nibble(bytes[at + 32 + (i >> 2)]!, i >> 1);
      const scales = halfAt(bytes, at + 48 + (i >> 4) * 2);
      return [bytes[at + (i >> 1)]! | ((high & 7) << 8), high >> 3, (scales >> (((i >> 2) & 3) * 3)) & 7];
    },
    d: (bytes, at) =>
      [0, 1, 2, 3].reduce((d, part) => d | ((halfAt(bytes, at + 48 + part * 2) >> 12) << (part * 4)), 0),
  },
} as const satisfies Readonly<Record<string, CodebookType>>;

function decoderOf({ book, unit, number, four, d = halfAt }: CodebookType): DecodeBlock {
  // A row of 8 is two fours.
  const [each, bits, ofEight] = book.startsWith('iq3') ? [4, 3, 0] : [8, 2, 4];
  const rows = codebook(book);
  const numbers = Int8Array.from({ length: rows.length * each }, (_, at) =>
    number((rows[Math.floor(at / each)]! >> ((at % each) * bits)) & (2 ** bits - 1)),
  );
  const shifts = book === 'iq1';
  return (bytes, at, out, to) => {
    const scaled = halfValues()[d(bytes, at)]! * unit;
    for (let i = 0; i < 64; i++) {
      const [row, negative, scale] = four(bytes, at, i);
      const factor = scaled * (2 * scale + 1);
      const first = row * each + (i & 1) * ofEight;
      for (let j = 0; j < 4; j++) {
        const value = numbers[first + j]!;
        const signed = shifts ? value - 2 * negative : (negative >> j) & 1 ? -value : value;
        out[to + i * 4 + j] = signed * factor;
      }
    }
  };
}

/** Half the number of each byte: 4 bits of exponent, 3 of fraction. */
const UE4M3 = Float32Array.from({ length: 256 }, (_, byte) => {
  const [exponent, fraction] = [(byte >> 3) & 15, byte & 7];
  if (byte === 127) return 0;
  return exponent === 0 ? fraction * 2 ** -10 : (8 + fraction) * 2 ** (exponent - 11);
});

export const codebookDecoders = {
  ...(Object.fromEntries(Object.entries(TYPES).map(([name, type]) => [name, decoderOf(type)])) as Record<
    keyof typeof TYPES,
    DecodeBlock
  >),
  /** 32 bytes and 16 bytes of five, 4 bytes of four, each byte's first before their second; d. */
  TQ1_0(bytes, at, out, to, half) {
    const d = half(at + 52);
    let i = to;
    for (const [first, count, each] of [
      [0, 32, 5],
      [32, 16, 5],
      [48, 4, 4],
    ] as const)
      for (let n = 0; n < each; n++)
        for (let b = 0; b < count; b++) out[i++] = (trit(bytes[at + first + b]!, n) - 1) * d;
  },
  /** 64 bytes, of which 32 are 128 elements as in Q2_K; d: (q - 1) d. */
  TQ2_0(bytes, at, out, to, half) {
    const d = half(at + 64);
    for (let i = 0; i < 256; i++)
      out[to + i] = (((bytes[at + (i >> 7) * 32 + (i & 31)]! >> ((i >> 4) & 6)) & 3) - 1) * d;
  },
  /** d, 128 bits. */
  Q1_0(bytes, at, out, to, half) {
    const d = half(at);
    for (let i = 0; i < 128; i++) out[to + i] = (bytes[at + 2 + (i >> 3)]! >> (i & 7)) & 1 ? d : -d;
  },
  /** d, four in a byte: (q - 1) d. */
  Q2_0(bytes, at, out, to, half) {
    const d = half(at);
    for (let i = 0; i < 64; i++) out[to + i] = (((bytes[at + 2 + (i >> 2)]! >> ((i & 3) * 2)) & 3) - 1) * d;
  },
  /** Four scales, then of each 16 elements 8 bytes of two E2M1 numbers, 8 elements apart. */
  NVFP4(bytes, at, out, to) {
    for (let i = 0; i < 64; i++) {
      const byte = bytes[at + 4 + (i >> 4) * 8 + (i & 7)]!;
      out[to + i] = DOUBLED_E2M1[i & 8 ? byte >> 4 : byte & 15]! * UE4M3[bytes[at + (i >> 4)]!]!;
    }
  },
} satisfies Readonly<Record<string, DecodeBlock>>;
