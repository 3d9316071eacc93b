import { didYouMean, formatError, known, throwIfAborted, unsupportedError, usageError } from '../base/errors.js';
import { BLOCK_TYPES, blockOf, type BlockType, isBlockType, isReadable, type ReadableType } from './dtype.js';
import { type RawPiece, type RowSlice, type SliceBlocks, storedSlice, type StoredRows } from './slices.js';
import type { Source } from './source.js';
import { readTensorIndex, type TensorEntry, type TensorIndex } from './tensor_index.js';

export interface ReadRowsOptions {
  /** Columns [begin, end) only. Of a quantised tensor whole blocks are read, whatever part of them is asked for. */
  readonly columns?: readonly [number, number] | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface StreamRowsOptions extends ReadRowsOptions {
  readonly rowStart?: number | undefined;
  readonly rowEnd?: number | undefined;
  /** Every piece but the last has a multiple of this many rows; 32, the rows of a packed tile. */
  readonly tileRows?: number | undefined;
  /** About how many checkpoint bytes a piece has; 8 MiB. Two pieces are in memory at once. */
  readonly pieceBytes?: number | undefined;
  /** Called with the checkpoint bytes of each piece when it is handed over; they add up to the slice's size. */
  readonly onBytes?: ((bytes: number) => void) | undefined;
}

/** Rows [firstRow, firstRow + rows) of a tensor, counted in the tensor; `data` is [rows, columns] row-major. */
export interface RowPiece {
  readonly firstRow: number;
  readonly rows: number;
  readonly data: Float32Array<ArrayBuffer>;
}

/** The same of blocks as they are stored: those that the columns lie in, row by row. */
export interface BlockPiece extends Omit<RowPiece, 'data'> {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly blocks: SliceBlocks;
  /** As of `RawPiece`. */
  readonly factor: number | undefined;
}

type StreamOptions = Pick<StreamRowsOptions, 'signal' | 'onBytes'> & {
  readonly [Name in 'rowStart' | 'rowEnd' | 'tileRows' | 'pieceBytes']: number;
};

/**
 * Tensors of a checkpoint as f32 matrices, a slice of rows (and columns) at a time: only the bytes needed are read.
 * A tensor [.., rows, columns] is seen as a matrix of its last axis: an expert stack [E, N, K] has E * N rows of K columns.
 * A vector [n] is n rows of one column, a scalar one of one.
 */
export class TensorReader {
  /** Has shapes and no contents: whoever makes something of rows may leave that out. */
  readonly isBlank: boolean = false;

  constructor(
    readonly source: Source,
    readonly index: TensorIndex,
  ) {}

  /** Reads the checkpoint's headers. Throws `io` when it can't be read, `format` when it is wrong. */
  static async open(source: Source, signal?: AbortSignal): Promise<TensorReader> {
    return new TensorReader(source, await readTensorIndex(source, signal));
  }

  has(name: string): boolean {
    return this.index.tensors.has(name);
  }

  /** The tensor `name` with exactly that shape; throws `format` when it is missing (naming the nearest) or has another shape. */
  expectTensor(name: string, shape: readonly number[]): TensorEntry {
    const { tensors, files } = this.index;
    const entry = tensors.get(name);
    if (!entry) {
      throw formatError(
        `the checkpoint (${files.map((file) => file.name).join(', ')}) has no tensor '${name}'; expected one of shape [${shape.join(', ')}].` +
          didYouMean(name, tensors.keys()),
      );
    }
    if (entry.shape.join() === shape.join()) return entry;
    throw formatError(
      `tensor '${name}' in ${entry.file} has shape [${entry.shape.join(', ')}]; expected [${shape.join(', ')}] from the configuration`,
    );
  }

  entry(name: string): TensorEntry {
    const entry = this.index.tensors.get(name);
    if (entry) return entry;
    throw formatError(
      `the checkpoint of ${this.source.name} has no tensor '${name}'.${didYouMean(name, this.index.tensors.keys())}`,
    );
  }

  byteLength(name: string): number {
    const { start, end } = this.entry(name);
    return end - start;
  }

  /** The whole tensor, flat. For vectors and other small ones. */
  async readVector(
    name: string,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<Float32Array<ArrayBuffer>> {
    return this.readRows(name, 0, matrixShape(this.entry(name)).rows, options);
  }

  /** Rows [rowStart, rowEnd) as f32 [rows, columns], row-major. Throws `unsupported` for a type that isn't read as f32. */
  async readRows(
    name: string,
    rowStart: number,
    rowEnd: number,
    options: ReadRowsOptions = {},
  ): Promise<Float32Array<ArrayBuffer>> {
    const slice = this.#slice(name, rowStart, rowEnd, options.columns);
    const out = new Float32Array((rowEnd - rowStart) * slice.width);
    const piece = await slice.read(rowStart, rowEnd, options.signal);
    piece.convertTo(out);
    return out;
  }

  /**
   * Rows in ascending order, in pieces of whole tiles; the next piece is being read while the caller uses this one.
   * `data` is used again: it is valid until the next piece is asked for, so copy what must stay.
   */
  streamRows(name: string, options: StreamRowsOptions = {}): AsyncGenerator<RowPiece, void, void> {
    const [slice, stream] = this.#streamed(name, options);
    return streamPieces(slice, stream, slice.width, Float32Array, (piece, out) => piece.convertTo(out));
  }

  /** The same of blocks, of a tensor that has a `storedBlocks`. */
  async *streamBlocks(name: string, options: StreamRowsOptions = {}): AsyncGenerator<BlockPiece, void, void> {
    const [slice, stream] = this.#streamed(name, options);
    const blocks = known(slice.blocks, 'blocks of a tensor');
    let last: RawPiece | undefined;
    const copy = (raw: RawPiece, out: Uint8Array): void => (last = raw).copyTo?.(out);
    for await (const piece of streamPieces(slice, stream, blocks.rowBytes, Uint8Array, copy))
      yield { ...piece, blocks, factor: last?.factor };
  }

  #streamed(name: string, options: StreamRowsOptions): [RowSlice, StreamOptions] {
    const {
      rowStart = 0,
      rowEnd = matrixShape(this.entry(name)).rows,
      tileRows = 32,
      pieceBytes = 8 * 1024 * 1024,
    } = options;
    const slice = this.#slice(name, rowStart, rowEnd, options.columns);
    if (!Number.isSafeInteger(tileRows) || tileRows < 1)
      throw usageError(`tileRows ${tileRows}; expected a positive integer`);
    if (!(pieceBytes > 0)) throw usageError(`pieceBytes ${pieceBytes}; expected a positive number`);
    return [slice, { ...options, rowStart, rowEnd, tileRows, pieceBytes }];
  }

