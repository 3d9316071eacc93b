import { unsupportedError } from '../../../src/base/errors.js';
import { BLOCK, packedLayout, packTiles, TILE, unpackTiles } from '../../../shaders/linear/pack.js';
import { floatFromHalf } from '../../../shaders/linear/float16.js';

export interface NBitsBlocks {
  /** q4 [rows][blocks][16]: two elements a byte, the even one low, 8 is zero; q8 [rows][blocks][32]: 128 is zero. */
  readonly data: Uint8Array<ArrayBuffer>;
  /** f32 [rows][blocks]. */
  readonly scales: Float32Array<ArrayBuffer>;
}

/** Rows in blocks of 32, as our kernels have them, in the layout that MatMulNBits takes: the same numbers, so the same model. */
export function nBitsBlocks(type: 'q8' | 'q4', rows: Float32Array, count: number, columns: number): NBitsBlocks {
  if (columns % BLOCK !== 0) {
    throw unsupportedError(
      `a matrix of ${columns} columns: MatMulNBits takes whole blocks of ${BLOCK}; compare f32 or f16`,
    );
  }
  const packed = packTiles(type, rows, count, columns);
  const values = unpackTiles(type, packed, count, columns);
  const halves = new Uint16Array(packed.scale!.buffer);
  const tileHalves = packedLayout(type, count, columns).tileScaleBytes / 2;
  const blocks = columns / BLOCK;
  const [zero, perByte] = type === 'q4' ? [8, 2] : [128, 1];
  const data = new Uint8Array((count * columns) / perByte);
  const scales = new Float32Array(count * blocks);
  for (let row = 0; row < count; row++) {
    for (let block = 0; block < blocks; block++) {
      const half = halves[Math.floor(row / TILE) * tileHalves + block * TILE + (row % TILE)]!;
      const scale = floatFromHalf(half);
      scales[row * blocks + block] = scale;
      const first = row * columns + block * BLOCK;
      for (let k = 0; k < BLOCK; k++) {
        const level = scale === 0 ? zero : Math.round(values[first + k]! / scale) + zero;
        if (perByte === 1) data[first + k] = level;
        else data[(first + k) >> 1]! |= level << (4 * (k & 1));
      }
    }
  }
  return { data, scales };
}
