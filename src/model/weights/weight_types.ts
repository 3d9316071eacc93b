import type { MatrixType } from '../../../shaders/linear/pack.js';

/**
 * What a model's matrices are stored as on GPUs: all as one type, or each as what the checkpoint's tensors, here by name, say. Plain data,
 * which workers and other machines are told.
 */
export type WeightTypes = MatrixType | MixedTypes;

interface MixedTypes {
  /** That of the most bytes. */
  readonly most: MatrixType;
  /** Of tensors that have another one. */
  readonly others: Readonly<Record<string, MatrixType>>;
}

export interface TypeBytes {
  readonly type: MatrixType;
  readonly bytes: number;
}

/** For people, such as 'q4_k, q6_k': those of a hundredth or more. */
export function mixtureText(each: readonly TypeBytes[]): string {
  const least = each.reduce((sum, { bytes }) => sum + bytes, 0) / 100;
  return each.flatMap(({ type, bytes }) => (bytes >= least ? type : [])).join(', ');
}

export const mostOf = (types: WeightTypes): MatrixType => (typeof types === 'string' ? types : types.most);

/** Of an encoder's matrices: f32 where the decoder's are, otherwise f16. */
export const encoderType = (types: WeightTypes): 'f32' | 'f16' => (mostOf(types) === 'f32' ? 'f32' : 'f16');

/** Every type that there is, the one of the most bytes first. */
export const eachOf = (types: WeightTypes): MatrixType[] => [
  ...new Set([mostOf(types), ...(typeof types === 'string' ? [] : Object.values(types.others))]),
];

export const typeOfTensor = (types: WeightTypes, tensor: string | undefined): MatrixType =>
  typeof types === 'string' ? types : (tensor !== undefined && types.others[tensor]) || types.most;
