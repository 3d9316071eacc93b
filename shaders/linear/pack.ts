import { formatError, SplitkvError } from '../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../src/base/math.js';
import { floatFromHalf, halfFromFloat, halfFromFloatBits } from './float16.js';

export { roundWeights } from './round_weights.js';

/** How the weights of a linear layer are stored on the GPU. q8 and q4 are llama.cpp's Q8_0 and Q4_0 in another order. */
export type WeightType = 'f32' | 'f16' | 'q8' | 'q4';
export const WEIGHT_TYPES: readonly WeightType[] = ['f32', 'f16', 'q8', 'q4'];
/**
 * What the weights of a file may be kept as, blocks of llama.cpp's type of that name: repacked (kept/planes.ts), and never rounded. Those
 * of a codebook have its rows in place of their elements' codes.
 */
export type CodebookType = 'iq2_xxs' | 'iq2_xs' | 'iq2_s' | 'iq3_xxs' | 'iq3_s' | 'iq1_s' | 'iq1_m' | 'tq1_0';
export type CodedType =
  | ('q2_k' | 'q3_k' | 'q4_k' | 'q5_k' | 'q6_k' | 'q4_1' | 'q5_0' | 'q5_1' | 'iq4_nl' | 'iq4_xs')
  | ('tq2_0' | 'q1_0' | 'q2_0' | 'nvfp4');
export type KeptType = CodedType | CodebookType;
/** mxfp4: blocks of E2M1 numbers with a scale of 2^(byte - 127) each, as gpt-oss's files have them. */
export type MatrixType = WeightType | KeptType | 'mxfp4';

/** Rows (output features) of a packed tile. */
export const TILE = 32;
/** Consecutive elements of a row that share a quantisation scale. */
export const BLOCK = 32;

/** A type's blocks as a file has them. */
export interface KeptBlock {
  readonly elements: number;
  /** Of 32 rows of a block beside their units: first the words of high bits, [unit][lane][`highWords`]. */
  readonly words: number;
  /** Bits of a code in its unit, of 128, and above them: in words beside it. */
  readonly low: 1 | 2 | 4;
  readonly high: 0 | 1 | 2;
}

/** Of a unit. */
export const highWords = ({ low, high }: KeptBlock): number => (4 * high) / low;

export const KEPT_BLOCKS: Readonly<Record<KeptType, KeptBlock>> = {
  q2_k: { elements: 256, words: 160, low: 2, high: 0 },
  q3_k: { elements: 256, words: 400, low: 2, high: 1 },
  q4_k: { elements: 256, words: 160, low: 4, high: 0 },
  q5_k: { elements: 256, words: 416, low: 4, high: 1 },
  q6_k: { elements: 256, words: 672, low: 4, high: 2 },
  q4_1: { elements: 32, words: 32, low: 4, high: 0 },
  q5_0: { elements: 32, words: 48, low: 4, high: 1 },
  q5_1: { elements: 32, words: 64, low: 4, high: 1 },
  iq4_nl: { elements: 32, words: 16, low: 4, high: 0 },
  iq4_xs: { elements: 256, words: 96, low: 4, high: 0 },
  tq2_0: { elements: 256, words: 16, low: 2, high: 0 },
  q1_0: { elements: 128, words: 16, low: 1, high: 0 },
  q2_0: { elements: 64, words: 16, low: 2, high: 0 },
  nvfp4: { elements: 64, words: 36, low: 4, high: 0 },
  iq2_xxs: { elements: 256, words: 16, low: 2, high: 0 },
  iq2_xs: { elements: 256, words: 80, low: 2, high: 0 },
  iq2_s: { elements: 256, words: 144, low: 2, high: 0 },
  iq3_xxs: { elements: 256, words: 272, low: 2, high: 0 },
  iq3_s: { elements: 256, words: 400, low: 2, high: 0 },
  iq1_s: { elements: 256, words: 144, low: 1, high: 0 },
  iq1_m: { elements: 256, words: 208, low: 1, high: 0 },
  tq1_0: { elements: 256, words: 176, low: 1, high: 0 },
};
export const KEPT_TYPES = Object.keys(KEPT_BLOCKS) as readonly KeptType[];

