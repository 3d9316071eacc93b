import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { findMmproj } from '../gguf/file.js';
import { cachedSource, openSource } from '../open_source.js';
import { readText, type Source } from '../source.js';
import { type HubServer, startHub } from '../testing/hub_server.js';
import { startServer, type TestServer } from '../testing/http_server.js';
import { MemoryFolder } from '../testing/memory_folder.js';

// Names in a page: the document is a stand-in, requests are real.

const text = (value: string): Uint8Array => new TextEncoder().encode(value);
let hub: HubServer;
let site: TestServer;
beforeEach(async () => {
  hub = await startHub({
    'org/model': { files: { 'config.json': '{}', 'model.safetensors': 'x' } },
    'org/lora': { files: { 'adapter_config.json': '{}', 'adapter_model.safetensors': 'x' } },
    'org/g': { files: { 'm-Q4_0.gguf': 'GGUF' } },
    'bartowski/SmolLM2-135M-Instruct-GGUF': {
      files: { 'SmolLM2-135M-Instruct-Q4_K_M.gguf': 'GGUF', 'SmolLM2-135M-Instruct-Q8_0.gguf': 'GGUF' },
      branches: ['09816acd5d99df7be770d85ea30822623dab342c'],
    },
  });
  site = await startServer({});
  vi.stubGlobal('document', { baseURI: site.url });
});
afterEach(async () => {
  vi.unstubAllGlobals();
  await site[Symbol.asyncDispose]();
  await hub[Symbol.asyncDispose]();
});
const open = (where: string | URL): Promise<Source> => openSource(where, undefined, { hub: hub.url });

it("ORG/NAME is the page's own folder where there is one, else the Hub's", async () => {
  expect((await open('org/model')).url).toBe(`${hub.url}/org/model/resolve/main/`);
  site.files.set('org/model/config.json', text('{}'));
  expect((await open('org/model')).url).toBe(`${site.url}org/model`);
  expect((await open('hf:org/model')).url).toBe(`${hub.url}/org/model/resolve/main/`);
  expect((await open(new URL('hf:org/model'))).url).toBe(`${hub.url}/org/model/resolve/main/`);
});

it('ORG/NAME/FILE.gguf is a file beside the page where there is one', async () => {
  expect((await open('org/g/m-Q4_0.gguf')).url).toBe(`${hub.url}/org/g/resolve/main/m-Q4_0.gguf`);
  site.files.set('org/g/m-Q4_0.gguf', text('GGUF'));
  expect((await open('org/g/m-Q4_0.gguf')).url).toBe(`${site.url}org/g/m-Q4_0.gguf`);
});

it('a slash at the end, a dot or a slash before, mean a URL and nothing else', async () => {
  for (const where of ['org/model/', './org/model', '/org/model']) {
    await expect(open(where)).rejects.toThrow(/has no config\.json/);
  }
  expect(hub.requests).toEqual([]);
});

it('a revision, a quantisation or a word of the catalog is asked of the Hub alone', async () => {
  expect((await open('org/model@main')).url).toContain('/org/model/resolve/main/');
  expect((await open('org/g:Q4_0')).gguf).toBe('m-Q4_0.gguf');
  const word = await open('smollm2-135m-instruct');
  expect([word.name, word.gguf]).toEqual([
    'bartowski/SmolLM2-135M-Instruct-GGUF@09816acd5d99df7be770d85ea30822623dab342c',
    'SmolLM2-135M-Instruct-Q4_K_M.gguf',
  ]);
  expect(site.requests).toEqual([]);
  await expect(open('my-model')).rejects.toThrow(/my-model has no config\.json/); // a folder beside the page
});

it("something else than a model is found by its own files, here and at the Hub's", async () => {
  const files = ['adapter_config.json', 'adapter_model.safetensors'] as const;
  const openLora = (where: string): Promise<Source> => openSource(where, undefined, { hub: hub.url, files });
  expect((await openLora('hf:org/lora')).url).toBe(`${hub.url}/org/lora/resolve/main/`);
  expect((await openLora('org/lora')).url).toBe(`${hub.url}/org/lora/resolve/main/`);
  site.files.set('org/lora/adapter_config.json', text('{}'));
  expect((await openLora('org/lora')).url).toBe(`${site.url}org/lora`);
  expect((await openLora('hf:org/g')).gguf).toBe('m-Q4_0.gguf');
  await expect(openLora('hf:org/model')).rejects.toThrow(
    /holds no such files: expected adapter_config.json with adapter_model.safetensors, or a .gguf file; it has model/,
  );
  await expect(open('hf:org/lora')).rejects.toThrow(/holds no model that runs here.*it has adapter_model.safetensors/);
});

it(
  'what a page keeps is listed without the Hub, such as an encoder of an unusual name',
  { timeout: 30_000 },
  async () => {
    const files = { 'm.Q8_0.gguf': 'GGUF', 'm.mmproj-f16.gguf': 'clip', 'm.mmproj-Q8_0.gguf': 'clip8' };
    hub.repositories.set('org/seen', { files });
    const root = new MemoryFolder();
    vi.stubGlobal('navigator', { storage: { getDirectory: async () => root } });
    const openKept = (): Promise<Source> => openSource('hf:org/seen', undefined, { hub: hub.url }, cachedSource);
    const online = await openKept();
    const encoder = (await findMmproj(online, online.gguf!))!;
    for (const file of [online.gguf!, encoder]) await online.read(file, 0, 4);
    await online.flush!();
    hub.misbehave = (_request, response) => Boolean(response.writeHead(503).end());
    const offline = await openKept();
    expect([offline.gguf, await findMmproj(offline, offline.gguf!)]).toEqual(['m.Q8_0.gguf', encoder]);
    expect(await readText(offline, encoder)).toBe('clip');
  },
);

it('neither is told with both readings', async () => {
  await expect(open('org/missing')).rejects.toMatchObject({
    code: 'io',
    message: expect.stringMatching(/org\/missing is not at .*\(nor is there a model at http:.*\/model\/org\/missing\)/),
  });
});
