import { range } from '../base/lists.js';
import { inParallel } from '../base/waits.js';
import { converter, loadDecoder } from './convert.js';
import { blockOf, type BlockType, isBlockType, type ReadableType } from './dtype.js';
import type { Source } from './source.js';

/** Some columns of a tensor seen as a matrix, read a span of rows at a time. */
export interface RowSlice {
  readonly name: string;
  readonly width: number;
  /** Checkpoint bytes of a whole row. */
  readonly rowBytes: number;
  /** Of quantised rows that can be had as they are stored. */
  readonly blocks?: SliceBlocks | undefined;
  read(rowStart: number, rowEnd: number, signal: AbortSignal | undefined): Promise<RawPiece>;
}

export interface SliceBlocks {
  readonly type: BlockType;
  /** Bytes of a row's. */
  readonly rowBytes: number;
}

/** Rows read but not converted yet. */
export interface RawPiece {
  /** Checkpoint bytes of the rows and columns asked for. */
  readonly bytes: number;
  /** Writes them as f32, row-major, without gaps. */
  convertTo(out: Float32Array): void;
  /** Writes their blocks, without gaps, where the slice has them. */
  copyTo?(out: Uint8Array): void;
  /** Of numbers of these blocks, beside what is in them; default 1. What is converted has it. */
  readonly factor?: number;
}

/** Rows of `columns` elements from byte `start` of a file on, nothing between them. A row is a whole number of blocks. */
export interface StoredRows {
  readonly name: string;
  readonly file: string;
  readonly type: ReadableType;
  readonly start: number;
  readonly columns: number;
}

/** What a range request costs, in bytes that could have been read meanwhile: below this, reading whole rows is cheaper. */
const REQUEST_COST_BYTES = 256 * 1024;
const PARALLEL_REQUESTS = 4;

/**
 * Columns [columnStart, columnEnd) of stored rows. A span of them is read in one range, or, when the unused columns of a row are
 * large, in one range a row; what is read begins and ends on a block.
 */
export function storedSlice(
  source: Source,
  { name, file, type, start, columns }: StoredRows,
  columnStart: number,
  columnEnd: number,
): RowSlice {
  const block = blockOf(type);
  const width = columnEnd - columnStart;
  const rowBytes = (columns / block.elements) * block.bytes;
  const firstByte = Math.floor(columnStart / block.elements) * block.bytes;
  const endByte = Math.ceil(columnEnd / block.elements) * block.bytes;
  /** Elements between the first byte read and the first column. */
  const skip = columnStart % block.elements;

  const blocks = isBlockType(type) ? { type, rowBytes: endByte - firstByte } : undefined;

  const readRow = (row: number, signal: AbortSignal | undefined): Promise<Uint8Array<ArrayBuffer>> =>
    source.read(file, start + row * rowBytes + firstByte, start + row * rowBytes + endByte, signal);

  return {
    name,
    width,
    rowBytes,
    blocks,
    async read(rowStart, rowEnd, signal) {
      const rows = rowEnd - rowStart;
      const bytes = (rows * width * block.bytes) / block.elements;
      if (bytes === 0) return { bytes, convertTo: () => {} };
      await loadDecoder(type);
      if (rowBytes - (endByte - firstByte) > REQUEST_COST_BYTES) {
        const parts = await inParallel(range(rowStart, rowEnd), PARALLEL_REQUESTS, (row) => readRow(row, signal));
        return {
          bytes,
          convertTo: (out) => parts.forEach((part, row) => converter(type, part)(skip, skip + width, out, row * width)),
          copyTo: (out) => parts.forEach((part, row) => out.set(part, row * part.length)),
        };
      }
      // From the first column needed of the first row to the last one needed of the last row.
      const begin = start + rowStart * rowBytes + firstByte;
      const end = start + (rowEnd - 1) * rowBytes + endByte;
      const stored = await source.read(file, begin, end, signal);
      const convert = converter(type, stored);
      return {
        bytes,
        convertTo: (out) => {
          if (width === columns) return convert(0, rows * columns, out, 0);
          for (let row = 0; row < rows; row++) {
            const from = row * columns + skip;
            convert(from, from + width, out, row * width);
          }
        },
        copyTo: (out) => {
          const part = endByte - firstByte;
          for (let row = 0; row < rows; row++)
            out.set(stored.subarray(row * rowBytes, row * rowBytes + part), row * part);
        },
      };
    },
  };
}
