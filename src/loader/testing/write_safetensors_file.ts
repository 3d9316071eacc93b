import { open } from 'node:fs/promises';
import { type Dtype, DTYPE_BYTES } from '../dtype.js';
import { encode } from './encode.js';
import { safetensorsHeader } from './write_safetensors.js';

export interface TensorToStream {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Writes elements [first, first + out.length) of the tensor, row-major, into `out`. */
  fill(out: Float32Array, first: number): void;
}

const PIECE_ELEMENTS = 1024 * 1024;

/** Writes a safetensors file of any size in pieces of a few MiB: for benchmark models that memory couldn't hold. */
export async function writeSafetensorsFile(
  path: string,
  tensors: readonly TensorToStream[],
  metadata?: Record<string, string>,
): Promise<void> {
  const file = await open(path, 'w');
  try {
    await file.writeFile(safetensorsHeader(tensors, metadata));
    const values = new Float32Array(PIECE_ELEMENTS);
    for (const { dtype, shape, fill } of tensors) {
      const elements = shape.reduce((product, size) => product * size, 1);
      for (let first = 0; first < elements; first += PIECE_ELEMENTS) {
        const piece = values.subarray(0, Math.min(PIECE_ELEMENTS, elements - first));
        fill(piece, first);
        const bytes = new Uint8Array(piece.length * DTYPE_BYTES[dtype]);
        encode(dtype, piece, bytes);
        await file.writeFile(bytes);
      }
    }
  } finally {
    await file.close();
  }
}
