import { DTYPE_BYTES, type FloatDtype, isBlockType, type ReadableType } from './dtype.js';
import { blockConverter, halfTable } from './gguf/dequantise.js';

/** Writes elements [from, to) of a source as f32 to out[at], out[at + 1], ... */
export type Convert = (from: number, to: number, out: Float32Array, at: number) => void;

/**
 * A converter for little-endian `bytes` of `type`; elements are counted from their beginning, which is that of a block. F32, F16
 * and BF16 convert exactly, NaN payloads included; F64 rounds to nearest; quantised types give what llama.cpp's
 * dequantisation gives. Needs a little-endian machine, as WebGPU does.
 */
export function converter(type: ReadableType, bytes: Uint8Array<ArrayBuffer>): Convert {
  return isBlockType(type) ? blockConverter(type, bytes) : floatConverter(type, bytes);
}

function floatConverter(dtype: FloatDtype, bytes: Uint8Array<ArrayBuffer>): Convert {
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
