import { isBlockType, isDtype, type StoredType } from '../dtype.js';

/** Element types of tensors, by their number in the file (ggml.h). */
const names: Readonly<Record<number, string>> = {
  0: 'F32',
  1: 'F16',
  2: 'Q4_0',
  3: 'Q4_1',
  6: 'Q5_0',
  7: 'Q5_1',
  8: 'Q8_0',
  9: 'Q8_1',
  10: 'Q2_K',
  11: 'Q3_K',
  12: 'Q4_K',
  13: 'Q5_K',
  14: 'Q6_K',
  15: 'Q8_K',
  16: 'IQ2_XXS',
  17: 'IQ2_XS',
  18: 'IQ3_XXS',
  19: 'IQ1_S',
  20: 'IQ4_NL',
  21: 'IQ3_S',
  22: 'IQ2_S',
  23: 'IQ4_XS',
  24: 'I8',
  25: 'I16',
  26: 'I32',
  27: 'I64',
  28: 'F64',
  29: 'IQ1_M',
  30: 'BF16',
  34: 'TQ1_0',
  35: 'TQ2_0',
  39: 'MXFP4',
};

/** The name of a tensor type, for messages too where this loader doesn't know it. */
export const typeName = (id: number): string => names[id] ?? `of an unknown type (${id})`;

/** The type as the loader stores it, or undefined for one whose bytes it can't count. */
export function storedType(id: number): StoredType | undefined {
  const name = names[id];
  return name !== undefined && (isDtype(name) || isBlockType(name)) ? name : undefined;
}
