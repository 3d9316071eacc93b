import { BLOCK, packedLayout, packTiles, TILE, unpackTiles } from '../../../shaders/linear/pack.js';
import { floatFromHalf } from '../../../shaders/linear/float16.js';

export interface Q4Blocks {
  /** [rows][blocks][16]: two elements a byte, the even one low; 8 is zero. */
  readonly data: Uint8Array<ArrayBuffer>;
  /** f32 [rows][blocks]. */
  readonly scales: Float32Array<ArrayBuffer>;
}

/** Rows as q4 (blocks of 32, as our kernels have them), in the layout that MatMulNBits takes: the same numbers, so the same model. */
export function q4Blocks(rows: Float32Array, count: number, columns: number): Q4Blocks {
  if (columns % BLOCK !== 0) throw new Error(`${columns} columns; expected a multiple of ${BLOCK}`);
  const packed = packTiles('q4', rows, count, columns);
  const values = unpackTiles('q4', packed, count, columns);
  const halves = new Uint16Array(packed.scale!.buffer);
  const tileHalves = packedLayout('q4', count, columns).tileScaleBytes / 2;
  const blocks = columns / BLOCK;
  const data = new Uint8Array((count * columns) / 2);
  const scales = new Float32Array(count * blocks);
  for (let row = 0; row < count; row++) {
    for (let block = 0; block < blocks; block++) {
      const half = halves[Math.floor(row / TILE) * tileHalves + block * TILE + (row % TILE)]!;
      const scale = floatFromHalf(half);
      scales[row * blocks + block] = scale;
      const first = row * columns + block * BLOCK;
      for (let k = 0; k < BLOCK; k++) {
        const level = scale === 0 ? 8 : Math.round(values[first + k]! / scale) + 8;
        data[(first + k) >> 1]! |= level << (4 * (k & 1));
      }
    }
  }
  return { data, scales };
}