function ofKept(value: (block: KeptBlock) => number): Record<KeptType, number> {
  return Object.fromEntries(KEPT_TYPES.map((type) => [type, value(KEPT_BLOCKS[type])])) as Record<KeptType, number>;
}

/** Elements of a row in one 16-byte unit. */
export const UNIT_ELEMENTS: Readonly<Record<MatrixType, number>> = {
  f32: 4,
  f16: 8,
  q8: 16,
  q4: 32,
  ...ofKept(({ low }) => 128 / low),
  mxfp4: 32,
};
/** Of what 32 elements of a row have beside their units. */
const SCALE_BYTES: Readonly<Record<MatrixType, number>> = {
  f32: 0,
  f16: 0,
  q8: 2,
  q4: 2,
  ...ofKept(({ elements, words }) => (4 * words) / elements),
  mxfp4: 1,
};

export const isQuantised = (type: MatrixType): boolean => SCALE_BYTES[type] > 0;

/** Rows of a file's blocks, which lie one behind the other in a row. */
export interface BlockRows {
  /** GGUF's name of their type. */
  readonly blocks: string;
  readonly bytes: Uint8Array;
  /** From a row to the next. */
  readonly rowBytes: number;
  /** Of all numbers, beside what is in blocks: of NVFP4 alone. Default 1. */
  readonly factor?: number | undefined;
}

export const isCodebook = (type: MatrixType): type is CodebookType => /^(iq[123]|tq1)/.test(type);

export const isKept = (type: MatrixType): type is KeptType => Object.hasOwn(KEPT_BLOCKS, type);

/** Elements of a row that can't be had apart; rows are padded with zeros to a multiple of it. */
export const blockElements = (type: MatrixType): number => (isKept(type) ? KEPT_BLOCKS[type].elements : BLOCK);

/** Rows of a tile that have one factor of their tensor (`BlockRows`) together. */
export const factorRows = (type: MatrixType): number => (type === 'nvfp4' ? 8 : 1);

/** Sizes of a packed weight [outFeatures, inFeatures]; tiles follow each other, so tile t starts at t * tile...Bytes. */
export interface PackedLayout {
  /** Tiles of 32 rows; the last one is padded with zero rows. */
  readonly tiles: number;
  /** 16-byte units of one row. */
  readonly units: number;
  readonly unitElements: number;
  readonly weightBytes: number;
  /** 0 for f32 and f16. */
  readonly scaleBytes: number;
  readonly tileWeightBytes: number;
  readonly tileScaleBytes: number;
}

export function packedLayout(type: MatrixType, outFeatures: number, inFeatures: number): PackedLayout {
  const tiles = ceilDiv(outFeatures, TILE);
  const padded = alignUp(inFeatures, blockElements(type));
  const unitElements = UNIT_ELEMENTS[type];
  const units = padded / unitElements;
  const tileWeightBytes = units * TILE * 16;
  const tileScaleBytes = (padded / BLOCK) * TILE * SCALE_BYTES[type];
  return {
    tiles,
    units,
    unitElements,
    weightBytes: tiles * tileWeightBytes,
    scaleBytes: tiles * tileScaleBytes,
    tileWeightBytes,
    tileScaleBytes,
  };
}

export interface PackedTiles {
  /** [tile][unit][lane] of 4 words. */
  readonly weight: Uint32Array<ArrayBuffer>;
  /**
   * f16 [tile][block][lane], two lanes a word, the even lane low; of mxfp4 bytes, four lanes a word. Undefined for f32 and f16.
   */
  readonly scale: Uint32Array<ArrayBuffer> | undefined;
}

export const emptyTiles = (type: MatrixType, n: number, inFeatures: number): PackedTiles => {
  const { weightBytes, scaleBytes } = packedLayout(type, n, inFeatures);
  return {
    weight: new Uint32Array(weightBytes / 4),
    scale: scaleBytes > 0 ? new Uint32Array(scaleBytes / 4) : undefined,
  };
};

