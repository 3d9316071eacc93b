import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { type GgufTensor, type GgufValue, text, u32, writeGguf } from '../../model/testing/gguf/file.js';
import { MemorySource } from '../testing/memory_source.js';
import { readGgufHeader } from './header.js';

const read = (bytes: Uint8Array) => readGgufHeader(new MemorySource({ 'm.gguf': bytes }), 'm.gguf');

const tensors: GgufTensor[] = [
  { name: 'a', shape: [3, 5], data: Float32Array.from({ length: 15 }, (_, i) => i) },
  { name: 'é', shape: [2, 2, 32], data: new Float32Array(128).fill(0.5), type: 'Q8_0' },
  { name: 'v', shape: [7], data: new Float32Array(7), type: 'F16' },
];
const metadata: Record<string, GgufValue> = {
  'general.architecture': text('llama'),
  'test.u16': { type: 'u16', value: 65535 },
  'test.i32': { type: 'i32', value: -5 },
  'test.u64': { type: 'u64', value: 2 ** 40 },
  'test.f32': { type: 'f32', value: 0.5 },
  'test.yes': { type: 'bool', value: true },
  'test.words': { type: 'string[]', value: ['', 'wörd', '東京'] },
  'test.numbers': { type: 'f32[]', value: [1, -2.5] },
  'test.none': { type: 'i32[]', value: [] },
};
const good = writeGguf(metadata, tensors);

/** `good` with a u32 of the header replaced. */
function patched(at: number, value: number): Uint8Array {
  const bytes = good.slice();
  new DataView(bytes.buffer).setUint32(at, value, true);
  return bytes;
}

/** A header of the bytes that `parts` give: numbers as u32, bigints as u64, text with its length. */
function raw(...parts: (number | bigint | string)[]): Uint8Array {
  const bytes: number[] = [];
  const push = (buffer: ArrayBuffer): number => bytes.push(...new Uint8Array(buffer));
  for (const part of parts) {
    if (typeof part === 'number') push(Uint32Array.of(part).buffer);
    else if (typeof part === 'bigint') push(BigUint64Array.of(part).buffer);
    else {
      push(BigUint64Array.of(BigInt(part.length)).buffer);
      bytes.push(...new TextEncoder().encode(part));
    }
  }
  return Uint8Array.from(bytes);
}
const MAGIC = 0x46554747;

