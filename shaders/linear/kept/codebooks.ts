import { type Codebook, codebook, trit } from '../../../src/base/codebooks/codebooks.js';
import byIntegers from '../../lib/half_by_integers.wgsl?raw';
import iq1M from '../../lib/codebook_iq1_m.wgsl?raw';
import iq1S from '../../lib/codebook_iq1_s.wgsl?raw';
import iq2S from '../../lib/codebook_iq2_s.wgsl?raw';
import iq2Xs from '../../lib/codebook_iq2_xs.wgsl?raw';
import iq2Xxs from '../../lib/codebook_iq2_xxs.wgsl?raw';
import iq3S from '../../lib/codebook_iq3_s.wgsl?raw';
import iq3Xxs from '../../lib/codebook_iq3_xxs.wgsl?raw';
import rows from '../../lib/codebook_rows.wgsl?raw';
import tq1 from '../../lib/codebook_tq1_0.wgsl?raw';
import numbersIq1 from '../../lib/numbers_iq1.wgsl?raw';
import numbersIq2 from '../../lib/numbers_iq2.wgsl?raw';
import numbersIq3S from '../../lib/numbers_iq3_s.wgsl?raw';
import numbersIq3Xxs from '../../lib/numbers_iq3_xxs.wgsl?raw';
import plainSum from '../../lib/plain_sum.wgsl?raw';
import codebooks from '../../lib/weights_codebook.wgsl?raw';
import { halfFromFloat } from '../float16.js';
import { type CodebookType, KEPT_BLOCKS, TILE, UNIT_ELEMENTS, UNIT_WORDS } from '../pack.js';
import { unitOf } from '../unit_wgsl.js';
import { finite, type KeptPlanes, putHalf } from './kept.js';

/** Of a unit of a block: its words, and what it has beside them (weights_codebook.wgsl). */
interface Unit {
  readonly words: readonly number[];
  readonly beside?: readonly number[];
  readonly half?: number;
}

/** A block's fields by their first bytes. */
interface Fields {
  u8(at: number): number;
  u16(at: number): number;
  u32(at: number): number;
  /** Four words. */
  four(at: number): number[];
}

const fieldsOf = (block: DataView): Fields => ({
  u8: (at) => block.getUint8(at),
  u16: (at) => block.getUint16(at, true),
  u32: (at) => block.getUint32(at, true),
  four: (at) => [0, 4, 8, 12].map((more) => block.getUint32(at + more, true)),
});

interface Book {
  readonly bytes: number;
  /** Where a block has its f16, and what it is where values are about 1. */
  readonly d: readonly [at: number, value: number];
  readonly unit: (fields: Fields, unit: number) => Unit;
  /** Words and halves of words beside a unit. */
  readonly words: number;
  readonly halves?: 0 | 1;
  readonly wgsl: string;
}

/** A type's fragment with its codebook. @param step what numbers are multiplied by, beside their scale and d */
function withBook(name: Codebook, step: number, numbers: string, fragment: string): string {
  const halves = codebook(name);
  const words = [...new Uint32Array(halves.buffer)].map((word) => `${word}u`);
  return `const CODEBOOK = array<u32, ${words.length}>(${words.join(', ')});
const FOURS = ${name.startsWith('iq3')};
const NUMBER_STEP = ${step};
${fragment}${numbers}${rows}`;
}

/** Those of a TQ1_0 block's element: 32 bytes of five, 16 of five, 4 of four. */
function tritAt({ u8 }: Fields, i: number): number {
  if (i < 160) return trit(u8(i & 31), i >> 5);
  return i < 240 ? trit(u8(32 + (i & 15)), (i - 160) >> 4) : trit(u8(48 + (i & 3)), (i - 240) >> 2);
}
/** `count` digits of elements 4 apart as the least fraction of `ones` + 1 that has them. */
function fractionOf(fields: Fields, first: number, count: number, ones: number): number {
  let number = 0;
  for (let n = 0; n < count; n++) number = number * 3 + tritAt(fields, first + 4 * n);
  return Math.ceil((number * (ones + 1)) / 3 ** count);
}

/** As codebook_tq1_0.wgsl says. */
function tritUnit(fields: Fields, unit: number): Unit {
  const beside = [0, 0];
  let half = 0;
  const words = [0, 1, 2, 3].map((piece) => {
    let [word, others] = [0, 0];
    for (let j = 0; j < 4; j++) {
      const first = unit * 128 + piece * 32 + j;
      word |= fractionOf(fields, first, 5, 255) << (8 * j);
      others |= fractionOf(fields, first + 20, 3, 31) << (5 * j);
    }
    beside[piece >> 1]! |= (others & 0xffff) << (16 * (piece & 1));
    half |= (others >> 16) << (4 * piece);
    return word;
  });
  return { words, beside, half };
}

