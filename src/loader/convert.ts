import { DTYPE_BYTES, type FloatDtype } from './dtype.js';

/** Writes elements [from, to) of a source as f32 to out[at], out[at + 1], ... */
export type Convert = (from: number, to: number, out: Float32Array, at: number) => void;

/**
 * A converter for little-endian `bytes` of `dtype`. F32, F16 and BF16 convert exactly, NaN payloads included;
 * F64 rounds to nearest. Needs a little-endian machine, as WebGPU does.
 */
export function converter(dtype: FloatDtype, bytes: Uint8Array<ArrayBuffer>): Convert {
  const size = DTYPE_BYTES[dtype];
  // Views must start at a multiple of the element size; a copy always does.
  const aligned = bytes.byteOffset % size === 0 ? bytes : bytes.slice();
  const { buffer, byteOffset } = aligned;
  const length = aligned.byteLength / size;
  switch (dtype) {
    case 'F64': {
      const input = new Float64Array(buffer, byteOffset, length);
      return (from, to, out, at) => out.set(input.subarray(from, to), at);
    }
    case 'F32': {
      const input = new Uint32Array(buffer, byteOffset, length);
      return (from, to, out, at) => bitsOf(out).set(input.subarray(from, to), at);
    }
    case 'BF16': {
      const input = new Uint16Array(buffer, byteOffset, length);
      return (from, to, out, at) => {
        const bits = bitsOf(out);
        for (let i = from, j = at; i < to; i++, j++) bits[j] = input[i]! << 16;
      };
    }
    case 'F16': {
      const input = new Uint16Array(buffer, byteOffset, length);
      const table = halfTable();
      return (from, to, out, at) => {
        const bits = bitsOf(out);
        for (let i = from, j = at; i < to; i++, j++) bits[j] = table[input[i]!]!;
      };
    }
  }
}

// Copying floats as numbers may quieten NaNs; copying their bits can't.
const bitsOf = (values: Float32Array): Uint32Array => new Uint32Array(values.buffer, values.byteOffset, values.length);

let table: Uint32Array | undefined;

/** The f32 bits of every f16: 256 KiB, which stays in cache and beats shifting by a factor of two. */
function halfTable(): Uint32Array {
  if (table) return table;
  table = new Uint32Array(65536);
  const value = new Float32Array(1);
  const bits = new Uint32Array(value.buffer);
  for (let half = 0; half < 65536; half++) {
    const sign = (half & 0x8000) << 16;
    const exponent = (half >> 10) & 31;
    const fraction = half & 0x3ff;
    if (exponent === 31) table[half] = sign | 0x7f800000 | (fraction << 13);
    else if (exponent > 0) table[half] = sign | ((exponent + 112) << 23) | (fraction << 13);
    else {
      value[0] = fraction * 2 ** -24; // subnormal halves are normal floats
      table[half] = sign | bits[0]!;
    }
  }
  return table;
}
