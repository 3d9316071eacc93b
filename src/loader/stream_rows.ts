import { throwIfAborted } from '../base/errors.js';
import type { RawPiece, RowSlice } from './slices.js';
import type { StreamRowsOptions } from './tensor_reader.js';

/** Rows [firstRow, firstRow + rows) of a tensor, counted in the tensor; `data` is [rows, columns] row-major. */
export interface RowPiece {
  readonly firstRow: number;
  readonly rows: number;
  readonly data: Float32Array<ArrayBuffer>;
}

type StreamOptions = Pick<StreamRowsOptions, 'signal' | 'onBytes'> & {
  readonly [Name in 'rowStart' | 'rowEnd' | 'tileRows' | 'pieceBytes']: number;
};

/** In memory at once: this piece as f32, the bytes of the next one, and while it is converted nothing more. */
export async function* streamPieces(slice: RowSlice, options: StreamOptions): AsyncGenerator<RowPiece, void, void> {
  const { rowStart, rowEnd, tileRows, pieceBytes, onBytes } = options;
  const { width, rowBytes } = slice;
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

  const out = new Float32Array(Math.min(pieceRows, rowEnd - rowStart) * width);
  let ahead = read(rowStart);
  try {
    for (let firstRow = rowStart; firstRow < rowEnd; firstRow += pieceRows) {
      throwIfAborted(options.signal, what);
      const raw = await ahead!;
      const rows = Math.min(pieceRows, rowEnd - firstRow);
      const data = out.subarray(0, rows * width);
      raw.convertTo(data);
      ahead = read(firstRow + pieceRows);
      onBytes?.(raw.bytes);
      yield { firstRow, rows, data };
    }
  } finally {
    left.abort();
  }
}
