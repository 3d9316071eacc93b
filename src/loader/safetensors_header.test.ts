import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import { DTYPE_BYTES, type Dtype } from './dtype.js';
import { duplicateKey } from './json_keys.js';
import { readSafetensorsHeader, type SafetensorsHeader } from './safetensors_header.js';
import { MemorySource } from './testing/memory_source.js';
import { headerOf, writeSafetensors } from './testing/write_safetensors.js';

const FILE = 'model.safetensors';
const read = (bytes: Uint8Array): Promise<SafetensorsHeader> =>
  readSafetensorsHeader(new MemorySource({ [FILE]: bytes }), FILE);

/** A file of this header and so many bytes of data. */
function fileOf(header: unknown, dataBytes: number): Uint8Array {
  const head = headerOf(typeof header === 'string' ? header : JSON.stringify(header));
  const out = new Uint8Array(head.byteLength + dataBytes);
  out.set(head);
  return out;
}

const f32 = (begin: number, end: number, shape = [(end - begin) / 4]): unknown => ({
  dtype: 'F32',
  shape,
  data_offsets: [begin, end],
});

const good = writeSafetensors(
  [
    { name: 'a', dtype: 'F32', shape: [2, 3], data: [1, 2, 3, 4, 5, 6] },
    { name: 'empty', dtype: 'F16', shape: [4, 0], data: [] },
    { name: 'scalar', dtype: 'BF16', shape: [], data: [1] },
    { name: '__proto__', dtype: 'I8', shape: [3], data: [1, 2, 3] },
  ],
  { format: 'pt' },
);

describe('a correct header', () => {
  it('gives every tensor with absolute offsets, and the metadata', async () => {
    const header = await read(good);
    const dataStart = good.byteLength - 24 - 2 - 3;
    expect([...header.tensors.values()]).toEqual([
      { name: 'a', file: FILE, dtype: 'F32', shape: [2, 3], start: dataStart, end: dataStart + 24 },
      { name: 'empty', file: FILE, dtype: 'F16', shape: [4, 0], start: dataStart + 24, end: dataStart + 24 },
      { name: 'scalar', file: FILE, dtype: 'BF16', shape: [], start: dataStart + 24, end: dataStart + 26 },
      { name: '__proto__', file: FILE, dtype: 'I8', shape: [3], start: dataStart + 26, end: dataStart + 29 },
    ]);
    expect(header.metadata).toEqual(new Map([['format', 'pt']]));
    expect(header.fileBytes).toBe(good.byteLength);
  });

  it('may list tensors in another order than their bytes', async () => {
    const { tensors } = await read(fileOf({ late: f32(8, 16), early: f32(0, 8) }, 16));
    expect([...tensors.keys()]).toEqual(['late', 'early']);
  });

  it('may hold no tensors', async () => {
    expect((await read(fileOf({}, 0))).tensors.size).toBe(0);
  });
});

