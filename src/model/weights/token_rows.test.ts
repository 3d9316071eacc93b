import { describe, expect, test } from 'vitest';
import type { Source, TensorEntry } from '../../loader/index.js';
import { TensorReader } from '../../loader/index.js';
import { TokenRows } from './token_rows.js';

const COLUMNS = 6;
const ROWS = 2000;
const valueAt = (row: number, column: number): number => row + column / 8;

/** A table in f32, and the rows that were read of it, in order. */
function tableOf(flush?: Source['flush']): { readonly rows: TokenRows; readonly read: [number, number][] } {
  const read: [number, number][] = [];
  const name = 'table.weight';
  const entry: TensorEntry = {
    name,
    file: 'model.safetensors',
    dtype: 'F32',
    shape: [ROWS, COLUMNS],
    start: 0,
    end: ROWS * COLUMNS * 4,
    slice: (_, first, end) => ({
      name,
      width: end - first,
      rowBytes: COLUMNS * 4,
      read: (rowStart, rowEnd) => {
        read.push([rowStart, rowEnd]);
        return Promise.resolve({
          bytes: (rowEnd - rowStart) * COLUMNS * 4,
          convertTo: (out) => {
            for (let i = 0; i < out.length; i++) out[i] = valueAt(rowStart + Math.floor(i / COLUMNS), i % COLUMNS);
          },
        });
      },
    }),
  };
  const source = { name: 'a folder', ...(flush && { flush }) } as unknown as Source;
  const reader = new TensorReader(source, { tensors: new Map([[name, entry]]), totalBytes: 0, files: [] });
  return { rows: new TokenRows(reader, { name, rows: ROWS, columns: COLUMNS, scaleBy: 2 }), read };
}

const expected = (tokens: readonly number[]): number[] =>
  tokens.flatMap((token) => Array.from({ length: COLUMNS }, (_, column) => 2 * valueAt(token, column)));

describe('rows of tokens that stay in the checkpoint', () => {
  test('are read once, in the order of the tokens, however often a token comes', async () => {
    const { rows, read } = tableOf();
    const tokens = [7, 3, 7, 1999, 0, 3];
    expect([...(await rows.read(Uint32Array.from(tokens)))]).toEqual(expected(tokens));
    expect(read).toEqual([0, 3, 7, 1999].map((row) => [row, row + 1]));
    expect([...(await rows.read(Uint32Array.of(1999, 4)))]).toEqual(expected([1999, 4]));
    expect(read.slice(4)).toEqual([[4, 5]]);
    expect((await rows.read(new Uint32Array())).length).toBe(0);
  });

  test('those that were used longest ago are given up first, never those of the call', async () => {
    const { rows, read } = tableOf();
    const all = Array.from({ length: 1500 }, (_, token) => token);
    expect([...(await rows.read(Uint32Array.from(all)))]).toEqual(expected(all));
    read.length = 0;
    expect([...(await rows.read(Uint32Array.of(1499, 0)))]).toEqual(expected([1499, 0]));
    expect(read).toEqual([[0, 1]]);
  });

  test('are read beforehand where the source keeps what it read, and there alone', async () => {
    for (const [flush, bytes] of [
      [undefined, 0],
      [() => Promise.resolve(), ROWS * COLUMNS * 4],
    ] as const) {
      const { rows } = tableOf(flush);
      expect(rows.storedBytes).toBe(bytes);
      let told = 0;
      await rows.store((more) => (told += more), undefined);
      expect(told).toBe(bytes);
    }
  });

  test('a table of another shape is refused', () => {
    const { reader } = tableOf().rows;
    expect(() => new TokenRows(reader, { name: 'table.weight', rows: ROWS, columns: 7, scaleBy: 1 })).toThrow(
      /shape \[2000, 6\]; expected \[2000, 7\]/,
    );
  });
});
