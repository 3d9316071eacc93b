import { converter } from './convert.js';
import type { FloatDtype } from './dtype.js';
import type { TensorEntry } from './safetensors_header.js';
import type { Source } from './source.js';

/** Columns [columnStart, columnEnd) of a tensor seen as a matrix of rows of `columns` elements. */
export interface Slice {
  readonly entry: TensorEntry;
  readonly dtype: FloatDtype;
  readonly elementBytes: number;
  readonly columns: number;
  readonly columnStart: number;
  readonly columnEnd: number;
}

/** Rows read but not converted yet. */
export interface RawPiece {
  /** Checkpoint bytes of the rows and columns asked for. */
  readonly bytes: number;
  /** Writes them as f32, row-major, without gaps. */
  convertTo(out: Float32Array): void;
}

/** What a range request costs, in bytes that could have been read meanwhile: below this, reading whole rows is cheaper. */
const REQUEST_COST_BYTES = 256 * 1024;
const PARALLEL_REQUESTS = 4;

/** Reads rows [rowStart, rowEnd): in one range, or, when the unused columns of a row are large, one range a row. */
export async function readPiece(
  source: Source,
  slice: Slice,
  rowStart: number,
  rowEnd: number,
  signal: AbortSignal | undefined,
): Promise<RawPiece> {
  const { entry, elementBytes, columns, columnStart, columnEnd } = slice;
  const width = columnEnd - columnStart;
  const rows = rowEnd - rowStart;
  const rowBytes = columns * elementBytes;
  const bytes = rows * width * elementBytes;
  if (bytes === 0) return { bytes, convertTo: () => {} };
  if ((columns - width) * elementBytes > REQUEST_COST_BYTES) {
    const parts = await readRanges(source, slice, rowStart, rowEnd, signal);
    return {
      bytes,
      convertTo: (out) => parts.forEach((part, row) => converter(slice.dtype, part)(0, width, out, row * width)),
    };
  }
  // From the first column needed of the first row to the last one needed of the last row.
  const begin = entry.start + rowStart * rowBytes + columnStart * elementBytes;
  const end = entry.start + (rowEnd - 1) * rowBytes + columnEnd * elementBytes;
  const convert = converter(slice.dtype, await source.read(entry.file, begin, end, signal));
  return {
    bytes,
    convertTo: (out) => {
      if (width === columns) convert(0, rows * columns, out, 0);
      else for (let row = 0; row < rows; row++) convert(row * columns, row * columns + width, out, row * width);
    },
  };
}

async function readRanges(
  source: Source,
  slice: Slice,
  rowStart: number,
  rowEnd: number,
  signal: AbortSignal | undefined,
) {
  const { entry, elementBytes, columns, columnStart, columnEnd } = slice;
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let next = rowStart;
  const work = async (): Promise<void> => {
    while (next < rowEnd) {
      const row = next++;
      const at = entry.start + row * columns * elementBytes;
      parts[row - rowStart] = await source.read(
        entry.file,
        at + columnStart * elementBytes,
        at + columnEnd * elementBytes,
        signal,
      );
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_REQUESTS }, work));
  return parts;
}
