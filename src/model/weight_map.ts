/**
 * Where each GPU matrix of a model comes from: plain data, no GPU. A matrix is a stack of rows of checkpoint tensors, so a
 * plan that gives a rank only some heads or columns changes the parts, not the loader.
 */

/** Rows [0, rows) of a 2-D tensor; `padTo` adds zero rows up to a multiple. */
export interface MatrixPart {
  readonly tensor: string;
  readonly rows: number;
  readonly padTo?: number;
}

export interface MatrixSpec {
  readonly name: string;
  readonly inFeatures: number;
  readonly parts: readonly MatrixPart[];
}

export interface VectorSpec {
  readonly name: string;
  readonly parts: readonly { readonly tensor: string; readonly length: number; readonly padTo?: number }[];
}

export interface LayerMap {
  readonly inputNorm: VectorSpec;
  readonly qkv: MatrixSpec;
  readonly qkvBias: VectorSpec | undefined;
  readonly qNorm: VectorSpec | undefined;
  readonly kNorm: VectorSpec | undefined;
  readonly o: MatrixSpec;
  readonly oBias: VectorSpec | undefined;
  readonly postNorm: VectorSpec;
  /** Gate rows, then up rows, each padded to 32. */
  readonly gateUp: MatrixSpec;
  readonly gateUpBias: VectorSpec | undefined;
  readonly down: MatrixSpec;
  readonly downBias: VectorSpec | undefined;
}

export interface WeightMap {
  readonly embedding: MatrixSpec;
  readonly layers: readonly LayerMap[];
  readonly norm: VectorSpec;
  /** Undefined when the embedding is tied: the head then uses the embedding's buffers. */
  readonly head: MatrixSpec | undefined;
}

/** Every checkpoint tensor a map reads, with the shape it must have. */
export function expectedShapes(map: WeightMap): Map<string, readonly number[]> {
  const shapes = new Map<string, readonly number[]>();
  const matrix = (spec: MatrixSpec | undefined): void => {
    for (const part of spec?.parts ?? []) shapes.set(part.tensor, [part.rows, spec!.inFeatures]);
  };
  const vector = (spec: VectorSpec | undefined): void => {
    for (const part of spec?.parts ?? []) shapes.set(part.tensor, [part.length]);
  };
  matrix(map.embedding);
  for (const layer of map.layers) {
    for (const spec of Object.values(layer) as (MatrixSpec | VectorSpec | undefined)[]) {
      if (spec && 'inFeatures' in spec) matrix(spec);
      else vector(spec);
    }
  }
  vector(map.norm);
  matrix(map.head);
  return shapes;
}
