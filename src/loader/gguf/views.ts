import { type RawPiece, type RowSlice, storedSlice } from '../slices.js';
import type { TensorEntry } from '../tensor_index.js';
import { matrixShape, storedRows } from '../tensor_reader.js';

/** Rows [first, first + shape[0]) of a tensor seen as a matrix: one expert of a stack [experts, rows, columns]. */
export function rowsView(entry: TensorEntry, name: string, first: number, rows: number): TensorEntry {
  const shape = matrixShape(entry);
  const rowBytes = (entry.end - entry.start) / shape.rows;
  const start = entry.start + first * rowBytes;
  return { ...entry, name, shape: [rows, shape.columns], start, end: start + rows * rowBytes };
}

/** The tensor with row i of every group of `order.length` rows being row order[i] of that group. Whole groups are read. */
export function orderedView(entry: TensorEntry, order: readonly number[]): TensorEntry {
  const group = order.length;
  return {
    ...entry,
    slice(source, columnStart, columnEnd): RowSlice {
      const inner = storedSlice(source, storedRows(entry), columnStart, columnEnd);
      const { width } = inner;
      return {
        ...inner,
        async read(rowStart, rowEnd, signal): Promise<RawPiece> {
          if (rowStart === rowEnd) return inner.read(rowStart, rowEnd, signal);
          const first = rowStart - (rowStart % group);
          const end = Math.ceil(rowEnd / group) * group;
          const piece = await inner.read(first, end, signal);
          return {
            bytes: (piece.bytes * (rowEnd - rowStart)) / (end - first),
            convertTo(out) {
              const stored = new Float32Array((end - first) * width);
              piece.convertTo(stored);
              for (let row = rowStart; row < rowEnd; row++) {
                const from = row - (row % group) + order[row % group]! - first;
                out.set(stored.subarray(from * width, (from + 1) * width), (row - rowStart) * width);
              }
            },
          };
        },
      };
    },
  };
}

/** The tensor with column i being column order[i]. Whole rows are read. */
export function columnsView(entry: TensorEntry, order: readonly number[]): TensorEntry {
  return {
    ...entry,
    slice(source, columnStart, columnEnd): RowSlice {
      const inner = storedSlice(source, storedRows(entry), 0, order.length);
      const width = columnEnd - columnStart;
      return {
        ...inner,
        width,
        async read(rowStart, rowEnd, signal): Promise<RawPiece> {
          const piece = await inner.read(rowStart, rowEnd, signal);
          return {
            bytes: (piece.bytes * width) / order.length,
            convertTo(out) {
              const stored = new Float32Array((rowEnd - rowStart) * order.length);
              piece.convertTo(stored);
              for (let row = 0; row < rowEnd - rowStart; row++) {
                for (let column = 0; column < width; column++)
                  out[row * width + column] = stored[row * order.length + order[columnStart + column]!]!;
              }
            },
          };
        },
      };
    },
  };
}

/**
 * kv_b_proj [heads * (nope + v), latent] of the two halves that llama.cpp cuts it into: keys [heads, latent, nope] (transposed)
 * and values [heads, v, latent]. A head whose key rows are asked for is read whole.
 */
export function absorbedView(name: string, keys: TensorEntry, values: TensorEntry): TensorEntry {
  const [heads, latent, nope] = keys.shape as readonly [number, number, number];
  const v = values.shape[1]!;
  const headRows = nope + v;
  const bytes = keys.end - keys.start + values.end - values.start;
  return {
    name,
    file: keys.file,
    dtype: keys.dtype,
    shape: [heads * headRows, latent],
    start: 0,
    end: bytes,
    slice(source, columnStart, columnEnd): RowSlice {
      const width = columnEnd - columnStart;
      const keySlice = storedSlice(source, storedRows(keys), 0, nope);
      const valueSlice = storedSlice(source, storedRows(values), columnStart, columnEnd);
      const rowBytes = bytes / (heads * headRows);
      return {
        name,
        width,
        rowBytes,
        async read(rowStart, rowEnd, signal): Promise<RawPiece> {
          // Key rows before a row are those of the heads before, and of its own head at most all.
          const keysBefore = (row: number): number =>
            Math.floor(row / headRows) * nope + Math.min(row % headRows, nope);
          const valuesBefore = (row: number): number => row - keysBefore(row);
          const [keyStart, keyEnd] = [keysBefore(rowStart), keysBefore(rowEnd)];
          const firstHead = Math.floor(keyStart / nope);
          const endHead = keyStart === keyEnd ? firstHead : Math.ceil(keyEnd / nope);
          const valueStart = valuesBefore(rowStart);
          const [keyPiece, valuePiece] = await Promise.all([
            keySlice.read(firstHead * latent, endHead * latent, signal),
            valueSlice.read(valueStart, valuesBefore(rowEnd), signal),
          ]);
          return {
            bytes: ((rowEnd - rowStart) * rowBytes * width) / latent,
            convertTo(out) {
              const transposed = new Float32Array((endHead - firstHead) * latent * nope);
              const below = new Float32Array((valuesBefore(rowEnd) - valueStart) * width);
              keyPiece.convertTo(transposed);
              valuePiece.convertTo(below);
              for (let row = rowStart; row < rowEnd; row++) {
                const to = (row - rowStart) * width;
                const inHead = row % headRows;
                if (inHead >= nope) {
                  const from = (valuesBefore(row) - valueStart) * width;
                  out.set(below.subarray(from, from + width), to);
                  continue;
                }
                const head = Math.floor(row / headRows) - firstHead;
                for (let c = 0; c < width; c++)
                  out[to + c] = transposed[(head * latent + columnStart + c) * nope + inHead]!;
              }
            },
          };
        },
      };
    },
  };
}
