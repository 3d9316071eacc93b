import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Random } from '../base/random.js';
import { SINGLE_FILE } from './tensor_index.js';
import { matrixShape, TensorReader } from './tensor_reader.js';
import { MemorySource } from './testing/memory_source.js';
import { type TensorToWrite, writeSafetensors } from './testing/write_safetensors.js';

async function readerOf(...tensors: TensorToWrite[]): Promise<{ reader: TensorReader; source: MemorySource }> {
  const source = new MemorySource({ [SINGLE_FILE]: writeSafetensors(tensors) });
  const reader = await TensorReader.open(source);
  source.reads.length = 0;
  return { reader, source };
}

/** Integers that every dtype holds exactly, each different from its neighbours. */
const numbers = (length: number): Float32Array => Float32Array.from({ length }, (_, i) => (i * 7) % 251);

const ROWS = 150;
const COLUMNS = 10;
const values = numbers(ROWS * COLUMNS);
const matrix = (dtype: 'F64' | 'F32' | 'F16' | 'BF16' = 'BF16'): TensorToWrite => ({
  name: 'w',
  dtype,
  shape: [ROWS, COLUMNS],
  data: values,
});

/** The expected slice, element by element. */
function slice(rowStart: number, rowEnd: number, [c0, c1]: readonly [number, number]): number[] {
  const out: number[] = [];
  for (let row = rowStart; row < rowEnd; row++)
    for (let column = c0; column < c1; column++) out.push(values[row * COLUMNS + column]!);
  return out;
}

const span = (size: number) =>
  fc.tuple(fc.nat(size), fc.nat(size)).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const);

describe('readRows', () => {
  it.each(['F64', 'F32', 'F16', 'BF16'] as const)('%s: any rows and columns', async (dtype) => {
    const { reader } = await readerOf({ name: 'odd', dtype: 'U8', shape: [3], data: [1, 2, 3] }, matrix(dtype));
    await fc.assert(
      fc.asyncProperty(span(ROWS), span(COLUMNS), async ([r0, r1], columns) => {
        expect([...(await reader.readRows('w', r0, r1, { columns }))]).toEqual(slice(r0, r1, columns));
      }),
      { numRuns: 60 },
    );
  });

  it('reads only the bytes needed, in one range', async () => {
    const { reader, source } = await readerOf(matrix());
    const { start } = reader.entry('w');
    await reader.readRows('w', 3, 5);
    await reader.readRows('w', 3, 5, { columns: [2, 4] });
    await reader.readRows('w', 3, 3);
    expect(source.reads.map((read) => [read.start - start, read.end - start])).toEqual([
      [60, 100],
      [64, 88],
    ]);
  });

  it('reads a range a row when a row has much that is not asked for', async () => {
    const columns = 200_000;
    const wide = numbers(6 * columns);
    const { reader, source } = await readerOf({ name: 'wide', dtype: 'F16', shape: [6, columns], data: wide });
    const rows = await reader.readRows('wide', 1, 6, { columns: [10, 14] });
    expect([...rows]).toEqual(
      [1, 2, 3, 4, 5].flatMap((row) => [...wide.subarray(row * columns + 10, row * columns + 14)]),
    );
    expect(source.reads.map((read) => read.end - read.start)).toEqual([8, 8, 8, 8, 8]);
  });

  it('sees vectors, scalars and stacks as matrices', async () => {
    const { reader } = await readerOf(
      { name: 'vector', dtype: 'F32', shape: [5], data: numbers(5) },
      { name: 'scalar', dtype: 'F32', shape: [], data: [42] },
      { name: 'stack', dtype: 'F32', shape: [2, 3, 4], data: numbers(24) },
      { name: 'empty', dtype: 'F32', shape: [0, 4], data: [] },
    );
    expect(matrixShape(reader.entry('stack'))).toEqual({ rows: 6, columns: 4 });
    expect(await reader.readVector('vector')).toEqual(numbers(5));
    expect([...(await reader.readRows('vector', 1, 3))]).toEqual([7, 14]);
    expect([...(await reader.readVector('scalar'))]).toEqual([42]);
    expect([...(await reader.readRows('stack', 3, 4))]).toEqual([...numbers(24).subarray(12, 16)]);
    expect(await reader.readVector('empty')).toHaveLength(0);
  });

  it('refuses other types, unknown names and spans outside the tensor', async () => {
    const { reader } = await readerOf(
      matrix(),
      { name: 'ids', dtype: 'I64', shape: [1], data: [1] },
      { name: 'fp8', dtype: 'F8_E4M3', shape: [1], data: Uint8Array.of(1) },
    );
    await expect(reader.readVector('ids')).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining('I64'),
    });
    await expect(reader.readVector('fp8')).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining('FP8'),
    });
    await expect(reader.readVector('v')).rejects.toMatchObject({
      code: 'format',
      message: expect.stringContaining("Did you mean 'w'?"),
    });
    for (const [r0, r1] of [
      [-1, 2],
      [0, 151],
      [3, 2],
      [0.5, 2],
    ] as const) {
      await expect(reader.readRows('w', r0, r1)).rejects.toMatchObject({
        code: 'usage',
        message: expect.stringContaining('150 rows'),
      });
    }
    await expect(reader.readRows('w', 0, 1, { columns: [0, 11] })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('10 columns'),
    });
  });
});

