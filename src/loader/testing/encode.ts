import { DTYPE_BYTES, type Dtype } from '../dtype.js';

const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

/** The bf16 bits nearest to an f32 (ties to even). */
export function bf16Bits(value: number): number {
  scratch[0] = value;
  const bits = scratchBits[0]!;
  if (Number.isNaN(value)) return (bits >>> 16) | 0x40;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** The f16 bits nearest to a number (ties to even); beyond 65520 infinity. */
export function f16Bits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  // The spacing of halves around the value: 2^(exponent - 10), 2^-24 for subnormals.
  const exponent = Math.max(-14, Math.floor(Math.log2(magnitude || 2 ** -24)));
  const steps = roundToEven(magnitude / 2 ** (exponent - 10));
  // `steps` has the hidden bit for normals, and carries into the exponent by itself when it rounds up to 2048.
  return sign | (exponent === -14 ? steps : ((exponent + 14) << 10) + steps);
}

function roundToEven(value: number): number {
  const low = Math.floor(value);
  const rest = value - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? low + 1 : low;
}

/** Numbers as the little-endian bytes of a dtype, written at `out[at]`. F8 types are not made here: give their bytes. */
export function encode(dtype: Dtype, values: ArrayLike<number>, out: Uint8Array, at = 0): void {
  const view = new DataView(out.buffer, out.byteOffset + at, values.length * DTYPE_BYTES[dtype]);
  const write = writers[dtype];
  if (!write) throw new Error(`encode: no numbers of dtype ${dtype}; pass bytes`);
  for (let i = 0; i < values.length; i++) write(view, i * DTYPE_BYTES[dtype], values[i]!);
}

type Write = (view: DataView, at: number, value: number) => void;
const writers: Partial<Record<Dtype, Write>> = {
  F64: (view, at, value) => view.setFloat64(at, value, true),
  F32: (view, at, value) => view.setFloat32(at, value, true),
  F16: (view, at, value) => view.setUint16(at, f16Bits(value), true),
  BF16: (view, at, value) => view.setUint16(at, bf16Bits(value), true),
  I64: (view, at, value) => view.setBigInt64(at, BigInt(value), true),
  U64: (view, at, value) => view.setBigUint64(at, BigInt(value), true),
  I32: (view, at, value) => view.setInt32(at, value, true),
  U32: (view, at, value) => view.setUint32(at, value, true),
  I16: (view, at, value) => view.setInt16(at, value, true),
  U16: (view, at, value) => view.setUint16(at, value, true),
  I8: (view, at, value) => view.setInt8(at, value),
  U8: (view, at, value) => view.setUint8(at, value),
  BOOL: (view, at, value) => view.setUint8(at, value ? 1 : 0),
};
