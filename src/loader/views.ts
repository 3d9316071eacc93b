import { DOUBLED_E2M1, mxfp4Scale } from './convert.js';
import { type RowSlice, storedSlice } from './slices.js';
import type { Source } from './source.js';
import type { TensorEntry } from './tensor_index.js';
import { matrixShape, storedRows } from './tensor_reader.js';

/** Rows and columns [start, end) that are asked for. */
interface Asked {
  readonly source: Source;
  readonly columns: readonly [start: number, end: number];
  readonly width: number;
  readonly rows: readonly [start: number, end: number];
  readonly count: number;
  readonly signal: AbortSignal | undefined;
}

/** The tensor whose rows don't lie in a file as they are read. @param read gives what writes those asked for as f32 */
function view(entry: TensorEntry, read: (asked: Asked) => Promise<(out: Float32Array) => void>): TensorEntry {
  const shape = matrixShape(entry);
  const rowBytes = (entry.end - entry.start) / shape.rows;
  return {
    ...entry,
    isMade: true,
    slice(source, ...columns): RowSlice {
      const width = columns[1] - columns[0];
      return {
        name: entry.name,
        width,
        rowBytes,
        async read(...[start, end, signal]) {
          const count = end - start;
          const bytes = (count * rowBytes * width) / shape.columns;
          if (count === 0) return { bytes, convertTo: () => {} };
          return { bytes, convertTo: await read({ source, columns, width, rows: [start, end], count, signal }) };
        },
      };
    },
  };
}

/** Rows [first, end) of stored columns, as f32 once they are wanted. */
async function stored(
  entry: TensorEntry,
  { source, signal }: Asked,
  [from, to]: readonly [number, number],
  first: number,
  end: number,
): Promise<() => Float32Array> {
  const piece = await storedSlice(source, storedRows(entry), from, to).read(first, end, signal);
  return () => {
    const values = new Float32Array((end - first) * (to - from));
    piece.convertTo(values);
    return values;
  };
}

/** Every `step`-th from `first` on. */
interface Every {
  readonly first: number;
  readonly step: number;
}

/** Where the last of `count` ends, counted from the first. */
const spanOf = (count: number, step: number): number => Math.max(0, (count - 1) * step + 1);

/**
 * Row i is column first + i step of a stored matrix [columns, rows], of `length` or as many as there are. All its rows are read for each
 * piece.
 */
export function transposedView(
  entry: TensorEntry,
  { first, step, length }: Every & { readonly length?: number },
): TensorEntry {
  const { rows, columns } = matrixShape(entry);
  const made = length ?? columns / step;
  const end = entry.start + ((entry.end - entry.start) * made) / columns;
  return view({ ...entry, shape: [made, rows], end }, async (asked) => {
    const { columns: wanted, width, count } = asked;
    const span = spanOf(count, step);
    const from = first + asked.rows[0] * step;
    const whole = await stored(entry, asked, [from, from + span], ...wanted);
    return (out) => {
      const values = whole();
      for (let row = 0; row < count; row++) {
        for (let column = 0; column < width; column++) out[row * width + column] = values[column * span + row * step]!;
      }
    };
  });
}

/** Element i is element first + i step of a stored tensor, `length` of them. */
export function vectorView(
  entry: TensorEntry,
  name: string,
  { first, step, length }: Every & { readonly length: number },
): TensorEntry {
  const { rows, columns } = matrixShape(entry);
  const end = entry.start + (length * (entry.end - entry.start)) / (rows * columns);
  return { ...transposedView({ ...entry, name, shape: [1, rows * columns] }, { first, step }), shape: [length], end };
}

/** In an MXFP4 block: its elements, and the bytes that two of them share. */
const [BLOCK, BLOCK_BYTES] = [32, 16];

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
  const blocksInRow = scales.shape.at(-1) ?? 0;
  const { file } = blocks;
  const shape = [rows, blocksInRow * BLOCK];
  const end = rows * blocksInRow * (BLOCK_BYTES + 1);
  return view({ name, file, dtype: 'MXFP4', shape, start: 0, end }, async (asked) => {
    const { source, columns, count, signal } = asked;
    const from = first + asked.rows[0] * step;
    const read = ({ file: of, start }: TensorEntry, each: number): Promise<Uint8Array> =>
      source.read(of, start + from * each, start + (from + spanOf(count, step)) * each, signal);
    const [codes, exponents] = await Promise.all([read(blocks, blocksInRow * BLOCK_BYTES), read(scales, blocksInRow)]);
    return (out) => {
      let to = 0;
      for (let row = 0; row < count; row++) {
        for (let column = columns[0]; column < columns[1];) {
          const block = row * step * blocksInRow + Math.floor(column / BLOCK);
          const scale = mxfp4Scale(exponents[block]!);
          const last = Math.min(columns[1], (Math.floor(column / BLOCK) + 1) * BLOCK);
          for (; column < last; column++) {
            const byte = codes[block * BLOCK_BYTES + ((column % BLOCK) >> 1)]!;
            out[to++] = DOUBLED_E2M1[(column & 1) === 0 ? byte & 15 : byte >> 4]! * scale;
          }
        }
      }
    };
  });
}

/** Rows [first, first + shape[0]) of a tensor seen as a matrix: one expert of a stack [experts, rows, columns]. */
export function rowsView(entry: TensorEntry, name: string, first: number, rows: number): TensorEntry {
  const shape = matrixShape(entry);
  const rowBytes = (entry.end - entry.start) / shape.rows;
  const start = entry.start + first * rowBytes;
  return { ...entry, name, shape: [rows, shape.columns], start, end: start + rows * rowBytes };
}

