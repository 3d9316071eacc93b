/** Safetensors element types and their bytes. Sub-byte types (F4, F6) are not among them: their tensors can't be sliced by bytes. */
export const DTYPE_BYTES = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  F8_E4M3: 1,
  F8_E5M2: 1,
  I64: 8,
  I32: 4,
  I16: 2,
  I8: 1,
  U64: 8,
  U32: 4,
  U16: 2,
  U8: 1,
  BOOL: 1,
} as const;

export type Dtype = keyof typeof DTYPE_BYTES;

export const isDtype = (value: unknown): value is Dtype =>
  typeof value === 'string' && Object.hasOwn(DTYPE_BYTES, value);

/** The types that are read as f32: F32, F16 and BF16 exactly, F64 rounded to nearest. */
export type FloatDtype = 'F64' | 'F32' | 'F16' | 'BF16';

export const isFloatDtype = (dtype: Dtype): dtype is FloatDtype =>
  dtype === 'F64' || dtype === 'F32' || dtype === 'F16' || dtype === 'BF16';
