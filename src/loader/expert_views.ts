import { DOUBLED_E2M1, mxfp4Scale } from './gguf/dequantise.js';
import { type RowSlice, storedSlice } from './slices.js';
import type { TensorEntry } from './tensor_index.js';
import { matrixShape, storedRows } from './tensor_reader.js';

/** Every `step`-th from `first` on. */
interface Every {
  readonly first: number;
  readonly step: number;
}

/** In an MXFP4 block: its elements, and the bytes that two of them share. */
const [BLOCK, BLOCK_BYTES] = [32, 16];

/** Row i is column first + i step of a stored matrix [columns, rows]. All its rows are read for each piece. */
export function transposedView(entry: TensorEntry, { first, step }: Every): TensorEntry {
  const stored = matrixShape(entry);
  return {
    ...entry,
    shape: [stored.columns / step, stored.rows],
    end: entry.start + (entry.end - entry.start) / step,
    slice(source, columnStart, columnEnd): RowSlice {
      const width = columnEnd - columnStart;
      const rowBytes = (entry.end - entry.start) / stored.columns;
      return {
        name: entry.name,
        width,
        rowBytes,
        async read(rowStart, rowEnd, signal) {
          const rows = rowEnd - rowStart;
          const span = Math.max(0, (rows - 1) * step + 1);
          const from = first + rowStart * step;
          const inner = await storedSlice(source, storedRows(entry), from, from + span).read(
            columnStart,
            columnEnd,
            signal,
          );
          return {
            bytes: (rows * rowBytes * width) / stored.rows,
            convertTo(out) {
              const whole = new Float32Array(width * span);
              inner.convertTo(whole);
              for (let row = 0; row < rows; row++) {
                for (let column = 0; column < width; column++)
                  out[row * width + column] = whole[column * span + row * step]!;
              }
            },
          };
        },
      };
    },
  };
}

/** Element i is element first + i step of a stored tensor, `length` of them. */
export function vectorView(
  entry: TensorEntry,
  name: string,
  { first, step, length }: Every & { readonly length: number },
): TensorEntry {
  const { rows, columns } = matrixShape(entry);
  const elementBytes = (entry.end - entry.start) / (rows * columns);
  return {
    ...entry,
    name,
    shape: [length],
    end: entry.start + length * elementBytes,
    slice(source, columnStart, columnEnd): RowSlice {
      const flat = storedRows({ ...entry, shape: [rows * columns] });
      const inner = storedSlice(source, flat, columnStart, columnEnd);
      return {
        ...inner,
        name,
        async read(rowStart, rowEnd, signal) {
          const count = rowEnd - rowStart;
          const span = Math.max(0, (count - 1) * step + 1);
          const from = first + rowStart * step;
          const piece = await inner.read(from, from + span, signal);
          return {
            bytes: count * elementBytes,
            convertTo(out) {
              const whole = new Float32Array(span);
              piece.convertTo(whole);
              for (let i = 0; i < count; i++) out[i] = whole[i * step]!;
            },
          };
        },
      };
    },
  };
}

/**
 * An MXFP4 matrix of a checkpoint that has blocks and scales apart: row i is row first + i step of `blocks` u8 [..., columns / 32, 16]
 * (the low half of byte j is element 2j of its block) and of `scales` u8 [..., columns / 32].
 */
export function blocksView(
  name: string,
  blocks: TensorEntry,
  scales: TensorEntry,
  { first, step, rows }: Every & { readonly rows: number },
): TensorEntry {
  const blocksInRow = scales.shape.at(-1)!;
  const rowBytes = blocksInRow * (BLOCK_BYTES + 1);
  const columns = blocksInRow * BLOCK;
  return {
    name,
    file: blocks.file,
    dtype: 'MXFP4',
    shape: [rows, columns],
    start: 0,
    end: rows * rowBytes,
    slice(source, columnStart, columnEnd): RowSlice {
      const width = columnEnd - columnStart;
      return {
        name,
        width,
        rowBytes,
        async read(rowStart, rowEnd, signal) {
          const count = rowEnd - rowStart;
          const bytes = (count * rowBytes * width) / columns;
          if (count === 0) return { bytes, convertTo: () => {} };
          const [from, end] = [first + rowStart * step, first + (rowEnd - 1) * step + 1];
          const read = ({ file, start }: TensorEntry, each: number): Promise<Uint8Array> =>
            source.read(file, start + from * each, start + end * each, signal);
          const [codes, exponents] = await Promise.all([
            read(blocks, blocksInRow * BLOCK_BYTES),
            read(scales, blocksInRow),
          ]);
          return {
            bytes,
            convertTo(out) {
              let to = 0;
              for (let row = 0; row < count; row++) {
                for (let column = columnStart; column < columnEnd;) {
                  const block = row * step * blocksInRow + Math.floor(column / BLOCK);
                  const scale = mxfp4Scale(exponents[block]!);
                  const last = Math.min(columnEnd, (Math.floor(column / BLOCK) + 1) * BLOCK);
                  for (; column < last; column++) {
                    const byte = codes[block * BLOCK_BYTES + ((column % BLOCK) >> 1)]!;
                    out[to++] = DOUBLED_E2M1[(column & 1) === 0 ? byte & 15 : byte >> 4]! * scale;
                  }
                }
              }
            },
          };
        },
      };
    },
  };
}
