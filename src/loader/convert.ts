import { known } from '../base/errors.js';
import { BLOCK_TYPES, type BlockType, DTYPE_BYTES, type FloatDtype, isBlockType, type ReadableType } from './dtype.js';

/** Writes elements [from, to) of a source as f32 to out[at], out[at + 1], ... */
export type Convert = (from: number, to: number, out: Float32Array, at: number) => void;

/**
 * A converter for little-endian `bytes` of `type`; elements are counted from their beginning, which is that of a block. F32, F16
 * and BF16 convert exactly, NaN payloads included; F64 rounds to nearest; quantised types give what llama.cpp's
 * dequantisation gives, after `loadDecoder`. Needs a little-endian machine, as WebGPU does.
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

/** Writes the elements of the block at `bytes[at]` to out[to], out[to + 1], ... */
export type DecodeBlock = (bytes: Uint8Array, at: number, out: Float32Array, to: number, half: Half) => void;
/** The f16 at a byte. */
type Half = (at: number) => number;

/** Elements of a block in f32, as dequantize_row_* of llama.cpp's ggml-quants.c. d: f16 scale, m: f16 minimum. */
const decoders: Partial<Record<BlockType, DecodeBlock>> = {
  /** d, 16 bytes of two 4-bit numbers: (q - 8) d. Low halves are elements 0 to 15, high halves 16 to 31. */
  Q4_0(bytes, at, out, to, half) {
    const d = half(at);
    for (let j = 0; j < 16; j++) {
      const q = bytes[at + 2 + j]!;
      out[to + j] = ((q & 15) - 8) * d;
      out[to + 16 + j] = ((q >> 4) - 8) * d;
    }
  },
  /** d, m, 16 bytes: q d + m. */
  Q4_1(bytes, at, out, to, half) {
    const d = half(at);
    const m = half(at + 2);
    for (let j = 0; j < 16; j++) {
      const q = bytes[at + 4 + j]!;
      out[to + j] = (q & 15) * d + m;
      out[to + 16 + j] = (q >> 4) * d + m;
    }
  },
  /** d, a fifth bit of each element in 4 bytes, 16 bytes of the other four: (q - 16) d. */
  Q5_0(bytes, at, out, to, half) {
    const d = half(at);
    const high = wordAt(bytes, at + 2);
    for (let j = 0; j < 16; j++) {
      const q = bytes[at + 6 + j]!;
      out[to + j] = (((q & 15) | (((high >>> j) & 1) << 4)) - 16) * d;
      out[to + 16 + j] = (((q >> 4) | (((high >>> (16 + j)) & 1) << 4)) - 16) * d;
    }
  },
  /** d, m, fifth bits, 16 bytes: q d + m. */
  Q5_1(bytes, at, out, to, half) {
    const d = half(at);
    const m = half(at + 2);
    const high = wordAt(bytes, at + 4);
    for (let j = 0; j < 16; j++) {
      const q = bytes[at + 8 + j]!;
      out[to + j] = ((q & 15) | (((high >>> j) & 1) << 4)) * d + m;
      out[to + 16 + j] = ((q >> 4) | (((high >>> (16 + j)) & 1) << 4)) * d + m;
    }
  },
  /** d, 32 signed bytes: q d. */
  Q8_0(bytes, at, out, to, half) {
    const d = half(at);
    for (let j = 0; j < 32; j++) out[to + j] = signed(bytes[at + 2 + j]!) * d;
  },
  /** 16 bytes of (scale, minimum) of 4 bits, 64 bytes, d, m: 16 elements are q (d scale) - m minimum. */
  Q2_K(bytes, at, out, to, half) {
    const d = half(at + 80);
    const m = half(at + 82);
    for (let group = 0; group < 16; group++) {
      const packed = bytes[at + group]!;
      const scale = d * (packed & 15);
      const minimum = m * (packed >> 4);
      // Of each 128 elements: 32 share 32 bytes with the other three 32s.
      const quants = at + 16 + (group >> 3) * 32 + (group & 1) * 16;
      const shift = group & 6;
      for (let l = 0; l < 16; l++) out[to + group * 16 + l] = ((bytes[quants + l]! >> shift) & 3) * scale - minimum;
    }
  },
  /** 32 bytes of third bits (bit g of byte l is that of element l of group g of 32), 64 bytes, 16 scales of 6 bits, d: (q - 4) (d (scale - 32)). */
  Q3_K(bytes, at, out, to, half) {
    const d = half(at + 108);
    for (let group = 0; group < 16; group++) {
      const low = (bytes[at + 96 + (group & 7)]! >> ((group >> 3) * 4)) & 15;
      const high = (bytes[at + 104 + (group & 3)]! >> ((group >> 2) * 2)) & 3;
      const scale = d * ((low | (high << 4)) - 32);
      const inBytes = (group & 1) * 16;
      const quants = at + 32 + (group >> 3) * 32 + inBytes;
      for (let l = 0; l < 16; l++) {
        const third = (bytes[at + inBytes + l]! >> (group >> 1)) & 1;
        const q = ((bytes[quants + l]! >> (group & 6)) & 3) | (third << 2);
        out[to + group * 16 + l] = (q - 4) * scale;
      }
    }
  },
  /** d, m, eight (scale, minimum) of 6 bits in 12 bytes, 128 bytes: a group of 32 is q (d scale) - m minimum. */
  Q4_K(bytes, at, out, to, half) {
    const d = half(at);
    const m = half(at + 2);
    for (let group = 0; group < 8; group++) {
      const scale = d * scaleOf(bytes, at + 4, group);
      const minimum = m * minimumOf(bytes, at + 4, group);
      const quants = at + 16 + (group >> 1) * 32;
      const shift = (group & 1) * 4;
      for (let l = 0; l < 32; l++) out[to + group * 32 + l] = ((bytes[quants + l]! >> shift) & 15) * scale - minimum;
    }
  },
  /** As Q4_K, with 32 bytes of fifth bits (bit g of byte l is that of element l of group g) before the quants. */
  Q5_K(bytes, at, out, to, half) {
    const d = half(at);
    const m = half(at + 2);
    for (let group = 0; group < 8; group++) {
      const scale = d * scaleOf(bytes, at + 4, group);
      const minimum = m * minimumOf(bytes, at + 4, group);
      const quants = at + 48 + (group >> 1) * 32;
      const shift = (group & 1) * 4;
      for (let l = 0; l < 32; l++) {
        const q = ((bytes[quants + l]! >> shift) & 15) | (((bytes[at + 16 + l]! >> group) & 1) << 4);
        out[to + group * 32 + l] = q * scale - minimum;
      }
    }
  },
  /** 128 bytes of low 4 bits, 64 of high 2 bits, 16 signed scales, d: (q - 32) (d scale), a scale for each 16 elements. */
  Q6_K(bytes, at, out, to, half) {
    const d = half(at + 208);
    for (let group = 0; group < 8; group++) {
      // Groups of 32: four of each half share 64 bytes of low bits and 32 of high ones.
      const inHalf = group & 3;
      const low = at + (group >> 2) * 64 + (inHalf & 1) * 32;
      const high = at + 128 + (group >> 2) * 32;
      const lowShift = (inHalf >> 1) * 4;
      const highShift = inHalf * 2;
      for (let l = 0; l < 32; l++) {
        const q = ((bytes[low + l]! >> lowShift) & 15) | (((bytes[high + l]! >> highShift) & 3) << 4);
        out[to + group * 32 + l] = (q - 32) * (d * signed(bytes[at + 192 + group * 2 + (l >> 4)]!));
      }
    }
  },
  /** d, 16 bytes of two numbers in a table of 16: table[q] d. */
  IQ4_NL(bytes, at, out, to, half) {
    putTabled(bytes, at + 2, out, to, uneven, half(at));
  },
  /** d, eight scales of 6 bits (their high 2 bits in 2 bytes, low 4 in 4), 128 bytes: a group of 32 is table[q] (d (scale - 32)). */
  IQ4_XS(bytes, at, out, to, half) {
    const d = half(at);
    for (let group = 0; group < 8; group++) {
      const low = (bytes[at + 4 + (group >> 1)]! >> ((group & 1) * 4)) & 15;
      const high = (halfAt(bytes, at + 2) >> (group * 2)) & 3;
      const scale = d * ((low | (high << 4)) - 32);
      putTabled(bytes, at + 8 + group * 16, out, to + group * 32, uneven, scale);
    }
  },
  /** A scale e, 16 bytes of two E2M1 numbers, whose doubles are the table's: table[q] 2^(e - 128). */
  MXFP4(bytes, at, out, to) {
    putTabled(bytes, at + 1, out, to, DOUBLED_E2M1, mxfp4Scale(bytes[at]!));
  },
};