const BOOKS: Readonly<Record<CodebookType, Book>> = {
  iq2_xxs: {
    bytes: 66,
    d: [0, 1 / 80],
    words: 0,
    unit: ({ four }, unit) => ({ words: four(2 + unit * 16) }),
    wgsl: withBook('iq2_xxs', 1 / 8, numbersIq2, iq2Xxs),
  },
  iq2_xs: {
    bytes: 74,
    d: [0, 1 / 80],
    words: 0,
    halves: 1,
    unit: ({ u16, four }, unit) => ({ words: four(2 + unit * 16), half: u16(66 + unit * 2) }),
    wgsl: withBook('iq2_xs', 1 / 8, numbersIq2, iq2Xs),
  },
  iq2_s: {
    bytes: 82,
    d: [0, 1 / 80],
    words: 1,
    unit: ({ u16, u32 }, unit) => ({
      words: [2, 34, 6, 38].map((at) => u32(at + unit * 8)),
      beside: [u16(66 + unit * 2) | (u16(74 + unit * 2) << 16)],
    }),
    wgsl: withBook('iq2_s', 1 / 8, numbersIq2, iq2S),
  },
  iq3_xxs: {
    bytes: 98,
    d: [0, 1 / 130],
    words: 2,
    unit: ({ u32, four }, unit) => ({
      words: four(2 + unit * 16),
      beside: [u32(66 + unit * 8), u32(70 + unit * 8)],
    }),
    wgsl: withBook('iq3_xxs', 1 / 4, numbersIq3Xxs, iq3Xxs),
  },
  iq3_s: {
    bytes: 110,
    d: [0, 1 / 130],
    words: 3,
    unit: ({ u8, u16, u32, four }, unit) => ({
      words: four(2 + unit * 16),
      beside: [u32(74 + unit * 8), u32(78 + unit * 8), u16(66 + unit * 2) | (u8(106 + unit) << 16)],
    }),
    wgsl: withBook('iq3_s', 1, numbersIq3S, iq3S),
  },
  iq1_s: {
    bytes: 50,
    d: [0, 1 / 6],
    words: 2,
    unit: ({ u32, four }, unit) => ({
      words: four(2 + unit * 16),
      beside: [u32(34 + unit * 8), u32(38 + unit * 8)],
    }),
    wgsl: withBook('iq1', 1 / 8, numbersIq1, iq1S),
  },
  iq1_m: {
    bytes: 56,
    d: [48, 1 / 6],
    words: 3,
    unit: ({ u32, four }, unit) => ({
      words: four(unit * 16),
      beside: [u32(32 + unit * 8), u32(36 + unit * 8), u32(48 + unit * 4)],
    }),
    wgsl: withBook('iq1', 1 / 8, numbersIq1, iq1M),
  },
  tq1_0: { bytes: 54, d: [52, 1], words: 2, halves: 1, unit: tritUnit, wgsl: tq1 },
};

/** The f16 of IQ1_M, which lies in the highest bits of four. */
const spread = {
  get: (block: DataView): number =>
    [0, 1, 2, 3].reduce((d, part) => d | ((block.getUint16(48 + part * 2, true) >> 12) << (part * 4)), 0),
  set(block: DataView, half: number): void {
    for (let part = 0; part < 4; part++) {
      const rest = block.getUint8(49 + part * 2) & 15;
      block.setUint8(49 + part * 2, rest | (((half >> (part * 4)) & 15) << 4));
    }
  },
};

function planesOf(
  type: CodebookType,
  { bytes, d: [at, value], unit: unitAt, words, halves = 0, wgsl }: Book,
): KeptPlanes {
  const { elements, words: blockWords } = KEPT_BLOCKS[type];
  const units = elements / UNIT_ELEMENTS[type];
  const isSpread = type === 'iq1_m';
  return {
    bytes,
    factors: isSpread ? [] : [[at, value]],
    ...(isSpread && { resize: (block, size) => spread.set(block, halfFromFloat(value * size)) }),
    pack(block, { weight, scale }, word, first, lane) {
      const fields = fieldsOf(block);
      const firstHalf = first + units * words * TILE;
      for (let u = 0; u < units; u++) {
        const { words: own, beside = [], half } = unitAt(fields, u);
        weight.set(own, word + u * UNIT_WORDS);
        scale.set(beside, first + (u * TILE + lane) * words);
        if (half !== undefined) putHalf(scale, firstHalf, u, lane, half);
      }
      const d = isSpread ? spread.get(block) : block.getUint16(at, true);
      putHalf(scale, firstHalf + units * halves * (TILE / 2), 0, lane, finite(d));
    },
    wgsl: `${unitOf(UNIT_ELEMENTS[type])}const BLOCK_UNITS = ${units}u;
const BLOCK_WORDS = ${blockWords}u;
const WORDS_BESIDE = ${words}u;
const HALVES_BESIDE = ${halves}u;
${byIntegers}${codebooks}${wgsl}${plainSum}`,
  };
}

export const CODEBOOKS = Object.fromEntries(
  Object.entries(BOOKS).map(([type, book]) => [type, planesOf(type as CodebookType, book)]),
);
