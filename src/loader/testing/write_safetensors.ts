import { type Dtype, DTYPE_BYTES } from '../dtype.js';
import { encode } from './encode.js';

export interface TensorToWrite {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Numbers, rounded to the dtype; or, as Uint8Array, the tensor's own bytes. */
  readonly data: ArrayLike<number> | Uint8Array;
}

/** A safetensors file of these tensors, in their order. */
export function writeSafetensors(
  tensors: readonly TensorToWrite[],
  metadata?: Record<string, string>,
): Uint8Array<ArrayBuffer> {
  const header = safetensorsHeader(tensors, metadata);
  const out = new Uint8Array(header.byteLength + tensors.reduce((sum, tensor) => sum + tensorBytes(tensor), 0));
  out.set(header);
  let at = header.byteLength;
  for (const { name, dtype, shape, data } of tensors) {
    const bytes = tensorBytes({ dtype, shape });
    const expected = data instanceof Uint8Array ? bytes : bytes / DTYPE_BYTES[dtype];
    if (data.length !== expected)
      throw new Error(`${name}: ${data.length} values for shape [${shape.join(', ')}]; expected ${expected}`);
    if (data instanceof Uint8Array) out.set(data, at);
    else encode(dtype, data, out, at);
    at += bytes;
  }
  return out;
}

/** The length and the JSON of a header, padded with spaces so that the data begins at a multiple of 8 bytes. */
export function safetensorsHeader(
  tensors: readonly Omit<TensorToWrite, 'data'>[],
  metadata?: Record<string, string>,
): Uint8Array<ArrayBuffer> {
  const entries: [string, unknown][] = metadata ? [['__metadata__', metadata]] : [];
  let at = 0;
  for (const tensor of tensors) {
    const end = at + tensorBytes(tensor);
    entries.push([tensor.name, { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [at, end] }]);
    at = end;
  }
  return headerOf(JSON.stringify(Object.fromEntries(entries)));
}

/** A header of any text, for tests of wrong ones. */
export function headerOf(json: string): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(json);
  const length = Math.ceil(text.byteLength / 8) * 8;
  const out = new Uint8Array(8 + length).fill(0x20);
  new DataView(out.buffer).setBigUint64(0, BigInt(length), true);
  out.set(text, 8);
  return out;
}

const tensorBytes = ({ dtype, shape }: { dtype: Dtype; shape: readonly number[] }): number =>
  shape.reduce((product, size) => product * size, DTYPE_BYTES[dtype]);