/** Few files have types of codebooks: what decodes them is loaded when one is read. */
export async function loadDecoder(type: ReadableType): Promise<void> {
  if (isBlockType(type) && !decoders[type])
    Object.assign(decoders, (await import('./codebook_blocks.js')).codebookDecoders);
}

/** Of doubled values, by the scale's byte, whose 255 means NaN. */
export const mxfp4Scale = (byte: number): number => (byte === 255 ? Number.NaN : 2 ** (byte - 128));

/** The values of IQ4_NL and IQ4_XS (kvalues_iq4nl of ggml-common.h). */
const uneven = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/** Twice the value of each E2M1 code. */
export const DOUBLED_E2M1: readonly number[] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/** 32 elements by 16 bytes: low halves are elements 0 to 15, high halves 16 to 31. */
function putTabled(
  bytes: Uint8Array,
  at: number,
  out: Float32Array,
  to: number,
  table: readonly number[],
  scale: number,
): void {
  for (let j = 0; j < 16; j++) {
    const q = bytes[at + j]!;
    out[to + j] = table[q & 15]! * scale;
    out[to + 16 + j] = table[q >> 4]! * scale;
  }
}

/** For whole blocks; a part of a block is decoded aside. */
function blockConverter(type: BlockType, bytes: Uint8Array): Convert {
  const { elements, bytes: blockBytes } = BLOCK_TYPES[type];
  const decode = known(decoders[type], `decoder of ${type}`);
  const values = halfValues();
  const half: Half = (at) => values[halfAt(bytes, at)]!;
  const aside = new Float32Array(elements);
  return (from, to, out, at) => {
    for (let block = Math.floor(from / elements); block * elements < to; block++) {
      const first = block * elements;
      const begin = Math.max(from, first);
      const end = Math.min(to, first + elements);
      if (end - begin === elements) decode(bytes, block * blockBytes, out, at + first - from, half);
      else {
        decode(bytes, block * blockBytes, aside, 0, half);
        out.set(aside.subarray(begin - first, end - first), at + begin - from);
      }
    }
  };
}

