import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { type GgufTensor, type GgufValue, text, u32, writeGguf } from '../../model/testing/gguf/file.js';
import { cachedFiles } from '../cache/cache_list.js';
import { cachedSource } from '../index.js';
import { openSource } from '../open_source.js';
import type { Source } from '../source.js';
import { startServer, type TestServer } from '../testing/http_server.js';
import { MemoryFolder } from '../testing/memory_folder.js';
import { MemorySource } from '../testing/memory_source.js';
import { chooseMmproj, entryOf, findGguf, findMmproj, openGguf, partNames } from './file.js';

const tensor = (name: string): GgufTensor => ({ name, shape: [4], data: Float32Array.of(1, 2, 3, 4) });
const u16 = (value: number): GgufValue => ({ type: 'u16', value });
const part = (no: number, count: number, name: string, more: Record<string, GgufValue> = {}) =>
  writeGguf({ 'split.no': u16(no), 'split.count': u16(count), ...more }, [tensor(name)]);
const whole = writeGguf({ 'general.architecture': text('llama') }, [tensor('a'), tensor('b')]);
const first = 'm-00001-of-00002.gguf';
const second = 'm-00002-of-00002.gguf';
const parts = {
  [first]: part(0, 2, 'a', { 'general.architecture': text('llama'), 'split.tensors.count': u32(2) }),
  [second]: part(1, 2, 'b'),
};

