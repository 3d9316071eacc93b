import { describe, expect, it } from 'vitest';
import { readTensorIndex, SHARD_INDEX, SINGLE_FILE } from './tensor_index.js';
import { TensorReader } from './tensor_reader.js';
import { MemorySource } from './testing/memory_source.js';
import { type TensorToWrite, writeSafetensors } from './testing/write_safetensors.js';

const tensor = (name: string, shape = [2]): TensorToWrite => ({
  name,
  dtype: 'F32',
  shape,
  data: new Float32Array(shape.reduce((product, size) => product * size, 1)),
});
const shard = (...names: string[]): Uint8Array => writeSafetensors(names.map((name) => tensor(name)));
const indexOf = (weight_map: unknown): string => JSON.stringify({ metadata: { total_size: 16 }, weight_map });

const sharded = (overrides: Record<string, Uint8Array | string> = {}): MemorySource =>
  new MemorySource({
    's1.safetensors': shard('a', 'b'),
    's2.safetensors': shard('c'),
    [SHARD_INDEX]: indexOf({ a: 's1.safetensors', c: 's2.safetensors', b: 's1.safetensors' }),
    ...overrides,
  });

describe('readTensorIndex', () => {
  it('reads a single file', async () => {
    const file = shard('a', 'b');
    const index = await readTensorIndex(new MemorySource({ [SINGLE_FILE]: file }));
    expect([...index.tensors.keys()]).toEqual(['a', 'b']);
    expect(index.totalBytes).toBe(16);
    expect(index.files).toEqual([{ name: SINGLE_FILE, bytes: file.byteLength }]);
  });

  it('reads shards', async () => {
    const index = await readTensorIndex(sharded());
    expect([...index.tensors].map(([name, entry]) => [name, entry.file])).toEqual([
      ['a', 's1.safetensors'],
      ['b', 's1.safetensors'],
      ['c', 's2.safetensors'],
    ]);
    expect(index.totalBytes).toBe(24);
  });

  it('takes the single file where there is one, as transformers does', async () => {
    const index = await readTensorIndex(sharded({ [SINGLE_FILE]: shard('only') }));
    expect([...index.tensors.keys()]).toEqual(['only']);
  });

  it('says what it looked for when there are no weights', async () => {
    await expect(readTensorIndex(new MemorySource({ 'pytorch_model.bin': 'x' }))).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/expected model\.safetensors, or model\.safetensors\.index\.json/),
    });
  });

  const wrong: [name: string, files: Record<string, Uint8Array | string>, message: RegExp][] = [
    [
      'a tensor in no shard',
      { 's1.safetensors': shard('a') },
      /puts tensor "b" into s1\.safetensors, but no shard has it/,
    ],
    [
      'a tensor in another shard',
      { 's1.safetensors': shard('a'), 's2.safetensors': shard('b', 'c') },
      /"b" into s1\.safetensors, but it is in s2\.safetensors/,
    ],
    [
      'a tensor in two shards',
      { 's2.safetensors': shard('a', 'c') },
      /tensor "a" is both in s1\.safetensors and in s2\.safetensors/,
    ],
    [
      'a name listed twice',
      { [SHARD_INDEX]: '{"weight_map":{"a":"s1.safetensors","a":"s2.safetensors"}}' },
      /"a" is listed twice/,
    ],
    ['no weight_map', { [SHARD_INDEX]: '{}' }, /"weight_map" is undefined/],
    ['an empty weight_map', { [SHARD_INDEX]: indexOf({}) }, /is empty/],
    ['a file name that is no text', { [SHARD_INDEX]: indexOf({ a: 1 }) }, /gives 1 for "a"/],
    [
      'a file outside the folder',
      { [SHARD_INDEX]: indexOf({ a: '../../secret' }) },
      /"\.\.\/\.\.\/secret" is not a file of a model folder/,
    ],
    ['not JSON', { [SHARD_INDEX]: '<!doctype html>' }, /looks like HTML/],
  ];
  it.each(wrong)('refuses %s', async (_, files, message) => {
    await expect(readTensorIndex(sharded(files))).rejects.toMatchObject({
      code: 'format',
      message: expect.stringMatching(message),
    });
  });

  it('names a missing shard', async () => {
    const source = sharded();
    source.files.delete('s2.safetensors');
    await expect(readTensorIndex(source)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('s2.safetensors'),
    });
  });
});

describe('expectTensor', () => {
  it('gives the entry, or says what is wrong', async () => {
    const reader = await TensorReader.open(
      new MemorySource({ [SINGLE_FILE]: writeSafetensors([tensor('model.norm.weight', [4, 2])]) }),
    );
    expect(reader.expectTensor('model.norm.weight', [4, 2])).toBe(reader.index.tensors.get('model.norm.weight'));
    expect(() => reader.expectTensor('model.norm.weight', [2, 4])).toThrow(
      "'model.norm.weight' in model.safetensors has shape [4, 2]; expected [2, 4]",
    );
    expect(() => reader.expectTensor('model.norm.weight', [4, 2, 1])).toThrow('expected [4, 2, 1]');
    expect(() => reader.expectTensor('model.norm.wieght', [4])).toThrow(
      "no tensor 'model.norm.wieght'; expected one of shape [4]. Did you mean 'model.norm.weight'?",
    );
  });
});