/**
 * The tensor with row i of every group of `order.length` rows being row order[i] of that group. Whole groups are read. Rows stay what
 * they are, blocks too.
 */
export function orderedView(entry: TensorEntry, order: readonly number[]): TensorEntry {
  const group = order.length;
  return {
    ...entry,
    slice(source, ...columns): RowSlice {
      const whole = storedSlice(source, storedRows(entry), ...columns);
      const { width, blocks } = whole;
      return {
        ...whole,
        async read(start, end, signal) {
          const first = start - (start % group);
          const last = start === end ? first : Math.ceil(end / group) * group;
          const piece = await whole.read(first, last, signal);
          const put = <T extends Float32Array | Uint8Array>(rows: T, length: number, out: T): void => {
            for (let row = start; row < end; row++) {
              const from = (row - (row % group) + order[row % group]! - first) * length;
              out.set(rows.subarray(from, from + length), (row - start) * length);
            }
          };
          return {
            bytes: (piece.bytes * (end - start)) / Math.max(1, last - first),
            convertTo(out) {
              const values = new Float32Array((last - first) * width);
              piece.convertTo(values);
              put(values, width, out);
            },
            ...(blocks && {
              copyTo(out: Uint8Array) {
                const bytes = new Uint8Array((last - first) * blocks.rowBytes);
                piece.copyTo?.(bytes);
                put(bytes, blocks.rowBytes, out);
              },
            }),
          };
        },
      };
    },
  };
}

/** The tensor with column i being column order[i]. Whole rows are read. */
export function columnsView(entry: TensorEntry, order: readonly number[]): TensorEntry {
  return view(entry, async (asked) => {
    const { columns, width, count } = asked;
    const whole = await stored(entry, asked, [0, order.length], ...asked.rows);
    return (out) => {
      const values = whole();
      for (let row = 0; row < count; row++) {
        for (let column = 0; column < width; column++)
          out[row * width + column] = values[row * order.length + order[columns[0] + column]!]!;
      }
    };
  });
}

/**
 * Rows are pieces of `width`, one behind the other: the tensor whose pieces are the sums of `group` neighbours each, and of the same of
 * `others`, which are as large.
 */
export function summedView(
  entry: TensorEntry,
  group: number,
  width: number,
  others: readonly TensorEntry[] = [],
): TensorEntry {
  const { rows, columns } = matrixShape(entry);
  const end = entry.start + (entry.end - entry.start) / group;
  return view({ ...entry, shape: [rows, columns / group], end }, async (asked) => {
    const [first, last] = asked.columns;
    const all = [entry, ...others].map((each) => stored(each, asked, [0, columns], ...asked.rows));
    const wholes = await Promise.all(all);
    return (out) => {
      const values = wholes.map((whole) => whole());
      let to = 0;
      for (let row = 0; row < asked.count; row++) {
        for (let column = first; column < last; column++) {
          const from = row * columns + Math.floor(column / width) * group * width + (column % width);
          let sum = 0;
          for (const each of values) for (let piece = 0; piece < group; piece++) sum += each[from + piece * width]!;
          out[to++] = sum;
        }
      }
    };
  });
}

/**
 * kv_b_proj [heads * (nope + v), latent] of the two halves that llama.cpp cuts it into: keys [heads, latent, nope] (transposed)
 * and values [heads, v, latent]. A head whose key rows are asked for is read whole.
 */
export function absorbedView(name: string, keys: TensorEntry, values: TensorEntry): TensorEntry {
  const [heads, latent, nope] = keys.shape as readonly [number, number, number];
  const headRows = nope + (values.shape[1] ?? 0);
  const { file, dtype } = keys;
  const end = keys.end - keys.start + values.end - values.start;
  return view({ name, file, dtype, shape: [heads * headRows, latent], start: 0, end }, async (asked) => {
    const { columns, width } = asked;
    const [rowStart, rowEnd] = asked.rows;
    // Key rows before a row are those of the heads before, and of its own head at most all.
    const keysBefore = (row: number): number => Math.floor(row / headRows) * nope + Math.min(row % headRows, nope);
    const valuesBefore = (row: number): number => row - keysBefore(row);
    const [keyStart, keyEnd] = [keysBefore(rowStart), keysBefore(rowEnd)];
    const firstHead = Math.floor(keyStart / nope);
    const endHead = keyStart === keyEnd ? firstHead : Math.ceil(keyEnd / nope);
    const valueStart = valuesBefore(rowStart);
    const [readKeys, readValues] = await Promise.all([
      stored(keys, asked, [0, nope], firstHead * latent, endHead * latent),
      stored(values, asked, columns, valueStart, valuesBefore(rowEnd)),
    ]);
    return (out) => {
      const [transposed, below] = [readKeys(), readValues()];
      for (let row = rowStart; row < rowEnd; row++) {
        const to = (row - rowStart) * width;
        const inHead = row % headRows;
        if (inHead >= nope) {
          const from = (valuesBefore(row) - valueStart) * width;
          out.set(below.subarray(from, from + width), to);
          continue;
        }
        const head = Math.floor(row / headRows) - firstHead;
        for (let c = 0; c < width; c++) out[to + c] = transposed[(head * latent + columns[0] + c) * nope + inHead]!;
      }
    };
  });
}
