import { formatError } from '../base/errors.js';
import { type RowSlice, storedSlice } from './slices.js';
import type { Source } from './source.js';
import type { TensorEntry } from './tensor_index.js';
import { storedRows } from './tensor_reader.js';

/** The tensor times a number, the f32 at byte `at` of a file. Blocks stay what they are, and have it beside them. */
export function scaledView(entry: TensorEntry, file: string, at: number): TensorEntry {
  let factor: number | undefined;
  const read = async (source: Source, signal: AbortSignal | undefined): Promise<number> => {
    const bytes = await source.read(file, at, at + 4, signal);
    const value = new DataView(bytes.buffer, bytes.byteOffset).getFloat32(0, true);
    if (Number.isFinite(value)) return value;
    throw formatError(`the factor of tensor '${entry.name}' in ${file} is ${value}: the file is damaged`);
  };
  return {
    ...entry,
    slice(source, ...columns): RowSlice {
      const plain = entry.slice?.(source, ...columns) ?? storedSlice(source, storedRows(entry), ...columns);
      return {
        ...plain,
        async read(start, end, signal) {
          const piece = await plain.read(start, end, signal);
          const own = (factor ??= await read(source, signal));
          return {
            ...piece,
            factor: own,
            convertTo(out) {
              piece.convertTo(out);
              for (let i = 0; i < (end - start) * plain.width; i++) out[i]! *= own;
            },
          };
        },
      };
    },
  };
}