describe('readGgufHeader', () => {
  it.each([2, 3] as const)('reads metadata and tensors of version %i', async (version) => {
    const header = await read(writeGguf(metadata, tensors, version));
    expect(header.version).toBe(version);
    expect(Object.fromEntries(header.metadata)).toEqual(
      Object.fromEntries(Object.entries(metadata).map(([key, { value }]) => [key, value])),
    );
    expect([...header.tensors.values()].map(({ name, type, shape }) => [name, type, shape])).toEqual([
      ['a', 'F32', [3, 5]],
      ['é', 'Q8_0', [2, 2, 32]],
      ['v', 'F16', [7]],
    ]);
    expect([...header.tensors.values()].map(({ start, end }) => end - start)).toEqual([60, 4 * 34, 14]);
  });

  it.each([8, 32, 64, 4096])('places tensors by an alignment of %i', async (alignment) => {
    const bytes = writeGguf({ ...metadata, 'general.alignment': u32(alignment) }, tensors);
    const { start, end } = (await read(bytes)).tensors.get('a')!;
    expect(start % alignment).toBe(0);
    expect([...new Float32Array(bytes.buffer.slice(start, end))]).toEqual([...tensors[0]!.data]);
  });

  it('reads the header alone, in few ranges, and lists of any length', async () => {
    const words = Array.from({ length: 60_000 }, (_, i) => `word ${i} ${'é'.repeat(i % 40)}`);
    const numbers = Array.from({ length: 300_000 }, (_, i) => i / 2);
    const data = new Float32Array(4_000_000);
    const bytes = writeGguf(
      { 'test.words': { type: 'string[]', value: words }, 'test.numbers': { type: 'f32[]', value: numbers } },
      [{ name: 'large', shape: [data.length], data }],
    );
    const source = new MemorySource({ 'm.gguf': bytes });
    const header = await readGgufHeader(source, 'm.gguf');
    expect(header.metadata.get('test.words')).toEqual(words);
    expect(header.metadata.get('test.numbers')).toEqual(numbers);
    expect(source.reads.length).toBeLessThan(10);
    expect(source.reads.at(-1)!.end).toBeLessThan(header.tensors.get('large')!.start + 2 ** 21);
  });

  it('a text keeps the U+FEFF that it begins with', async () => {
    expect((await read(raw(MAGIC, 3, 0n, 1n, 'key', 8, 4n, 0x61bfbbef))).metadata.get('key')).toBe('\ufeffa');
  });

  it('bytes that are no UTF-8 become U+FFFD', async () => {
    const bytes = raw(MAGIC, 3, 0n, 1n, 'key', 8, 3n, 0x20ff20);
    expect((await read(bytes.subarray(0, -1))).metadata.get('key')).toBe(' \ufffd ');
  });

  it('names the types that it does not read, and keeps the others', async () => {
    // The third type is that of a tensor entry: name, axes, extents, type.
    const bytes = raw(MAGIC, 3, 2n, 0n, 'x', 1, 256n, 9, 0n, 'y', 1, 4n, 99, 160n);
    const header = await read(new Uint8Array([...bytes, ...new Uint8Array(1024)]));
    expect([...header.tensors.values()].map(({ type, typeName }) => [type, typeName])).toEqual([
      [undefined, 'Q8_1'],
      [undefined, 'of an unknown type (99)'],
    ]);
  });

  it('a file cut short anywhere says so', async () => {
    for (let length = 0; length < good.length - 31; length++) {
      const error: unknown = await read(good.subarray(0, length)).catch((reason: unknown) => reason);
      expect(error, `${length} bytes`).toBeInstanceOf(SplitkvError);
      expect(error, `${length} bytes`).toMatchObject({
        code: 'format',
        message: expect.stringMatching(/expected a GGUF file|truncated/),
      });
    }
  });

  it('damage is an error or other contents, never a crash', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        async (damage) => {
          const bytes = good.slice();
          for (const [at, value] of damage) bytes[at] = value;
          const error: unknown = await read(bytes).then(
            () => undefined,
            (reason: unknown) => reason,
          );
          if (error !== undefined) expect(error).toMatchObject({ code: 'format' });
        },
      ),
      { numRuns: 2000 },
    );
  });

  it.each<[name: string, bytes: Uint8Array, message: RegExp]>([
    ['another format', patched(0, 0x67676a74), /starts with "tjgg"; expected "GGUF"/],
    ['a page', new TextEncoder().encode('<!doctype html><html>not found</html>'), /starts with "<!do"/],
    ['an old version', patched(4, 1), /GGUF version 1; expected 2 or 3/],
    ['a big-endian file', patched(4, 0x03000000), /big-endian/],
    ['too many tensors', patched(8, 1e9), /claims 1000000000 tensors/],
    ['too many keys', patched(16, 1e9), /claims 3 tensors and 1000000000 metadata keys/],
    ['a key twice', raw(MAGIC, 3, 0n, 2n, 'key', 4, 1, 'key', 4, 1), /"key" is there twice/],
    ['an unknown value type', raw(MAGIC, 3, 0n, 1n, 'key', 13, 0n), /"key" has a value of type 13/],
    ['a list that claims too much', raw(MAGIC, 3, 0n, 1n, 'key', 9, 4, 2n ** 60n), /"key" claims .* values/],
    ['a text that claims too much', raw(MAGIC, 3, 0n, 1n, 'key', 8, 2n ** 63n), /truncated/],
    ['lists in lists in lists', raw(MAGIC, 3, 0n, 1n, 'key', 9, 9, 1n, 9, 1n, 9, 1n, 9, 1n, 4, 1n, 0), /4 deep/],
    ['five axes', raw(MAGIC, 3, 1n, 0n, 'x', 5, 1n, 1n, 1n, 1n, 1n, 0, 0n), /5 axes/],
    ['a tensor twice', raw(MAGIC, 3, 2n, 0n, 'x', 1, 0n, 0, 0n, 'x', 1, 0n, 0, 0n, 0n, 0n), /"x" is there twice/],
    ['a row that is no whole block', raw(MAGIC, 3, 1n, 0n, 'x', 1, 33n, 8, 0n), /Q8_0 with rows of 33/],
    ['a tensor beyond the file', raw(MAGIC, 3, 1n, 0n, 'x', 1, 2n ** 40n, 0, 0n), /truncated/],
    ['an alignment of 12', writeGguf({ 'general.alignment': u32(12) }, []), /general\.alignment is 12/],
  ])('refuses %s', async (_name, bytes, message) => {
    await expect(read(bytes)).rejects.toMatchObject({ code: 'format', message: expect.stringMatching(message) });
  });

  it('refuses tensors that overlap', async () => {
    const bytes = raw(MAGIC, 3, 2n, 0n, 'x', 1, 8n, 0, 0n, 'y', 1, 8n, 0, 16n);
    await expect(read(new Uint8Array([...bytes, ...new Uint8Array(256)]))).rejects.toMatchObject({
      message: expect.stringContaining('"x" and "y" overlap'),
    });
  });

  it('a missing file and an abort', async () => {
    await expect(readGgufHeader(new MemorySource({}), 'm.gguf')).rejects.toMatchObject({ code: 'io' });
    const signal = AbortSignal.abort();
    await expect(readGgufHeader(new MemorySource({ 'm.gguf': good }), 'm.gguf', signal)).rejects.toMatchObject({
      code: 'aborted',
    });
  });
});