describe('a wrong header', () => {
  const cases: [name: string, file: Uint8Array, message: RegExp][] = [
    ['no bytes', new Uint8Array(0), /has 0 bytes; expected .* at least 8/],
    [
      'a length beyond the file',
      fileOf({}, 0).fill(0xff, 0, 1),
      /claims a header of 255 bytes but has 16 in all; is it truncated/,
    ],
    [
      'a length beyond the limit',
      new Uint8Array(64).fill(0xff),
      /claims a header of 18446744073709551615 bytes; expected at most 48,000,000/,
    ],
    ['length 0', new Uint8Array(8), /starts with undefined/],
    ['not JSON', fileOf('{"a": ', 0), /header is not JSON/],
    ['not UTF-8', fileOf('{"a":1}', 0).fill(0xff, 10, 11), /header is not JSON/],
    ['an array', fileOf('[]', 0), /starts with 91; expected '\{'/],
    [
      'a name twice',
      fileOf(
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"\\u0061":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        4,
      ),
      /names "a" twice/,
    ],
    [
      'a key twice',
      fileOf('{"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}}', 4),
      /names "dtype" twice/,
    ],
    ['no entry', fileOf({ a: null }, 0), /tensor "a": its entry is null/],
    [
      'unknown dtype',
      fileOf({ a: { dtype: 'F4', shape: [1], data_offsets: [0, 4] } }, 4),
      /tensor "a": dtype is "F4"; expected one of F64, F32/,
    ],
    [
      'inherited dtype',
      fileOf({ a: { dtype: 'toString', shape: [1], data_offsets: [0, 4] } }, 4),
      /dtype is "toString"/,
    ],
    ['no shape', fileOf({ a: { dtype: 'F32', data_offsets: [0, 4] } }, 4), /shape is undefined/],
    ['negative shape', fileOf({ a: f32(0, 4, [-1]) }, 4), /shape is \[-1\]/],
    ['fractional shape', fileOf({ a: f32(0, 4, [1.5]) }, 4), /shape is \[1.5\]/],
    ['unsafe shape', fileOf({ a: f32(0, 4, [2 ** 53]) }, 4), /shape is \[9007199254740992\]/],
    ['a product beyond 2^53', fileOf({ a: f32(0, 4, [2 ** 52, 2 ** 52]) }, 4), /not 4/],
    [
      'three offsets',
      fileOf({ a: { dtype: 'F32', shape: [1], data_offsets: [0, 4, 8] } }, 4),
      /data_offsets is \[0,4,8\]; expected two/,
    ],
    ['reversed offsets', fileOf({ a: f32(4, 0, [1]) }, 4), /data_offsets is \[4,0\]; expected the begin before/],
    ['an end beyond the file', fileOf({ a: f32(0, 8) }, 4), /an end within the 4 bytes of data/],
    ['bytes that do not fit the shape', fileOf({ a: f32(0, 8, [3]) }, 8), /12 bytes for shape \[3\] of F32, not 8/],
    ['an overlap', fileOf({ a: f32(0, 8), b: f32(4, 12) }, 12), /tensor "b" overlaps "a" by 4 bytes/],
    ['a hole', fileOf({ a: f32(0, 4), b: f32(8, 12) }, 12), /tensor "b" leaves a hole of 4 bytes after "a"/],
    ['a hole at the beginning', fileOf({ a: f32(4, 8) }, 8), /tensor "a" leaves a hole of 4 bytes after the header/],
    ['trailing bytes', fileOf({ a: f32(0, 4) }, 5), /goes on for 1 bytes after "a"/],
    ['metadata that is no object', fileOf({ __metadata__: [] }, 0), /__metadata__ is \[\]/],
    ['metadata that is no text', fileOf({ __metadata__: { a: 1 } }, 0), /__metadata__ gives 1 for "a"/],
  ];
  it.each(cases)('%s', async (_, file, message) => {
    await expect(read(file)).rejects.toMatchObject({
      name: 'SplitkvError',
      code: 'format',
      message: expect.stringMatching(message),
    });
    await expect(read(file)).rejects.toThrow(FILE);
  });

  it('does not say more of a value than a line holds', async () => {
    const error = await read(fileOf({ ['n'.repeat(5000)]: { dtype: 'x'.repeat(5000) } }, 0)).catch(
      (caught: unknown) => caught as Error,
    );
    expect((error as Error).message.length).toBeLessThan(500);
  });

  it('a missing file', async () => {
    await expect(readSafetensorsHeader(new MemorySource({}), FILE)).rejects.toMatchObject({ code: 'io' });
  });
});

/** Either a header that keeps every promise, or a SplitkvError; and never a byte read beyond the file. */
async function checkAny(bytes: Uint8Array): Promise<boolean> {
  const source = new MemorySource({ [FILE]: bytes });
  let header: SafetensorsHeader;
  try {
    header = await readSafetensorsHeader(source, FILE);
  } catch (error) {
    expect(error).toBeInstanceOf(SplitkvError);
    expect((error as SplitkvError).code).toBe('format');
    return false;
  }
  let total = 0;
  for (const { dtype, shape, start, end } of header.tensors.values()) {
    expect(end - start).toBe(shape.reduce((product, size) => product * size, DTYPE_BYTES[dtype as Dtype]));
    expect(end).toBeLessThanOrEqual(bytes.byteLength);
    total += end - start;
  }
  expect(source.reads[0]).toEqual({ file: FILE, start: 0, end: 8 });
  expect(total).toBe(bytes.byteLength - source.reads[1]!.end);
  return true;
}