  #slice(name: string, rowStart: number, rowEnd: number, columns: readonly [number, number] | undefined): RowSlice {
    const entry = this.entry(name);
    const shape = matrixShape(entry);
    const [columnStart, columnEnd] = columns ?? [0, shape.columns];
    checkSpan(name, 'rows', rowStart, rowEnd, shape.rows);
    checkSpan(name, 'columns', columnStart, columnEnd, shape.columns);
    if (entry.slice) return entry.slice(this.source, columnStart, columnEnd);
    return storedSlice(this.source, storedRows(entry), columnStart, columnEnd);
  }
}

/**
 * In memory at once: this piece as f32, the bytes of the next one, and while it is converted nothing more. `width`: what a row takes of
 * `data`.
 */
async function* streamPieces<Data extends Float32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>>(
  slice: RowSlice,
  options: StreamOptions,
  width: number,
  Form: new (length: number) => Data,
  write: (piece: RawPiece, to: Data) => void,
): AsyncGenerator<{ firstRow: number; rows: number; data: Data }, void, void> {
  const { rowStart, rowEnd, tileRows, pieceBytes, onBytes } = options;
  const { rowBytes } = slice;
  const pieceRows = Math.max(1, Math.floor(pieceBytes / Math.max(1, rowBytes) / tileRows)) * tileRows;
  // Stops the read ahead when the caller fails or leaves early.
  const left = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, left.signal]) : left.signal;
  const what = `reading tensor '${slice.name}'`;

  const read = (firstRow: number): Promise<RawPiece> | undefined => {
    if (firstRow >= rowEnd) return undefined;
    const piece = slice.read(firstRow, Math.min(firstRow + pieceRows, rowEnd), signal);
    piece.catch(() => {}); // heard when it is awaited below; until then it isn't unhandled
    return piece;
  };

  const out = new Form(Math.min(pieceRows, rowEnd - rowStart) * width);
  let ahead = read(rowStart);
  try {
    for (let firstRow = rowStart; firstRow < rowEnd; firstRow += pieceRows) {
      throwIfAborted(options.signal, what);
      const raw = await ahead!;
      const rows = Math.min(pieceRows, rowEnd - firstRow);
      const data = out.subarray(0, rows * width) as Data;
      write(raw, data);
      ahead = read(firstRow + pieceRows);
      onBytes?.(raw.bytes);
      yield { firstRow, rows, data };
    }
  } finally {
    left.abort();
  }
}

export function matrixShape({ shape }: { readonly shape: readonly number[] }): { rows: number; columns: number } {
  if (shape.length < 2) return { rows: shape[0] ?? 1, columns: 1 };
  return { rows: shape.slice(0, -1).reduce((product, size) => product * size, 1), columns: shape.at(-1) ?? 1 };
}

/** The type of a tensor's blocks, where they can be had as they are stored. */
export function storedBlocks(entry: TensorEntry | undefined): BlockType | undefined {
  const { dtype, isMade = false } = entry ?? { dtype: 'F32' };
  return isMade || !isBlockType(dtype) ? undefined : dtype;
}

/** The rows of a tensor as they lie in its file. Throws `unsupported` for a type that isn't read as f32. */
export function storedRows(entry: TensorEntry): StoredRows {
  const { name, file, start } = entry;
  const { columns } = matrixShape(entry);
  return { name, file, start, columns, type: readableType(entry, columns) };
}

function readableType({ name, file, dtype }: TensorEntry, columns: number): ReadableType {
  if (isReadable(dtype)) {
    const { elements } = blockOf(dtype);
    if (columns % elements === 0) return dtype;
    throw unsupportedError(
      `tensor '${name}' in ${file} is ${dtype} with rows of ${columns}; expected a multiple of ${elements}`,
    );
  }
  const quantised = dtype.startsWith('F8') ? ' (an FP8 checkpoint; use the BF16 one of the same model)' : '';
  throw unsupportedError(
    `tensor '${name}' in ${file} is ${dtype}${quantised}; expected F32, F16, BF16, F64 or of GGUF ${Object.keys(BLOCK_TYPES).join(', ')}`,
  );
}

function checkSpan(name: string, what: string, begin: number, end: number, size: number): void {
  if (Number.isSafeInteger(begin) && Number.isSafeInteger(end) && 0 <= begin && begin <= end && end <= size) return;
  throw usageError(`tensor '${name}': ${what} ${begin} to ${end}; expected a span of its ${size} ${what}`);
}
