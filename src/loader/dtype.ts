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

/** llama.cpp's quantised types that are read as f32: runs of `elements` of a row in `bytes` (ggml-common.h). */
export const BLOCK_TYPES = {
  Q4_0: { elements: 32, bytes: 18 },
  Q4_1: { elements: 32, bytes: 20 },
  Q5_0: { elements: 32, bytes: 22 },
  Q5_1: { elements: 32, bytes: 24 },
  Q8_0: { elements: 32, bytes: 34 },
  Q2_K: { elements: 256, bytes: 84 },
  Q3_K: { elements: 256, bytes: 110 },
  Q4_K: { elements: 256, bytes: 144 },
  Q5_K: { elements: 256, bytes: 176 },
  Q6_K: { elements: 256, bytes: 210 },
  IQ4_NL: { elements: 32, bytes: 18 },
  IQ4_XS: { elements: 256, bytes: 136 },
  MXFP4: { elements: 32, bytes: 17 },
  IQ2_XXS: { elements: 256, bytes: 66 },
  IQ2_XS: { elements: 256, bytes: 74 },
  IQ2_S: { elements: 256, bytes: 82 },
  IQ3_XXS: { elements: 256, bytes: 98 },
  IQ3_S: { elements: 256, bytes: 110 },
  IQ1_S: { elements: 256, bytes: 50 },
  IQ1_M: { elements: 256, bytes: 56 },
  TQ1_0: { elements: 256, bytes: 54 },
  TQ2_0: { elements: 256, bytes: 66 },
  Q1_0: { elements: 128, bytes: 18 },
  Q2_0: { elements: 64, bytes: 18 },
  NVFP4: { elements: 64, bytes: 36 },
} as const;

export type BlockType = keyof typeof BLOCK_TYPES;

export type StoredType = Dtype | BlockType;
/** Those that are read as f32. */
export type ReadableType = FloatDtype | BlockType;

export const isBlockType = (type: string): type is BlockType => Object.hasOwn(BLOCK_TYPES, type);

export const isReadable = (type: StoredType): type is ReadableType =>
  isBlockType(type) || type === 'F64' || type === 'F32' || type === 'F16' || type === 'BF16';

/** The smallest run of a row's elements that can be read alone, and its bytes. */
export const blockOf = (type: StoredType): { readonly elements: number; readonly bytes: number } =>
  isBlockType(type) ? BLOCK_TYPES[type] : { elements: 1, bytes: DTYPE_BYTES[type] };