/**
 * Packs `n` rows of `inFeatures` f32 weights (row-major, rows `rowStride` elements apart) into tiles of 32 rows. A tensor may be
 * packed in pieces: every piece but the last must hold a multiple of 32 rows; the results follow each other. What a quantised type can
 * hold as it is stays as it is in mxfp4.
 * @throws SplitkvError `unsupported` for a weight beyond what the type holds (f16's range), `format` for one that isn't finite.
 */
export function packTiles(
  type: MatrixType,
  rows: Float32Array,
  n: number,
  inFeatures: number,
  rowStride = inFeatures,
): PackedTiles {
  const tiles = emptyTiles(type, n, inFeatures);
  packRows(type, tiles, 0, rows, n, inFeatures, rowStride);
  return tiles;
}

/** The same to rows [first, first + n) of tiles, which are zero there. */
export function packRows(
  type: MatrixType,
  { weight, scale }: PackedTiles,
  first: number,
  rows: Float32Array,
  n: number,
  inFeatures: number,
  rowStride = inFeatures,
): void {
  const needed = n === 0 ? 0 : (n - 1) * rowStride + inFeatures;
  if (rows.length < needed) {
    throw new SplitkvError(
      'internal',
      `packTiles: ${n} rows of ${inFeatures} need ${needed} elements, got ${rows.length}`,
    );
  }
  if (isKept(type)) {
    // Rows that pad.
    if (rows.every((value) => value === 0)) return;
    throw new SplitkvError(
      'internal',
      `packTiles: ${type} is repacked from a file's blocks, numbers are never rounded to it`,
    );
  }
  const layout = packedLayout(type, n, inFeatures);
  if (!scale) {
    const bits = new Uint32Array(rows.buffer, rows.byteOffset, rows.length);
    const pack = type === 'f32' ? packFloatRow : packHalfRow;
    for (let row = 0; row < n; row++) {
      pack(bits.subarray(row * rowStride, row * rowStride + inFeatures), weight, wordOf(layout, first + row));
    }
    return;
  }
  const halves = new Uint16Array(scale.buffer);
  const bytes = new Uint8Array(scale.buffer);
  const pack = type === 'q8' ? packQ8Row : packQ4Row;
  const padded = new Float32Array(alignUp(inFeatures, BLOCK));
  for (let row = 0; row < n; row++) {
    padded.set(rows.subarray(row * rowStride, row * rowStride + inFeatures));
    const firstScale = scaleOf(layout, type, first + row);
    const base = wordOf(layout, first + row);
    if (type === 'mxfp4') packMxfp4Row(padded, weight, base, bytes, firstScale);
    else pack(padded, weight, base, halves, firstScale);
  }
}

/** The f32 values of packed rows: exactly what the kernels multiply by. Returns n x inFeatures, row-major. */
export function unpackTiles(
  type: MatrixType,
  packed: PackedTiles,
  n: number,
  inFeatures: number,
): Float32Array<ArrayBuffer> {
  const layout = packedLayout(type, n, inFeatures);
  const halves = packed.scale && new Uint16Array(packed.scale.buffer, packed.scale.byteOffset, packed.scale.length * 2);
  const bytes = packed.scale && new Uint8Array(packed.scale.buffer, packed.scale.byteOffset, packed.scale.length * 4);
  const floats = new Float32Array(packed.weight.buffer, packed.weight.byteOffset, packed.weight.length);
  const out = new Float32Array(n * inFeatures);
  for (let row = 0; row < n; row++) {
    const base = wordOf(layout, row);
    const firstScale = scaleOf(layout, type, row);
    for (let k = 0; k < inFeatures; k++) {
      const inUnit = k % layout.unitElements;
      const unit = base + Math.floor(k / layout.unitElements) * UNIT_WORDS;
      const scaleAt = firstScale + Math.floor(k / BLOCK) * TILE;
      const d = type === 'mxfp4' ? 2 ** (bytes![scaleAt]! - 128) : halves ? floatFromHalf(halves[scaleAt]!) : 1;
      let value: number;
      if (type === 'f32') value = floats[unit + inUnit]!;
      else if (type === 'f16')
        value = floatFromHalf((packed.weight[unit + (inUnit >>> 1)]! >>> ((inUnit & 1) * 16)) & 0xffff);
      else if (type === 'q8') value = ((packed.weight[unit + (inUnit >>> 2)]! << (24 - (inUnit & 3) * 8)) >> 24) * d;
      else {
        const shift = (inUnit & 3) * 8 + (inUnit & 4);
        const code = (packed.weight[unit + (inUnit >>> 3)]! >>> shift) & 15;
        value = (type === 'mxfp4' ? (code < 8 ? 1 : -1) * DOUBLED_E2M1[code & 7]! : code - 8) * d;
      }
      out[row * inFeatures + k] = value;
    }
  }
  return out;
}

