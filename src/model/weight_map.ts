/**
 * Where each GPU matrix of a model comes from: plain data, no GPU. A matrix is a stack of rows of checkpoint tensors, so a
 * plan that gives a rank only some heads or columns changes the parts, not the loader.
 */

/** Rows [0, rows) of a 2-D tensor; `padTo` adds zero rows up to a multiple. */
export interface MatrixPart {
  readonly tensor: string;
  readonly rows: number;
  readonly padTo?: number;
  /** Row i of every group of `order.length` rows comes from row order[i] of that group; rows is a multiple of the length. */
  readonly order?: readonly number[];
}

export interface MatrixSpec {
  readonly name: string;
  readonly inFeatures: number;
  readonly parts: readonly MatrixPart[];
}

/** A vector tensor, or `length` zeros without one; `padTo` and `order` as in MatrixPart. */
export interface VectorPart {
  readonly tensor?: string;
  readonly length: number;
  readonly padTo?: number;
  readonly order?: readonly number[];
}

export interface VectorSpec {
  readonly name: string;
  readonly parts: readonly VectorPart[];
}

/** Every checkpoint tensor that the specs read, with the shape it must have. */
export function expectedShapes(specs: Iterable<MatrixSpec | VectorSpec | undefined>): Map<string, readonly number[]> {
  const shapes = new Map<string, readonly number[]>();
  for (const spec of specs) {
    if (!spec) continue;
    if ('inFeatures' in spec) {
      for (const part of spec.parts) shapes.set(part.tensor, [part.rows, spec.inFeatures]);
    } else {
      for (const part of spec.parts) if (part.tensor !== undefined) shapes.set(part.tensor, [part.length]);
    }
  }
  return shapes;
}
