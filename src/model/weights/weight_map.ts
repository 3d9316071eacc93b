/**
 * Where each GPU matrix of a model comes from: plain data, no GPU. A matrix is a stack of rows of checkpoint tensors, so a
 * plan that gives a rank only some heads or columns changes the parts, not the loader.
 */
import { blockElements, factorRows, isQuantised, type MatrixType } from '../../../shaders/linear/pack.js';
import { weightColumns } from '../../../shaders/linear/segments.js';
import { sum } from '../../base/lists.js';
import { alignUp } from '../../base/math.js';
import type { Buffer } from '../../gpu/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { type HeldSegments, type Span, spanLength } from '../shape.js';
import type { Matrix } from './matrix.js';
import { typeOfTensor, type WeightTypes } from './weight_types.js';

/**
 * Rows [firstRow, firstRow + rows) of a tensor of `tensorRows` rows (a vector's are its elements), or `rows` rows of zeros without one;
 * `padTo` adds zero rows up to a multiple.
 */
export interface Part {
  readonly tensor?: string | undefined;
  readonly tensorRows: number;
  readonly firstRow: number;
  readonly rows: number;
  readonly padTo?: number;
  /**
   * Row i of every group of `order.length` rows, from firstRow on, comes from row order[i] of that group; rows is a multiple of the
   * length.
   */
  readonly order?: readonly number[] | undefined;
}

/** A matrix that isn't packed as it is stored. */
export interface PackedAs {
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
}

export interface MatrixSpec {
  readonly name: string;
  /** Columns of the tensors. */
  readonly inFeatures: number;
  /** Of a contraction that plans split: only these segments' columns are read and packed. All columns without. */
  readonly segments?: HeldSegments;
  readonly parts: readonly Part[];
  /** 'f32', 'mxfp4': whatever the type of the other weights. 'unquantised': f16 where that is q8 or q4. */
  readonly precision?: 'f32' | 'unquantised' | 'mxfp4';
  /** True: it must fit one binding, as what is read together can't lie in different ones. */
  readonly whole?: boolean;
  /**
   * Tiles of 32 rows of which a shard is a multiple; default 2, so that a shard's bias starts at a multiple of 256 bytes. Those of an
   * expert: shards hold whole ones.
   */
  readonly granule?: number;
  /** The matrices made of it, where it isn't packed as stored. */
  readonly packedAs?: readonly PackedAs[];
  /** A matrix of the map that lies behind it in the same buffers, where they fit one binding and have one type. */
  readonly beside?: MatrixSpec | undefined;
}

/** Latent attention's kv_b_proj, heads * (nope + v) rows of the latent's width, which loading cuts into two matrices a head. */
export interface AbsorbedSpec extends MatrixSpec {
  readonly packedAs: readonly [absorb: PackedAs, valueUp: PackedAs];
}

/** The same on a device. */
export interface Absorbed {
  /** W_UK^T, a group a query head: [latent, nope]. */
  readonly absorb: Matrix;
  /** W_UV, a group a query head: [v, latent], padded to 32 rows. */
  readonly valueUp: Matrix;
}

/** A part of a model's map with what its specs become on a device in their place. */
export type Loaded<T> = T extends AbsorbedSpec
  ? Absorbed
  : T extends MatrixSpec
    ? Matrix
    : T extends VectorSpec
      ? Buffer
      : T extends object
        ? { readonly [Key in keyof T]: Loaded<T[Key]> }
        : T;

export interface VectorSpec {
  readonly name: string;
  readonly parts: readonly Part[];
  /** Of tensors [rows, 1, columns], whose rows lie one behind the other; default: of [rows]. */
  readonly columns?: number;
  /** Added to each element; default 0. */
  readonly plus?: number | undefined;
  /** What each element is multiplied by before that, or how it becomes another. */
  readonly times?: number;
  readonly as?: 'exp';
}

/** A matrix over rows [firstRow, ...) of the vocabulary. */
export interface VocabSpec {
  readonly matrix: MatrixSpec;
  readonly firstRow: number;
}

export const someRows = (tensor: string, tensorRows: number, [first, end]: Span, more?: Partial<Part>): Part => ({
  tensor,
  tensorRows,
  firstRow: first,
  rows: end - first,
  ...more,
});
export const allRows = (tensor: string, rows: number, more?: Partial<Part>): Part =>
  someRows(tensor, rows, [0, rows], more);
export const zeroRows = (rows: number, more?: Partial<Part>): Part => ({ tensorRows: 0, firstRow: 0, rows, ...more });

/** A matrix of an encoder's, under its name. */
export const wholeMatrix = (name: string, rows: number, inFeatures: number): MatrixSpec => ({
  name,
  inFeatures,
  parts: [allRows(`${name}.weight`, rows)],
  precision: 'unquantised',
});

/** A vector that every rank of a layer holds whole. */
export const wholeVector = (name: string, tensor: string, length: number, plus?: number): VectorSpec => ({
  name,
  parts: [allRows(tensor, length)],
  plus,
});