describe('streamRows', () => {
  it('joined pieces are the slice, each of whole tiles but the last', async () => {
    const { reader } = await readerOf(matrix());
    await fc.assert(
      fc.asyncProperty(
        span(ROWS),
        span(COLUMNS),
        fc.integer({ min: 1, max: 4000 }),
        fc.constantFrom(1, 8, 32),
        async ([rowStart, rowEnd], columns, pieceBytes, tileRows) => {
          const got: number[] = [];
          let bytes = 0;
          let next = rowStart;
          for await (const piece of reader.streamRows('w', {
            rowStart,
            rowEnd,
            columns,
            pieceBytes,
            tileRows,
            onBytes: (count) => (bytes += count),
          })) {
            expect(piece.firstRow).toBe(next);
            next += piece.rows;
            expect(piece.rows % tileRows === 0 || next === rowEnd).toBe(true);
            expect(piece.data.length).toBe(piece.rows * (columns[1] - columns[0]));
            got.push(...piece.data);
          }
          expect(next).toBe(rowEnd);
          expect(got).toEqual(slice(rowStart, rowEnd, columns));
          expect(bytes).toBe(got.length * 2);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('reads one piece ahead and no more, and keeps one buffer', async () => {
    const { reader, source } = await readerOf(matrix());
    const buffers = new Set<ArrayBuffer>();
    const seen: number[] = [];
    for await (const piece of reader.streamRows('w', { pieceBytes: 640 })) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      buffers.add(piece.data.buffer);
      seen.push(source.reads.length);
    }
    expect(seen).toEqual([2, 3, 4, 5, 5]);
    expect(buffers.size).toBe(1);
  });

  it('stops reading when the caller leaves, the piece on its way too', async () => {
    const { reader, source } = await readerOf(matrix());
    const signals: (AbortSignal | undefined)[] = [];
    const read = source.read.bind(source);
    source.read = (file, start, end, signal) => {
      signals.push(signal);
      return read(file, start, end, signal);
    };
    for await (const piece of reader.streamRows('w', { pieceBytes: 640 })) if (piece.firstRow === 0) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(signals.map((signal) => signal?.aborted)).toEqual([true, true]);
  });

  it('rejects with aborted', async () => {
    const { reader } = await readerOf(matrix());
    const stop = new AbortController();
    const run = async (): Promise<void> => {
      for await (const piece of reader.streamRows('w', { pieceBytes: 640, signal: stop.signal }))
        if (piece.firstRow === 32) stop.abort();
    };
    await expect(run()).rejects.toMatchObject({ code: 'aborted', message: expect.stringContaining('w') });
    await expect(reader.readRows('w', 0, 1, { signal: stop.signal })).rejects.toMatchObject({ code: 'aborted' });
  });

  it('passes a failure of the read ahead on when its piece is due', async () => {
    const { reader, source } = await readerOf(matrix());
    const read = source.read.bind(source);
    let reads = 0;
    source.read = async (...args) => {
      if (++reads === 3) throw new Error('disk on fire');
      return read(...args);
    };
    const rows: number[] = [];
    const run = async (): Promise<void> => {
      for await (const piece of reader.streamRows('w', { pieceBytes: 640 })) {
        rows.push(piece.firstRow);
        await new Promise((resolve) => setTimeout(resolve, 5)); // long enough for an unhandled rejection to end the process
      }
    };
    await expect(run()).rejects.toThrow('disk on fire');
    expect(rows).toEqual([0, 32]);
  });

  it('refuses wrong options at once', async () => {
    const { reader } = await readerOf(matrix());
    expect(() => reader.streamRows('w', { tileRows: 0 })).toThrow('tileRows 0');
    expect(() => reader.streamRows('w', { pieceBytes: 0 })).toThrow('pieceBytes 0');
    expect(() => reader.streamRows('w', { rowEnd: 151 })).toThrow('150 rows');
  });

  it('streams a matrix of many pieces in random data', async () => {
    const random = new Random(7).normals(500 * 64);
    const { reader } = await readerOf({ name: 'r', dtype: 'F32', shape: [500, 64], data: random });
    const got = new Float32Array(random.length);
    for await (const piece of reader.streamRows('r', { pieceBytes: 20_000 })) got.set(piece.data, piece.firstRow * 64);
    expect(got).toEqual(random);
  });
});
