import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cachedSource, openSource, readJson, type Source, TensorReader } from './index.js';
import { startServer, type TestServer } from './testing/http_server.js';
import { MemoryFolder } from './testing/memory_folder.js';
import { writeSafetensors } from './testing/write_safetensors.js';
import { writeSafetensorsFile } from './testing/write_safetensors_file.js';

// More elements than the writer takes at a time, in a number of rows that is no multiple of a tile.
const SHAPE = [1100, 1000] as const;
const valueAt = (index: number): number => (index % 509) - 200;

let folder: string;
let files: Record<string, Uint8Array<ArrayBuffer>>;
let server: TestServer;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
  const big = {
    name: 'big',
    dtype: 'F16' as const,
    shape: SHAPE,
    fill: (out: Float32Array, first: number) => out.forEach((_, i) => (out[i] = valueAt(first + i))),
  };
  await writeSafetensorsFile(join(folder, 'one.safetensors'), [{ ...big, name: 'small', shape: [3] }, big], {
    format: 'pt',
  });
  await writeFile(
    join(folder, 'two.safetensors'),
    writeSafetensors([{ name: 'norm', dtype: 'BF16', shape: [4], data: [1, 2, 3, 4] }]),
  );
  const weight_map = { small: 'one.safetensors', big: 'one.safetensors', norm: 'two.safetensors' };
  await writeFile(join(folder, 'model.safetensors.index.json'), JSON.stringify({ weight_map }));
  await writeFile(join(folder, 'config.json'), '{"model_type":"llama"}');
  const names = ['one.safetensors', 'two.safetensors', 'model.safetensors.index.json', 'config.json'];
  files = Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, new Uint8Array(await readFile(join(folder, name)))])),
  );
  server = await startServer(files);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const sources: [string, () => Promise<Source>][] = [
  ['a folder', () => openSource(folder)],
  ['a URL', () => openSource(server.url)],
  ['chosen files', () => openSource(Object.entries(files).map(([name, bytes]) => new File([bytes], name)))],
  ['a cached URL', async () => cachedSource(await openSource(server.url), { folder: new MemoryFolder() })],
];

describe('a sharded model', () => {
  it.each(sources)('from %s', async (_, open) => {
    const source = await open();
    expect(await readJson(source, 'config.json')).toEqual({ model_type: 'llama' });
    const reader = await TensorReader.open(source);
    expect(reader.expectTensor('big', SHAPE).dtype).toBe('F16');
    expect(reader.index.totalBytes).toBe(2 * (1_100_000 + 3 + 4));
    expect([...(await reader.readVector('norm'))]).toEqual([1, 2, 3, 4]);
    expect([...(await reader.readVector('small'))]).toEqual([0, 1, 2].map(valueAt));
    let next = 0;
    let wrong = 0;
    for await (const { firstRow, rows, data } of reader.streamRows('big', { pieceBytes: 500_000 })) {
      expect(firstRow * 1000).toBe(next);
      expect(rows % 32 === 0 || firstRow + rows === 1100).toBe(true);
      for (const value of data) if (value !== valueAt(next++)) wrong++;
    }
    expect([next, wrong]).toEqual([1_100_000, 0]);
  });

  it('is written alike at once and in pieces', async () => {
    const data = Float32Array.from({ length: 1_100_000 }, (_, i) => valueAt(i));
    const whole = writeSafetensors(
      [
        { name: 'small', dtype: 'F16', shape: [3], data: data.subarray(0, 3) },
        { name: 'big', dtype: 'F16', shape: SHAPE, data },
      ],
      { format: 'pt' },
    );
    expect(Buffer.compare(whole, files['one.safetensors']!)).toBe(0);
  });

  it('in bf16 too, in a file that another reader of the format takes', async () => {
    // The header's length, JSON and offsets by the letter of the format, without the code under test.
    const path = join(folder, 'bf16.safetensors');
    await writeSafetensorsFile(path, [
      { name: 'x', dtype: 'BF16', shape: [2, 2], fill: (out) => out.set([1, -2, 0.5, 3]) },
    ]);
    const bytes = await readFile(path);
    const length = Number(bytes.readBigUInt64LE(0));
    expect(JSON.parse(bytes.toString('utf8', 8, 8 + length))).toEqual({
      x: { dtype: 'BF16', shape: [2, 2], data_offsets: [0, 8] },
    });
    expect((8 + length) % 8).toBe(0);
    expect([...new Uint16Array(new Uint8Array(bytes.subarray(8 + length)).buffer)]).toEqual([
      0x3f80, 0xc000, 0x3f00, 0x4040,
    ]);
  });
});