describe('fuzzing', () => {
  it('random bytes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => void (await checkAny(bytes))),
      { numRuns: 500 },
    );
  });

  it('random JSON', async () => {
    const keys = fc.constantFrom('dtype', 'shape', 'data_offsets', '__metadata__', '__proto__', 'a');
    const json = fc.dictionary(
      keys,
      fc.oneof(
        fc.jsonValue(),
        fc.dictionary(keys, fc.oneof(fc.jsonValue(), fc.array(fc.nat(16)), fc.constantFrom('F32', 'U8'))),
      ),
    );
    await fc.assert(
      fc.asyncProperty(json, fc.nat(64), async (value, data) => void (await checkAny(fileOf(value, data)))),
      { numRuns: 500 },
    );
  });

  it('a correct file with bytes changed', async () => {
    const change = fc.record({ at: fc.nat(good.byteLength - 1), value: fc.integer({ min: 0, max: 255 }) });
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 4 }), async (changes) => {
        const bytes = good.slice();
        for (const { at, value } of changes) bytes[at] = value;
        await checkAny(bytes);
      }),
      { numRuns: 1000 },
    );
  });

  it('every truncation, and every extension, is refused', async () => {
    expect(await checkAny(good)).toBe(true);
    for (let length = 0; length < good.byteLength; length++)
      expect(await checkAny(good.slice(0, length)), `${length} bytes`).toBe(false);
    expect(await checkAny(Uint8Array.of(...good, 0))).toBe(false);
  });

  it('whatever the writer writes is read as written', async () => {
    const tensor = fc.record({
      dtype: fc.constantFrom(...(Object.keys(DTYPE_BYTES) as Dtype[])),
      shape: fc.array(fc.nat(4), { maxLength: 4 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.dictionary(fc.string(), tensor, { maxKeys: 8 }), async (tensors) => {
        const list = Object.entries(tensors)
          .filter(([name]) => name !== '__metadata__')
          .map(([name, { dtype, shape }]) => ({
            name,
            dtype,
            shape,
            data: new Uint8Array(shape.reduce((product, size) => product * size, DTYPE_BYTES[dtype])).fill(7),
          }));
        const bytes = writeSafetensors(list);
        expect(await checkAny(bytes)).toBe(true);
        const header = await read(bytes);
        expect(header.tensors.size).toBe(list.length);
        for (const { name, dtype, shape } of list) expect(header.tensors.get(name)).toMatchObject({ dtype, shape });
      }),
    );
  });

  it('allocates nothing for a header that lies', async () => {
    const claims = new Uint8Array(16);
    new DataView(claims.buffer).setBigUint64(0, 99_999_999n, true);
    const source = new MemorySource({ [FILE]: claims });
    await expect(readSafetensorsHeader(source, FILE)).rejects.toMatchObject({ code: 'format' });
    expect(source.reads).toEqual([{ file: FILE, start: 0, end: 8 }]);
  });
});

describe('duplicateKey', () => {
  it('finds none in what JSON.stringify wrote, whatever the strings hold', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(duplicateKey(JSON.stringify(value))).toBeUndefined();
      }),
    );
  });

  it('finds one at any depth, spaced or escaped', () => {
    fc.assert(
      fc.property(fc.string(), fc.jsonValue(), (key, value) => {
        const [name, text] = [JSON.stringify(key), JSON.stringify(value)];
        expect(duplicateKey(`[{"x":[{${name}:${text} , ${name} \n:${text}}]}]`)).toBe(key);
      }),
    );
  });

  it('lets two objects share a key', () => {
    expect(duplicateKey('{"a":{"b":1},"b":{"b":["a","a"]}}')).toBeUndefined();
  });
});
