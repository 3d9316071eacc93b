import { alignUp } from '../../base/math.js';

/** A metadata value of a GGUF file. */
export type GgufValue =
  | { type: 'u32' | 'f32'; value: number }
  | { type: 'bool'; value: boolean }
  | { type: 'string'; value: string }
  | { type: 'i32[]' | 'f32[]'; value: readonly number[] }
  | { type: 'string[]'; value: readonly string[] };

export interface GgufTensor {
  name: string;
  /** Row-major, outermost axis first, as in a checkpoint (the file has them the other way round). */
  shape: readonly number[];
  data: Float32Array;
}

const alignment = 32;
const typeIds = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 } as const;

/** A GGUF file, version 3, of F32 tensors. */
export function writeGguf(
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: readonly GgufTensor[],
): Uint8Array<ArrayBuffer> {
  const header = new ByteWriter();
  header.ascii('GGUF');
  header.u32(3);
  header.u64(tensors.length);
  header.u64(Object.keys(metadata).length);
  for (const [key, entry] of Object.entries(metadata)) {
    header.string(key);
    writeValue(header, entry);
  }
  let offset = 0;
  const offsets = tensors.map(({ name, shape, data }) => {
    header.string(name);
    header.u32(shape.length);
    for (const size of shape.toReversed()) header.u64(size);
    header.u32(0); // GGML_TYPE_F32
    header.u64(offset);
    const at = offset;
    offset = alignUp(offset + data.byteLength, alignment);
    return at;
  });
  const start = alignUp(header.length, alignment);
  const out = new Uint8Array(start + offset);
  header.copyTo(out);
  tensors.forEach(({ data }, i) => {
    out.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), start + offsets[i]!);
  });
  return out;
}

function writeValue(out: ByteWriter, entry: GgufValue): void {
  switch (entry.type) {
    case 'u32':
    case 'f32':
      out.u32(typeIds[entry.type]);
      return out[entry.type](entry.value);
    case 'bool':
      out.u32(typeIds.bool);
      return out.u8(entry.value ? 1 : 0);
    case 'string':
      out.u32(typeIds.string);
      return out.string(entry.value);
    default: {
      const element = entry.type.slice(0, -2) as 'i32' | 'f32' | 'string';
      out.u32(typeIds.array);
      out.u32(typeIds[element]);
      out.u64(entry.value.length);
      for (const value of entry.value) (out[element] as (value: number | string) => void).call(out, value);
    }
  }
}

class ByteWriter {
  #bytes = new Uint8Array(1 << 16);
  length = 0;

  u8(value: number): void {
    this.#view(1).setUint8(0, value);
  }
  u32(value: number): void {
    this.#view(4).setUint32(0, value, true);
  }
  i32(value: number): void {
    this.#view(4).setInt32(0, value, true);
  }
  f32(value: number): void {
    this.#view(4).setFloat32(0, value, true);
  }
  u64(value: number): void {
    this.#view(8).setBigUint64(0, BigInt(value), true);
  }
  ascii(text: string): void {
    this.#append(new TextEncoder().encode(text));
  }
  string(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.u64(bytes.length);
    this.#append(bytes);
  }
  copyTo(out: Uint8Array): void {
    out.set(this.#bytes.subarray(0, this.length));
  }

  #append(bytes: Uint8Array): void {
    this.#view(bytes.length);
    this.#bytes.set(bytes, this.length - bytes.length);
  }
  /** Room for `size` more bytes, as a view of them. */
  #view(size: number): DataView {
    const at = this.length;
    this.length += size;
    if (this.length > this.#bytes.length) {
      const larger = new Uint8Array(this.length * 2);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    return new DataView(this.#bytes.buffer, at, size);
  }
}

export const u32 = (value: number): GgufValue => ({ type: 'u32', value });
export const f32 = (value: number): GgufValue => ({ type: 'f32', value });
export const text = (value: string): GgufValue => ({ type: 'string', value });
