import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fileListSource, packagedSource } from './sources/file_list_source.js';
import { httpSource } from './sources/http_source.js';
import { directorySource } from './sources/node_files.js';
import { openSource } from './open_source.js';
import { startServer, type TestServer } from './testing/http_server.js';
import { MemorySource } from './testing/memory_source.js';
import { suiteFiles, testSource } from './testing/source_suite.js';

let server: TestServer;
let folder: string;

beforeAll(async () => {
  server = await startServer(suiteFiles);
  folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
  for (const [name, bytes] of Object.entries(suiteFiles)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), bytes);
  }
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

/** As a browser makes them: webkitRelativePath is the path from the chosen folder's parent. */
function chosenFile(path: string, bytes: Uint8Array<ArrayBuffer>): File {
  const file = new File([bytes], path.split('/').at(-1)!, { lastModified: 1000 });
  Object.defineProperty(file, 'webkitRelativePath', { value: path });
  return file;
}

const chosenFolder = (prefix: string): File[] =>
  Object.entries(suiteFiles).map(([name, bytes]) => chosenFile(prefix + name, bytes));

testSource('memory', async () => new MemorySource({ ...suiteFiles }));
testSource('directory', async () => directorySource(folder));
testSource('chosen files', async () => fileListSource(chosenFolder('my model/')));
testSource('http', async () => httpSource(server.url));
testSource('package of an extension', async () => packagedSource(new URL(server.url)));

describe('openSource', () => {
  it('takes the URL of a blob, which is a GGUF file', async () => {
    const url = new URL(URL.createObjectURL(new Blob(['GGUF and more'])));
    const source = await openSource(url);
    expect(source.gguf).toBe('model.gguf');
    expect(source.url).toBeUndefined();
    expect(new TextDecoder().decode(await source.read('model.gguf', 5, 8))).toBe('and');
    URL.revokeObjectURL(url.href);
    await expect(openSource(url)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('no such blob'),
    });
  });

  it('takes a path, a file URL, an http URL, files and a source', async () => {
    const memory = new MemorySource({ 'config.json': '{}' });
    expect(await openSource(memory)).toBe(memory);
    expect((await openSource(folder)).name).toBe(folder);
    expect((await openSource(pathToFileURL(folder))).name).toBe(folder);
    expect((await openSource(pathToFileURL(folder).href)).name).toBe(folder);
    expect((await openSource(new URL(server.url))).name).toBe(server.url);
    expect((await openSource(server.url.replace(/\/$/, ''))).name).toBe(server.url.replace(/\/$/, ''));
    expect((await openSource(chosenFolder('x/y/'))).name).toBe('x/y');
  });

  it.each([null, undefined, 5, {}, chosenFile('x/a.txt', new Uint8Array(1))])('%o is none', async (where) => {
    await expect(openSource(where as never)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringMatching(
        /^nothing can be loaded from .+; expected a name, a path or URL, or an array of/,
      ) as string,
    });
  });

  it('says what a model folder holds when there is no config.json', async () => {
    const expected = {
      code: 'io',
      message: expect.stringMatching(/no config\.json; expected .*tokenizer\.json.*model\.safetensors/),
    };
    await expect(openSource(join(folder, 'nested'))).rejects.toMatchObject(expected);
    await expect(openSource(`${server.url}nested`)).rejects.toMatchObject(expected);
    await expect(openSource([chosenFile('x/a.txt', new Uint8Array(1))])).rejects.toMatchObject(expected);
  });

  it('refuses what is no folder', async () => {
    await expect(openSource(join(folder, 'none'))).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('does not exist'),
    });
    await expect(openSource(join(folder, 'big.bin'))).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('is a file'),
    });
    await expect(openSource('')).rejects.toMatchObject({ code: 'usage' });
    await expect(openSource([])).rejects.toMatchObject({ code: 'usage' });
    await expect(openSource('ftp://host/model')).rejects.toMatchObject({ code: 'usage' });
  });

  it('resolves a relative URL against the page, the document first', async () => {
    Object.assign(globalThis, { location: { href: `${server.url}page/index.html` } });
    try {
      const source = await openSource('../');
      expect(source.name).toBe(server.url);
      Object.assign(globalThis, { document: { baseURI: server.url.replace('model/', '') } });
      expect((await openSource('model')).name).toBe(server.url.replace(/\/$/, ''));
    } finally {
      Reflect.deleteProperty(globalThis, 'location');
      Reflect.deleteProperty(globalThis, 'document');
    }
  });
});

describe('fileListSource', () => {
  it('takes the outermost config.json for the folder', async () => {
    const source = fileListSource([
      chosenFile('m/onnx/config.json', new Uint8Array(1)),
      chosenFile('m/config.json', new Uint8Array(2)),
      chosenFile('other.txt', new Uint8Array(3)),
    ]);
    expect(await source.size('config.json')).toBe(2);
    expect(await source.size('onnx/config.json')).toBe(1);
    expect(await source.size('other.txt')).toBeUndefined();
  });

  it('takes dropped files, which have no path', async () => {
    expect(await fileListSource([new File(['{}'], 'config.json')]).size('config.json')).toBe(2);
  });

  it('refuses a file that is there twice', () => {
    expect(() => fileListSource([new File(['{}'], 'config.json'), new File(['{}'], 'config.json')])).toThrow('twice');
  });
});