describe('openGguf', () => {
  it('reads one file, also one that says it is the only part', async () => {
    const gguf = await openGguf(new MemorySource({ 'm.gguf': whole }), 'm.gguf');
    expect([...gguf.tensors.keys()]).toEqual(['a', 'b']);
    expect(gguf.files).toEqual([{ name: 'm.gguf', bytes: whole.length }]);
    const single = await openGguf(
      new MemorySource({ 'm-00001-of-00001.gguf': part(0, 1, 'a') }),
      'm-00001-of-00001.gguf',
    );
    expect(single.tensors.size).toBe(1);
  });

  it.each([first, second])('reads a split model, given %s', async (file) => {
    const gguf = await openGguf(new MemorySource(parts), file);
    expect(gguf).toMatchObject({ file: first, what: `${first} of memory` });
    expect([...gguf.tensors.values()].map(({ name, file: where }) => [name, where])).toEqual([
      ['a', first],
      ['b', second],
    ]);
    expect(gguf.metadata.get('general.architecture')).toBe('llama');
    expect(gguf.files.map(({ name }) => name)).toEqual([first, second]);
  });

  it.each<[name: string, files: Record<string, Uint8Array>, file: string, code: string, message: RegExp]>([
    ['a part that is missing', { [first]: parts[first]! }, first, 'io', /m-00002-of-00002\.gguf is not in memory/],
    ['a part under another name', { 'm.gguf': parts[first]! }, 'm.gguf', 'format', /one of 2 parts.*names they had/],
    [
      'parts that changed places',
      { [first]: parts[second]!, [second]: parts[first]! },
      first,
      'format',
      /part 1 \(from 0\) of 2; expected 0 of 2/,
    ],
    [
      'a tensor in both',
      { ...parts, [second]: part(1, 2, 'a') },
      first,
      'format',
      /"a" is both in m-00001.* and in m-00002/,
    ],
    ['a part of another split', { ...parts, [second]: part(1, 3, 'b') }, first, 'format', /of 3; expected 1 of 2/],
    [
      'tensors that are missing',
      { ...parts, [first]: part(0, 2, 'a', { 'split.tensors.count': u32(3) }) },
      first,
      'format',
      /split\.tensors\.count is 3.*2 tensors/,
    ],
  ])('refuses %s', async (_name, files, file, code, message) => {
    await expect(openGguf(new MemorySource(files), file)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
  });

  it('tensors of types that are not read are refused one by one', async () => {
    const [a] = (await openGguf(new MemorySource({ 'm.gguf': whole }), 'm.gguf')).tensors.values();
    expect(entryOf(a!)).toMatchObject({ name: 'a', dtype: 'F32', shape: [4] });
    expect(() => entryOf({ ...a!, type: undefined, typeName: 'Q8_1' })).toThrow(
      /'a' in m\.gguf is Q8_1; expected .*Q4_K/,
    );
  });
});

it('partNames', () => {
  expect(partNames('x/m-00002-of-00003.gguf')).toEqual([1, 2, 3].map((n) => `x/m-0000${n}-of-00003.gguf`));
  expect(partNames('m-1-of-3.gguf')).toEqual(['m-1-of-3.gguf']);
});

it('findGguf takes the one model, not the projector beside it', () => {
  expect(findGguf(['README.md', 'm.GGUF', 'mmproj-m.gguf'], 'x')).toBe('m.GGUF');
  expect(findGguf([second, first], 'x')).toBe(first);
  expect(findGguf(['config.json'], 'x')).toBeUndefined();
  expect(findGguf(['config.json', 'm.gguf', 'imatrix.gguf'], 'x')).toBe('m.gguf');
  expect(findGguf(['config.json', 'm.gguf', 'model-00001-of-00002.safetensors'], 'x')).toBeUndefined();
  expect(() => findGguf(['b.gguf', 'a.gguf'], 'x')).toThrow(/x holds 2 GGUF models \(a\.gguf, b\.gguf\)/);
});

describe('encoders of images beside a model', () => {
  it('of several that which is called like it, in the best type', () => {
    const choose = (gguf: string, ...files: string[]) => chooseMmproj([gguf, ...files], gguf);
    expect(choose('m-Q4_K_M.gguf', 'other.gguf')).toBeUndefined();
    expect(choose('m-Q4_K_M.gguf', 'mmproj-F32.gguf')).toBe('mmproj-F32.gguf');
    expect(choose('m-Q4_K_M.gguf', 'mmproj-Q8_0.gguf', 'mmproj-F32.gguf', 'mmproj-BF16.gguf')).toBe('mmproj-BF16.gguf');
    expect(choose('m-Q4_K_M.gguf', 'mmproj-model-f16.gguf', 'mmproj-BF16.gguf')).toBe('mmproj-model-f16.gguf');
    const both = ['mmproj-A-2B-f16.gguf', 'A-500M.mmproj-Q8_0.gguf', 'mmproj-A-500M-f32.gguf'];
    expect(choose('A-2B-Q8_0.gguf', ...both)).toBe(both[0]);
    expect(choose('dir/A-500M-00001-of-00002.gguf', ...both)).toBe(both[1]);
    expect(() => choose('m.gguf', 'mmproj-a.gguf', 'mmproj-b.gguf')).toThrow(
      /m\.gguf: mmproj-a\.gguf, mmproj-b\.gguf lie beside it; name the one that is meant/,
    );
    // Parts of a model are none.
    expect(choose('mmproj-00001-of-00002.gguf', 'mmproj-00002-of-00002.gguf')).toBeUndefined();
  });

  it('where nothing lists files, by its usual names; a server that is gone has none', async () => {
    const asked: string[] = [];
    const found = (there: string): Source =>
      ({
        name: 'x',
        size: async (file: string) => {
          asked.push(file);
          if (there === 'gone') throw new SplitkvError('io', 'no answer');
          return file === there ? 1 : undefined;
        },
      }) as unknown as Source;
    expect(await findMmproj(found('mmproj-m-Q8_0.gguf'), 'm-Q4_0.gguf')).toBe('mmproj-m-Q8_0.gguf');
    expect(asked).toContain('mmproj-m-f16.gguf');
    expect(await findMmproj(found('gone'), 'm-Q4_0.gguf')).toBeUndefined();
  });
});

describe('openSource', () => {
  let folder: string;
  let server: TestServer;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
    for (const name of ['one/my model.gguf', 'two/a.gguf', 'two/b.gguf', 'both/a.gguf', 'both/config.json']) {
      await mkdir(join(folder, name, '..'), { recursive: true });
      await writeFile(join(folder, name), name.endsWith('json') ? '{}' : whole);
    }
    server = await startServer({ 'my model.gguf': whole });
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
    await server[Symbol.asyncDispose]();
  });

  it('takes a .gguf file by path, file URL, URL, and as a File', async () => {
    const path = join(folder, 'one/my model.gguf');
    const url = `${server.url}my%20model.gguf`;
    for (const where of [
      path,
      pathToFileURL(path),
      url,
      new URL(`${url}?signature=x`),
      [new File([whole], 'my model.gguf')],
    ]) {
      const source = await openSource(where);
      expect(source.gguf).toBe('my model.gguf');
      expect((await openGguf(source, source.gguf!)).tensors.size).toBe(2);
    }
    expect(server.requests.at(-1)!.url).toBe('/model/my%20model.gguf?signature=x');
    expect((await openSource(url)).url).toBe(url);
  });

  it('takes the folder of one, and prefers a config.json with weights', async () => {
    expect((await openSource(join(folder, 'one'))).gguf).toBe('my model.gguf');
    const file = new File([whole], 'm.gguf');
    Object.defineProperty(file, 'webkitRelativePath', { value: 'chosen/m.gguf' });
    expect((await openSource([file])).gguf).toBe('chosen/m.gguf');
    // Repositories of GGUF files often have one without other weights.
    expect((await openSource(join(folder, 'both'))).gguf).toBe('a.gguf');
    await writeFile(join(folder, 'both', 'model.safetensors'), '');
    expect((await openSource(join(folder, 'both'))).gguf).toBeUndefined();
  });

  it('says what is missing or not clear', async () => {
    await expect(openSource(join(folder, 'two'))).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('a.gguf, b.gguf'),
    });
    await expect(openSource(join(folder, 'none.gguf'))).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('does not exist'),
    });
    await expect(openSource(`${server.url}none.gguf`)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('none.gguf is not in'),
    });
    await expect(openSource(server.url)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('or a .gguf file'),
    });
  });

  it('is cached under its own URL', async () => {
    const cache = new MemoryFolder();
    const url = `${server.url}my%20model.gguf`;
    const source = await cachedSource(await openSource(url), { folder: cache });
    expect(source.gguf).toBe('my model.gguf');
    await openGguf(source, source.gguf!);
    await source.flush!();
    expect(await cachedFiles(cache)).toEqual([{ url, kind: 'model', bytes: whole.length, complete: true }]);
    const requests = server.requests.length;
    await openGguf(await cachedSource(await openSource(url), { folder: cache }), 'my model.gguf');
    expect(server.requests.slice(requests).every(({ range }) => range === 'bytes=0-65535')).toBe(true);
  });
});
