/**
 * Room: weights that are kept as a file's blocks have them, in planes that tiles of 32 rows read in wide loads (here). planes.ts has the
 * types whose elements have codes, codebooks.ts those of codebooks: both are loaded with the first weights of such types.
 */

import { formatError, known } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import { halfFromFloat } from '../float16.js';
import {
  isCodebook,
  isKept,
  KEPT_BLOCKS,
  type KeptType,
  type MatrixType,
  TILE,
  UNIT_ELEMENTS,
  UNIT_WORDS,
} from '../pack.js';

/** Both parts of `PackedTiles`. */
export interface KeptTiles {
  readonly weight: Uint32Array;
  readonly scale: Uint32Array;
}

/** A file's block, and what becomes of it: bits in another order, no number is rounded. */
export interface KeptPlanes {
  /** Of a block in the file. */
  readonly bytes: number;
  /** Where a block has f16s, and what they are where values are about 1. */
  readonly factors: readonly (readonly [at: number, value: number])[];
  /** Makes the values of a random block about as large, where that isn't by `factors`. */
  resize?(block: DataView, size: number): void;
  /**
   * To a lane of tiles that are zero there: the first word of its first unit is `word`, what 32 rows of the block have beside their units
   * begins at word `first`. `factor`: as of `BlockRows`.
   */
  pack(block: DataView, tiles: KeptTiles, word: number, first: number, lane: number, factor?: number): void;
  /** How a kernel reads them (weights_wgsl.ts). */
  readonly wgsl: string;
}

const planes: { [Type in KeptType]?: KeptPlanes } = {};

/** Before programs of such types are recorded, and before their weights are packed. */
export async function loadKept(types: readonly MatrixType[]): Promise<void> {
  const missing = types.filter((type) => isKept(type) && !planes[type]);
  if (missing.some((type) => !isCodebook(type))) Object.assign(planes, (await import('./planes.js')).PLANES);
  if (missing.some(isCodebook)) Object.assign(planes, (await import('./codebooks.js')).CODEBOOKS);
}

export const keptPlanes = (type: KeptType): KeptPlanes => known(planes[type], `${type} after loadKept`);

/** To the half of a word that `unit` and `lane` have of those from `first` on. */
export function putHalf(to: Uint32Array, first: number, unit: number, lane: number, half: number): void {
  to[first + ((unit * TILE + lane) >>> 1)]! |= (half & 0xffff) << ((lane & 1) * 16);
}

/** @throws SplitkvError `format` for infinity and NaN */
export function finite(half: number): number {
  if ((half & 0x7c00) !== 0x7c00) return half;
  throw formatError(
    'weights: the scale of a block is not finite (NaN or infinity): the checkpoint is damaged; get it again',
  );
}

/** Blocks of random values about `size`, one behind the other. @param factor what each block's scales are multiplied by */
export function randomBlocks(
  type: KeptType,
  random: Random,
  count: number,
  size: number,
  factor: () => number = () => 1,
): Uint8Array<ArrayBuffer> {
  const { bytes: blockBytes, factors, resize } = keptPlanes(type);
  const bytes = Uint8Array.from({ length: count * blockBytes }, () => random.integer(256));
  for (let at = 0; at < bytes.length; at += blockBytes) {
    const block = new DataView(bytes.buffer, at, blockBytes);
    const times = size * factor();
    for (const [offset, value] of factors) block.setUint16(offset, halfFromFloat(value * times), true);
    resize?.(block, times);
  }
  return bytes;
}

/**
 * Repacks the blocks of one row of `inFeatures` elements, `bytes` from `at` on, to row `row` of tiles (pack.ts), which are zero there.
 * @throws SplitkvError `format` for a scale that isn't finite
 */
export function packKeptRow(
  type: KeptType,
  tiles: KeptTiles,
  row: number,
  bytes: Uint8Array,
  at: number,
  inFeatures: number,
  factor?: number,
): void {
  const { bytes: blockBytes, pack } = keptPlanes(type);
  const { elements, words } = KEPT_BLOCKS[type];
  const units = elements / UNIT_ELEMENTS[type];
  const blocks = ceilDiv(inFeatures, elements);
  const [tile, lane] = [Math.floor(row / TILE), row % TILE];
  for (let b = 0; b < blocks; b++) {
    const block = new DataView(bytes.buffer, bytes.byteOffset + at + b * blockBytes, blockBytes);
    const nth = tile * blocks + b;
    pack(block, tiles, nth * units * UNIT_WORDS + lane * 4, nth * words, lane, factor);
  }
}