/** Words from one unit of a row to its next. */
export const UNIT_WORDS = TILE * 4;

/** Of a row's first scale among the tiles' scales. */
export const scaleOf = ({ tileScaleBytes }: PackedLayout, type: MatrixType, row: number): number =>
  Math.floor(row / TILE) * (tileScaleBytes / SCALE_BYTES[type]) + (row % TILE);

export const wordOf = (layout: PackedLayout, row: number): number =>
  Math.floor(row / TILE) * (layout.tileWeightBytes / 4) + (row % TILE) * 4;

function packFloatRow(bits: Uint32Array, weight: Uint32Array, base: number): void {
  for (let k = 0; k < bits.length; k++) weight[base + (k >>> 2) * UNIT_WORDS + (k & 3)] = bits[k]!;
}

function packHalfRow(bits: Uint32Array, weight: Uint32Array, base: number): void {
  for (let k = 0; k < bits.length; k++) {
    const half = halfFromFloatBits(bits[k]!);
    if ((half & 0x7c00) === 0x7c00) throw refusedWeight(new Float32Array(bits.slice(k, k + 1).buffer)[0]!, 'f16');
    weight[base + (k >>> 3) * UNIT_WORDS + ((k & 7) >>> 1)]! |= half << ((k & 1) * 16);
  }
}

/** One row of Q8_0 (ggml-quants.c, quantize_row_q8_0_ref), in f32 arithmetic as there. */
function packQ8Row(row: Float32Array, weight: Uint32Array, base: number, scale: Uint16Array, firstScale: number): void {
  const { fround } = Math;
  for (let start = 0; start < row.length; start += BLOCK) {
    let largest = 0;
    let finite = 0;
    for (let k = start; k < start + BLOCK; k++) {
      const value = row[k]!;
      finite += value - value;
      const magnitude = value < 0 ? -value : value;
      if (magnitude > largest) largest = magnitude;
    }
    const d = fround(largest / 127);
    scale[firstScale + start] = scaleBits(d, largest, finite, 'q8');
    const id = inverse(d);
    for (let w = 0; w < BLOCK / 4; w++) {
      let word = 0;
      for (let b = 0; b < 4; b++) {
        const scaled = fround(row[start + w * 4 + b]! * id);
        // C's roundf: halves away from zero.
        const q = scaled < 0 ? -Math.floor(0.5 - scaled) : Math.floor(scaled + 0.5);
        word |= (q & 0xff) << (b * 8);
      }
      weight[base + ((start >>> 4) + (w >>> 2)) * UNIT_WORDS + (w & 3)] = word;
    }
  }
}

/** One row of Q4_0 (ggml-quants.c, quantize_row_q4_0_ref), in f32 arithmetic as there. */
function packQ4Row(row: Float32Array, weight: Uint32Array, base: number, scale: Uint16Array, firstScale: number): void {
  const { fround } = Math;
  for (let start = 0; start < row.length; start += BLOCK) {
    let largest = 0;
    let extreme = 0;
    let finite = 0;
    for (let k = start; k < start + BLOCK; k++) {
      const value = row[k]!;
      finite += value - value;
      const magnitude = value < 0 ? -value : value;
      if (magnitude > largest) {
        largest = magnitude;
        extreme = value;
      }
    }
    const d = extreme === 0 ? 0 : extreme / -8;
    scale[firstScale + start] = scaleBits(d, extreme, finite, 'q4');
    const id = inverse(fround(d));
    for (let w = 0; w < BLOCK / 8; w++) {
      let word = 0;
      for (let b = 0; b < 4; b++) {
        const low = fround(fround(row[start + w * 8 + b]! * id) + 8.5) | 0;
        const high = fround(fround(row[start + w * 8 + 4 + b]! * id) + 8.5) | 0;
        word |= ((low > 15 ? 15 : low) | ((high > 15 ? 15 : high) << 4)) << (b * 8);
      }
      weight[base + (start >>> 5) * UNIT_WORDS + w] = word;
    }
  }
}