/** The embedding table's and the output head's rows: the same object where a tied model's rank holds the same rows of both. */
export function vocabMaps(
  config: Pick<ModelConfig, 'hiddenSize' | 'vocabSize' | 'tieWordEmbeddings' | 'tensors'>,
  slice: { readonly embeddingRows?: Span; readonly headRows?: Span },
): { readonly embedding: VocabSpec | undefined; readonly head: VocabSpec | undefined } {
  const { hiddenSize, vocabSize, tieWordEmbeddings, tensors } = config;
  const { embeddingRows, headRows } = slice;
  const vocab = (name: string, tensor: string, rows: Span): VocabSpec => ({
    matrix: { name, inFeatures: hiddenSize, parts: [someRows(tensor, vocabSize, rows)] },
    firstRow: rows[0],
  });
  const table = `${tensors.embedding}.weight`;
  const embedding = embeddingRows && vocab('embed_tokens', table, embeddingRows);
  if (!headRows) return { embedding, head: undefined };
  const tied = tieWordEmbeddings && embeddingRows?.[0] === headRows[0] && embeddingRows[1] === headRows[1];
  const head = tied ? embedding : vocab('lm_head', tieWordEmbeddings ? table : `${tensors.head}.weight`, headRows);
  return { embedding, head };
}

/** Columns [first, end) of its tensors that a matrix of a type packs: whole blocks of it. */
export const packedColumns = ({ inFeatures, segments }: MatrixSpec, type: MatrixType): Span => {
  if (!segments) return [0, inFeatures];
  const { start, end } = weightColumns(inFeatures, segments, blockElements(type));
  return [start, end];
};

export const paddedRows = ({ rows, padTo = 1 }: Part): number => alignUp(rows, padTo);

export const specRows = ({ parts }: Spec): number => sum(parts.map(paddedRows));

export const vectorLength = (spec: VectorSpec): number => alignUp(specRows(spec) * (spec.columns ?? 1), 32);

/** Some parts of a matrix that have one type, one behind the other. */
export interface TypedRun {
  readonly spec: MatrixSpec;
  readonly type: MatrixType;
  readonly firstRow: number;
}

/**
 * A matrix as its types cut it. Rows of zeros are of the type before them. Of experts, whose shards hold whole ones, all gates stand before
 * all ups where they are of two types.
 */
export function typedRuns(spec: MatrixSpec, types: WeightTypes): readonly [TypedRun, ...TypedRun[]] {
  const { granule, precision, parts: all } = spec;
  const runs: { readonly type: MatrixType; readonly parts: Part[]; rows: number }[] = [];
  for (const part of all) {
    const type = typeOf(precision, part.tensor, types);
    const run = (granule === undefined ? runs.slice(-1) : runs).find(
      (before) => part.tensor === undefined || (before.type === type && before.rows % factorRows(type) === 0),
    );
    if (run) {
      run.parts.push(part);
      run.rows += paddedRows(part);
    } else runs.push({ type, parts: [part], rows: paddedRows(part) });
  }
  let firstRow = 0;
  const [first, ...others] = runs.map(({ type, parts, rows }): TypedRun => {
    const before = firstRow;
    firstRow += rows;
    const own = granule !== undefined && { granule: (granule * parts.length) / all.length };
    return { spec: { ...spec, parts, ...own }, type, firstRow: before };
  });
  return first && others.length > 0 ? [first, ...others] : [{ spec, type: matrixType(spec, types), firstRow: 0 }];
}

/** How a matrix is stored whose tensors have one type. */
export const matrixType = ({ precision, parts }: MatrixSpec, types: WeightTypes): MatrixType =>
  typeOf(precision, parts.find(({ tensor }) => tensor !== undefined)?.tensor, types);

function typeOf(precision: MatrixSpec['precision'], tensor: string | undefined, types: WeightTypes): MatrixType {
  if (precision === 'f32' || precision === 'mxfp4') return precision;
  const type = typeOfTensor(types, tensor);
  return precision === 'unquantised' && isQuantised(type) ? 'f16' : type;
}

export type Spec = MatrixSpec | VectorSpec;
export const isMatrixSpec = (spec: Spec): spec is MatrixSpec => 'inFeatures' in spec;
export const isSpec = (part: object): part is Spec => 'parts' in part && 'name' in part;

/** The specs in a part of a model's map, in its order, each once. */
export function specsIn(part: unknown, found = new Set<Spec>()): Set<Spec> {
  if (typeof part !== 'object' || part === null) return found;
  if (isSpec(part)) return found.add(part);
  for (const each of Object.values(part)) specsIn(each, found);
  return found;
}

/** Every checkpoint tensor that the specs read: the shape it must have, and how many of its numbers are read for these types. */
export function expectedTensors(
  specs: Iterable<Spec>,
  types: WeightTypes = 'f32',
): Map<string, { readonly shape: readonly number[]; readonly numbers: number }> {
  const tensors = new Map<string, { shape: readonly number[]; numbers: number }>();
  const add = (parts: readonly Part[], columns: number, axes: readonly number[]): void => {
    for (const { tensor, tensorRows, rows } of parts) {
      if (tensor === undefined) continue;
      const before = tensors.get(tensor)?.numbers ?? 0;
      tensors.set(tensor, { shape: [tensorRows, ...axes], numbers: before + rows * columns });
    }
  };
  for (const spec of specs) {
    if (!isMatrixSpec(spec)) add(spec.parts, spec.columns ?? 1, spec.columns === undefined ? [] : [1, spec.columns]);
    else {
      for (const { spec: run, type } of typedRuns(spec, types))
        add(run.parts, spanLength(packedColumns(run, type)), [spec.inFeatures]);
    }
  }
  return tensors;
}