export const halfAt = (bytes: Uint8Array, at: number): number => bytes[at]! | (bytes[at + 1]! << 8);
export const wordAt = (bytes: Uint8Array, at: number): number => halfAt(bytes, at) | (halfAt(bytes, at + 2) << 16);
const signed = (byte: number): number => (byte << 24) >> 24;

/** The 6-bit scale of group `j` of 8: the first four lie whole in bytes 0 to 3, the others in two parts. */
const scaleOf = (bytes: Uint8Array, at: number, j: number): number =>
  j < 4 ? bytes[at + j]! & 63 : (bytes[at + 4 + j]! & 15) | ((bytes[at + j - 4]! >> 6) << 4);

/** The 6-bit minimum of group `j`, likewise from byte 4 on. */
const minimumOf = (bytes: Uint8Array, at: number, j: number): number =>
  j < 4 ? bytes[at + 4 + j]! & 63 : (bytes[at + 4 + j]! >> 4) | ((bytes[at + j]! >> 6) << 4);

let table: Uint32Array<ArrayBuffer> | undefined;

/** The f32 bits of every f16: 256 KiB, which stays in cache and beats shifting by a factor of two. */
function halfTable(): Uint32Array<ArrayBuffer> {
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

/** As numbers. */
export const halfValues = (): Float32Array<ArrayBuffer> => new Float32Array(halfTable().buffer);
