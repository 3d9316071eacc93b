import { SplitkvError } from '../../src/base/errors.js';
import {
  BLOCK,
  type BlockRows,
  isKept,
  packedLayout,
  type PackedTiles,
  type MatrixType,
  scaleOf,
  UNIT_WORDS,
  wordOf,
} from './pack.js';
import { finite, packKeptRow } from './kept/kept.js';

/** Where a row's blocks go. */
interface PackedRow {
  readonly weight: Uint32Array;
  readonly base: number;
  readonly halves: Uint16Array;
  /** The same as bytes. */
  readonly scales: Uint8Array;
  readonly firstScale: number;
}

/** Packs the blocks at `bytes[from]` on that make a row of `width` elements. */
type PackRow = (bytes: Uint8Array, from: number, width: number, to: PackedRow) => void;

/** Writes a block's 32 codes, which its f16 scale at its beginning multiplies. */
type Codes = (bytes: Uint8Array, at: number, codes: Int8Array) => void;

const UNEVEN = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/** Of 16 bytes: low halves are elements 0 to 15, high halves 16 to 31. */
const halvesOf =
  (first: number, code: (half: number) => number): Codes =>
  (bytes, at, codes) => {
    for (let i = 0; i < 16; i++) {
      const byte = bytes[at + first + i]!;
      codes[i] = code(byte & 15);
      codes[16 + i] = code(byte >> 4);
    }
  };

const q4Codes = halvesOf(2, (half) => half - 8);

function q5Codes(bytes: Uint8Array, at: number, codes: Int8Array): void {
  for (let i = 0; i < 32; i++) {
    const half = (bytes[at + 6 + (i & 15)]! >> ((i >> 4) << 2)) & 15;
    codes[i] = (half | (((bytes[at + 2 + (i >> 3)]! >> (i & 7)) & 1) << 4)) - 16;
  }
}

function q8Codes(bytes: Uint8Array, at: number, codes: Int8Array): void {
  for (let i = 0; i < 32; i++) codes[i] = bytes[at + 2 + i]!;
}

const CODES = new Int8Array(BLOCK);

/** As q8, which has room for the codes of smaller types. */
const asQ8 =
  (blockBytes: number, codesOf: Codes): PackRow =>
  (bytes, from, width, { weight, base, halves, firstScale }) => {
    for (let start = 0, at = from; start < width; start += BLOCK, at += blockBytes) {
      codesOf(bytes, at, CODES);
      halves[firstScale + start] = scaleAt(bytes, at);
      for (let w = 0; w < 8; w++) {
        const unit = base + ((start >>> 4) + (w >>> 2)) * UNIT_WORDS + (w & 3);
        const byte = (b: number): number => (CODES[w * 4 + b]! & 0xff) << (b * 8);
        weight[unit] = byte(0) | byte(1) | byte(2) | byte(3);
      }
    }
  };

/** Halves of bytes behind a scale, in the order of q4: byte b of word w has elements 8w + b and 8w + 4 + b. */
const asHalves =
  (before: 1 | 2, putScale: (bytes: Uint8Array, at: number, to: PackedRow, block: number) => void): PackRow =>
  (bytes, from, width, to) => {
    const { weight, base } = to;
    for (let start = 0, at = from; start < width; start += BLOCK, at += before + 16) {
      putScale(bytes, at, to, to.firstScale + start);
      for (let w = 0; w < 4; w++) {
        const first = at + before + (w & 1) * 8;
        const shift = (w >> 1) * 4;
        let word = 0;
        for (let b = 0; b < 4; b++) {
          const low = (bytes[first + b]! >> shift) & 15;
          const high = (bytes[first + 4 + b]! >> shift) & 15;
          word |= (low | (high << 4)) << (b * 8);
        }
        weight[base + (start >>> 5) * UNIT_WORDS + w] = word;
      }
    }
  };

const asQ4 = asHalves(2, (bytes, at, { halves }, block) => (halves[block] = scaleAt(bytes, at)));

const asMxfp4 = asHalves(1, (bytes, at, { scales }, block) => {
  if (bytes[at] === 255) finite(0x7c00);
  scales[block] = bytes[at]!;
});

/** The f16 that a block begins with. */
const scaleAt = (bytes: Uint8Array, at: number): number => finite(bytes[at]! | (bytes[at + 1]! << 8));

/**
 * The types of a file's blocks, GGUF's names, that a type holds as they are: without rounding, whatever their codes. A type that is
 * added here and in `pack.ts` is one that files may be kept in.
 */
const PACKERS: { readonly [Type in MatrixType]?: Readonly<Record<string, PackRow>> } = {
  q4: { Q4_0: asQ4 },
  mxfp4: { MXFP4: asMxfp4 },
  q8: {
    Q8_0: asQ8(34, q8Codes),
    Q5_0: asQ8(22, q5Codes),
    Q4_0: asQ8(18, q4Codes),
    IQ4_NL: asQ8(
      18,
      halvesOf(2, (half) => UNEVEN[half]!),
    ),
  },
};

/** Whether blocks of a file stay what they are. */
export const keepsBlocks = (type: MatrixType, blocks: string): boolean =>
  isKept(type)
    ? blocks === type.toUpperCase()
    : Object.hasOwn(PACKERS, type) && Object.hasOwn(PACKERS[type] ?? {}, blocks);

/**
 * Packs rows of `inFeatures` elements, whole blocks, to rows [first, first + n) of tiles, which are zero there.
 * @throws SplitkvError `format` for a scale that isn't finite
 */
export function packBlocks(
  type: MatrixType,
  { weight, scale }: PackedTiles,
  first: number,
  { blocks, bytes, rowBytes, factor }: BlockRows,
  n: number,
  inFeatures: number,
): void {
  const pack = PACKERS[type]?.[blocks];
  if (isKept(type) && scale && keepsBlocks(type, blocks)) {
    for (let row = 0; row < n; row++)
      packKeptRow(type, { weight, scale }, first + row, bytes, row * rowBytes, inFeatures, factor);
    return;
  }
  if (!pack || !scale) throw new SplitkvError('internal', `packBlocks: ${type} doesn't hold ${blocks}`);
  const layout = packedLayout(type, n, inFeatures);
  const [halves, scales] = [new Uint16Array(scale.buffer), new Uint8Array(scale.buffer)];
  for (let row = 0; row < n; row++) {
    const [base, firstScale] = [wordOf(layout, first + row), scaleOf(layout, type, first + row)];
    pack(bytes, row * rowBytes, inFeatures, { weight, base, halves, scales, firstScale });
  }
}
