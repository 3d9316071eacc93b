import { alignUp } from '../../../base/math.js';
import { encodeAs, type WritableType } from '../../../loader/gguf/testing/quantise.js';

/** A metadata value of a GGUF file. */
export type GgufValue =
  | { type: 'u16' | 'u32' | 'i32' | 'f32' | 'u64'; value: number }
  | { type: 'bool'; value: boolean }
  | { type: 'string'; value: string }
  | { type: 'i32[]' | 'f32[]'; value: readonly number[] }
  | { type: 'bool[]'; value: readonly boolean[] }
  | { type: 'string[]'; value: readonly string[] };

export interface GgufTensor {
  name: string;
  /** Row-major, outermost axis first, as in a checkpoint (the file has them the other way round). */
  shape: readonly number[];
  data: Float32Array;
  /** What the data is stored as; F32. Rows of a quantised type are a multiple of its block. */
  type?: WritableType | undefined;
}

const typeIds = { u16: 2, u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9, u64: 10 } as const;
const tensorTypeIds: Readonly<Record<WritableType, number>> = {
  F32: 0,
  F16: 1,
  Q4_0: 2,
  Q4_1: 3,
  Q5_0: 6,
  Q5_1: 7,
  Q8_0: 8,
  Q2_K: 10,
  Q3_K: 11,
  Q4_K: 12,
  Q5_K: 13,
  Q6_K: 14,
  IQ4_NL: 20,
  IQ4_XS: 23,
  F64: 28,
  BF16: 30,
  MXFP4: 39,
  IQ2_XXS: 16,
  IQ2_XS: 17,
  IQ3_XXS: 18,
  IQ1_S: 19,
  IQ3_S: 21,
  IQ2_S: 22,
  IQ1_M: 29,
  TQ1_0: 34,
  TQ2_0: 35,
  NVFP4: 40,
  Q1_0: 41,
  Q2_0: 42,
};

/** A GGUF file. `general.alignment` in the metadata counts. */
export function writeGguf(
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: readonly GgufTensor[],
  version: 2 | 3 = 3,
): Uint8Array<ArrayBuffer> {
  const alignment = Number(metadata['general.alignment']?.value ?? 32);
  const header = new ByteWriter();
  header.ascii('GGUF');
  header.u32(version);
  header.u64(tensors.length);
  header.u64(Object.keys(metadata).length);
  for (const [key, entry] of Object.entries(metadata)) {
    header.string(key);
    writeValue(header, entry);
  }
  let offset = 0;
  const encoded = tensors.map(({ type, data }) => encodeAs(type ?? 'F32', data));
  const offsets = tensors.map(({ name, shape, type }, i) => {
    header.string(name);
    header.u32(shape.length);
    for (const size of shape.toReversed()) header.u64(size);
    header.u32(tensorTypeIds[type ?? 'F32']);
    header.u64(offset);
    const at = offset;
    offset = alignUp(offset + encoded[i]!.byteLength, alignment);
    return at;
  });
  const start = alignUp(header.length, alignment);
  const out = new Uint8Array(start + offset);
  header.copyTo(out);
  encoded.forEach((bytes, i) => out.set(bytes, start + offsets[i]!));
  return out;
}

function writeValue(out: ByteWriter, entry: GgufValue): void {
  switch (entry.type) {
    case 'u16':
    case 'u32':
    case 'i32':
    case 'f32':
    case 'u64':
      out.u32(typeIds[entry.type]);
      return out[entry.type](entry.value);
    case 'bool':
      out.u32(typeIds.bool);
      return out.bool(entry.value);
    case 'string':
      out.u32(typeIds.string);
      return out.string(entry.value);
    default: {
      const element = entry.type.slice(0, -2) as 'i32' | 'f32' | 'string' | 'bool';
      out.u32(typeIds.array);
      out.u32(typeIds[element]);
      out.u64(entry.value.length);
      for (const value of entry.value) (out[element] as (value: number | string | boolean) => void).call(out, value);
    }
  }
}

class ByteWriter {
  #bytes = new Uint8Array(1 << 16);
  length = 0;

  u8(value: number): void {
    this.#view(1).setUint8(0, value);
  }
  bool(value: boolean): void {
    this.u8(value ? 1 : 0);
  }
  u16(value: number): void {
    this.#view(2).setUint16(0, value, true);
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