/** Twice the magnitudes of E2M1's codes; a bit of 8 is their sign. */
const DOUBLED_E2M1 = [0, 1, 2, 3, 4, 6, 8, 12];

/**
 * One row: a block's scale brings its largest magnitude to at least 4 and below 8, where E2M1 ends at 6 (OCP's MX, version 1.0), and the
 * others to the nearest number, halves to the even code. A block of MXFP4 stays what it is, as its largest number is one that any scale
 * at which it is 4 or 6 holds, and so are all smaller ones.
 */
function packMxfp4Row(
  row: Float32Array,
  weight: Uint32Array,
  base: number,
  scale: Uint8Array,
  firstScale: number,
): void {
  for (let start = 0; start < row.length; start += BLOCK) {
    let largest = 0;
    for (let k = start; k < start + BLOCK; k++) {
      const magnitude = Math.abs(row[k]!);
      if (!(magnitude < Infinity)) throw refusedWeight(row[k]!, 'mxfp4');
      if (magnitude > largest) largest = magnitude;
    }
    // The exponent's bits, those of subnormal numbers 0.
    floatBits[0] = largest;
    const e = Math.max(0, (wordBits[0]! >>> 23) - 2);
    scale[firstScale + start] = e;
    const inverse = 2 ** (128 - e);
    for (let w = 0; w < BLOCK / 8; w++) {
      let word = 0;
      for (let b = 0; b < 4; b++) {
        word |=
          (e2m1(row[start + w * 8 + b]! * inverse) | (e2m1(row[start + w * 8 + 4 + b]! * inverse) << 4)) << (b * 8);
      }
      weight[base + (start >>> 5) * UNIT_WORDS + w] = word;
    }
  }
}

const floatBits = new Float32Array(1);
const wordBits = new Uint32Array(floatBits.buffer);

/** The code nearest to half of a number. */
function e2m1(doubled: number): number {
  const d = doubled < 0 ? -doubled : doubled;
  const sign = doubled < 0 ? 8 : 0;
  if (d < 3.5) return sign | (d <= 0.5 ? 0 : d < 1.5 ? 1 : d <= 2.5 ? 2 : 3);
  return sign | (d <= 5 ? 4 : d < 7 ? 5 : d <= 10 ? 6 : 7);
}

/** 1 / d in f32; 0 for the zero block and for a d so small that its inverse overflows (its f16 is zero too). */
function inverse(d: number): number {
  const id = d === 0 ? 0 : Math.fround(1 / d);
  return Number.isFinite(id) ? id : 0;
}

/** The f16 of a block's scale. `finite` sums each element minus itself: NaN when one isn't finite. */
function scaleBits(d: number, extreme: number, finite: number, type: MatrixType): number {
  if (finite !== 0) throw refusedWeight(Number.NaN, type);
  const half = halfFromFloat(d);
  if ((half & 0x7c00) === 0x7c00) throw refusedWeight(extreme, type);
  return half;
}

function refusedWeight(value: number, type: MatrixType): SplitkvError {
  if (!Number.isFinite(value)) {
    return formatError(
      `weights as ${type}: a weight is not finite (NaN or infinity): the checkpoint is damaged; get it again`,
    );
  }
  return new SplitkvError(
    'unsupported',
    `weights as ${type}: a weight of ${value} is beyond what ${type} holds (f16 ends at 65504); load with --weights f32`,
  );
}
