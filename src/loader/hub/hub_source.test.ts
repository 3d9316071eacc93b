import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { readText, type Source } from '../source.js';
import { type HubServer, startHub } from '../testing/hub_server.js';
import { openByRanges } from './open_hub.js';
import { parseHubName } from './hub_name.js';

// What pages do: read by ranges. Node's own way is tested in node_hub.test.ts.

const weights = Uint8Array.from({ length: 200_000 }, (_, i) => (i * 7) % 251);
let hub: HubServer;
beforeEach(async () => {
  hub = await startHub({
    'org/model': {
      files: {
        'config.json': '{"a":1}',
        'tokenizer.json': `{"t":"${'x'.repeat(2000)}"}`,
        'model.safetensors': weights,
      },
      branches: ['refs/pr/1'],
    },
  });
});
afterEach(() => hub[Symbol.asyncDispose]());

const http = { attempts: 2, backoffMs: 1 };
const open = (text: string, token?: string, options = {}): Promise<Source> =>
  openByRanges({ endpoint: hub.url, token, http }, parseHubName(text), options, undefined);
const failure = (text: string, token?: string): Promise<Error & { code: string }> =>
  open(text, token)
    .then((source) => source.read(source.gguf ?? 'config.json', 0, 1))
    .then(
      () => expect.unreachable(),
      (error: Error & { code: string }) => error,
    );

describe('a repository read by ranges', () => {
  it('reads small files of the Hub and large ones of where it redirects', async () => {
    const source = await open('org/model');
    expect(source.name).toBe('org/model');
    expect(source.url).toBe(`${hub.url}/org/model/resolve/main/`);
    expect(await readText(source, 'config.json')).toBe('{"a":1}');
    expect(await source.read('model.safetensors', 100_000, 100_500)).toEqual(weights.slice(100_000, 100_500));
    expect(hub.requests.filter(({ origin }) => origin === 'cdn').map(({ range }) => range)).toEqual([
      'bytes=0-65535',
      'bytes=100000-100499',
    ]);
  });

  it('knows from the listing what there is, how large and which version, and asks for nothing else', async () => {
    const source = await open('org/model');
    expect(await source.size('generation_config.json')).toBeUndefined();
    expect(await source.size('model.safetensors')).toBe(weights.byteLength);
    expect(await source.version('model.safetensors')).toMatch(/^[0-9a-f]{64}$/);
    expect(await source.sha256?.('model.safetensors')).toBe(await source.version('model.safetensors'));
    expect(await source.version('config.json')).toMatch(/^[0-9a-f]{40}$/);
    await expect(source.read('missing.json', 0, 1)).rejects.toMatchObject({ code: 'io' });
    expect(hub.requests.map(({ url }) => url)).toEqual(['/api/models/org/model/revision/main?blobs=true']);
  });

  it('stays with one commit while the branch moves on, and sees the next one when opened again', async () => {
    const before = await open('org/model');
    const { at } = before;
    expect(at).toEqual({ where: 'hf:org/model', commit: hub.commit('org/model') });
    const version = await before.version('config.json');
    await before.read('config.json', 0, 1);
    expect(hub.requests.at(-1)!.url).toContain(`/resolve/${at!.commit}/config.json`);
    hub.repositories.get('org/model')!.files = { 'config.json': '{"a":2}', 'model.safetensors': weights };
    const after = await open('org/model');
    expect(after.url).toBe(before.url);
    expect(await after.version('config.json')).not.toBe(version);
    expect(await after.version('model.safetensors')).toBe(await before.version('model.safetensors'));
  });

  it('is opened by a worker at the commit that was found, under the same address', async () => {
    const source = await open('org/model@refs/pr/1');
    expect(source.at!.where).toBe('hf:org/model@refs/pr/1');
    hub.requests.length = 0;
    const again = await open(source.at!.where, undefined, { commit: source.at!.commit });
    expect(again.url).toBe(source.url);
    expect(hub.requests[0]!.url).toContain(`/revision/${source.at!.commit}`);
  });

  it('does without hashes and sizes where a listing has none', async () => {
    hub.blobs = false;
    const source = await open('org/model');
    expect(await source.size('model.safetensors')).toBe(weights.byteLength);
    expect(await source.size('generation_config.json')).toBeUndefined();
    expect(await source.version('model.safetensors')).toMatch(/^"/); // the ETag of where it lies
  });

  it('does without a listing on a mirror that has none', async () => {
    hub.api = false;
    const source = await open('org/model');
    expect(await readText(source, 'config.json')).toBe('{"a":1}');
    expect(await source.size('generation_config.json')).toBeUndefined();
    await expect(open('org/model:Q4_0')).rejects.toThrow(/doesn't tell what org\/model holds: name the file instead/);
  });

  it('follows a repository that has another name by now', async () => {
    hub.repositories.set('old/name', { files: {}, movedTo: 'org/model' });
    const source = await open('old/name');
    expect(await readText(source, 'config.json')).toBe('{"a":1}');
  });
});

describe('tokens', () => {
  it('go to the Hub with every request, and never to where it redirects', async () => {
    hub.tokens.set('hf_good', { accepted: true });
    hub.repositories.get('org/model')!.private = true;
    const source = await open('org/model', 'hf_good');
    await source.read('config.json', 0, 5);
    await source.read('model.safetensors', 70_000, 70_010);
    const by = (origin: string) => hub.requests.filter((request) => request.origin === origin);
    expect(new Set(by('hub').map(({ authorization }) => authorization))).toEqual(new Set(['Bearer hf_good']));
    expect(by('cdn').length).toBeGreaterThan(0);
    expect(new Set(by('cdn').map(({ authorization }) => authorization))).toEqual(new Set([undefined]));
  });
});

describe('refusals of the Hub', () => {
  it('a gated repository: where to accept its licence, and a token', async () => {
    hub.repositories.get('org/model')!.gated = true;
    hub.tokens.set('hf_other', { accepted: false });
    expect(await failure('org/model')).toMatchObject({
      code: 'io',
      message: expect.stringMatching(
        /org\/model is gated: accept its licence at http:.*\/org\/model, then give a token/,
      ),
    });
    expect(await failure('org/model', 'hf_other')).toMatchObject({
      code: 'io',
      message: expect.stringMatching(/the token's account has no access \(yet\)/),
    });
  });

  it('a repository that is missing or private', async () => {
    hub.tokens.set('hf_good', { accepted: true });
    const { code, message } = await failure('org/missing');
    expect([code, message]).toEqual(['io', expect.stringMatching(/org\/missing is not at http.*or it is private/)]);
    expect((await failure('org/missing', 'hf_good')).message).toMatch(/or the token may not see it/);
  });

  it('a revision and a file that are missing, and a token that is none', async () => {
    expect((await failure('org/model@v9')).message).toMatch(/org\/model has no revision 'v9'/);
    expect((await failure('org/model/x.gguf')).message).toMatch(/org\/model has no x\.gguf; it has no \.gguf file/);
    const bad = await failure('org/model', 'hf_bad');
    expect(bad.message).toMatch(/refuses the token .*\/settings\/tokens/);
    expect(bad.message).not.toContain('hf_bad');
  });

  it('waits as long as a rate limit says, and tells when to come again where that is too long', async () => {
    let limited = 0;
    hub.misbehave = (_request, response) => {
      if (++limited > 1) return false;
      response.writeHead(429, { 'Retry-After': '0' }).end();
      return true;
    };
    expect(await readText(await open('org/model'), 'config.json')).toBe('{"a":1}');
    hub.misbehave = (_request, response) => {
      response.writeHead(429, { 'Retry-After': '3600' }).end();
      return true;
    };
    expect((await failure('org/model')).message).toMatch(/HTTP 429.*in 3600 s; with a token/);
  });

  it('a Hub that is out of order, or not there', async () => {
    hub.misbehave = (_request, response) => {
      response.writeHead(503).end();
      return true;
    };
    expect((await failure('org/model')).message).toMatch(/out of order .*HTTP 503/);
    await hub[Symbol.asyncDispose]();
    expect((await failure('org/model')).message).toMatch(
      /can't be reached.*name a mirror \(option hub, --hub, HF_ENDPOINT\)/,
    );
  });

  it('a repository without a model that runs', async () => {
    hub.repositories.set('org/bin', { files: { 'config.json': '{}', 'pytorch_model.bin': 'x' } });
    expect((await failure('org/bin')).message).toMatch(
      /holds no model that runs here.*; it has pytorch_model\.bin, which transformers converts: .*from_pretrained\('org\/bin'\)/,
    );
  });
});

describe('repositories of GGUF files', () => {
  const gguf = (...files: string[]): void =>
    void hub.repositories.set('org/g', { files: Object.fromEntries(files.map((file, i) => [file, `GGUF${i}`])) });
  const chosen = async (text: string): Promise<string | undefined> => (await open(text)).gguf;

  it('the only one; projectors of images and other parts are none', async () => {
    gguf('m-00001-of-00002.gguf', 'm-00002-of-00002.gguf', 'mmproj-m.gguf', 'README.md');
    expect(await chosen('org/g')).toBe('m-00001-of-00002.gguf');
    gguf('m.IQ2_XS.gguf');
    expect(await chosen('org/g')).toBe('m.IQ2_XS.gguf');
  });

  it('of several the first quantisation of the list', async () => {
    gguf('m-Q8_0.gguf', 'm-Q4_0.gguf', 'm-Q2_K.gguf', 'm-f16.gguf');
    expect(await chosen('org/g')).toBe('m-Q4_0.gguf');
    gguf('m.Q8_0.gguf', 'Q4_K_M/m-Q4_K_M-00001-of-00002.gguf', 'Q4_K_M/m-Q4_K_M-00002-of-00002.gguf');
    expect(await chosen('org/g')).toBe('Q4_K_M/m-Q4_K_M-00001-of-00002.gguf');
    const source = await open('org/g');
    expect(source.url).toBe(`${hub.url}/org/g/resolve/main/Q4_K_M/m-Q4_K_M-00001-of-00002.gguf`);
    expect(source.at!.where).toBe('hf:org/g/Q4_K_M/m-Q4_K_M-00001-of-00002.gguf');
  });

  it("quantisations of Unsloth's own, which stand behind the plain ones; what a model was quantised by is none", async () => {
    gguf('UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00001.gguf', 'm-UD-Q2_K_XL.gguf', 'm-UD-IQ1_S.gguf', 'm-imatrix.gguf');
    expect(await chosen('org/g')).toBe('UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00001.gguf');
    expect(await chosen('org/g:UD-Q2_K_XL')).toBe('m-UD-Q2_K_XL.gguf');
    expect(await chosen('org/g:iq1_s')).toBe('m-UD-IQ1_S.gguf');
    gguf('m-UD-Q4_K_M.gguf', 'm-Q4_K_M.gguf');
    expect(await chosen('org/g')).toBe('m-Q4_K_M.gguf');
    expect(await chosen('org/g:ud-q4_k_m')).toBe('m-UD-Q4_K_M.gguf');
    gguf('m-IQ2_M.gguf', 'imatrix.gguf');
    expect(await chosen('org/g')).toBe('m-IQ2_M.gguf');
  });

  it('the one of a named quantisation, in any case, also beside safetensors', async () => {
    gguf('m-q8_0.gguf', 'm-q4_0.gguf', 'config.json', 'model.safetensors');
    expect(await chosen('org/g')).toBeUndefined();
    expect(await chosen('org/g:Q8_0')).toBe('m-q8_0.gguf');
    expect(await chosen('hf:org/g:q4_0')).toBe('m-q4_0.gguf');
    expect((await failure('org/g:Q6_K')).message).toMatch(/has no Q6_K; it has m-q4_0\.gguf \(5 B\), m-q8_0\.gguf/);
  });

  it('otherwise the choices are listed', async () => {
    gguf('m-IQ2_M.gguf', 'm-Q2_K.gguf');
    expect(await failure('org/g')).toMatchObject({
      code: 'usage',
      message: expect.stringMatching(/2 GGUF models.*name the file, as in org\/g\/m-IQ2_M\.gguf; there are/),
    });
    gguf('a-Q4_K_M.gguf', 'b-Q4_K_M.gguf');
    expect(await failure('org/g')).toMatchObject({
      code: 'usage',
      message: expect.stringMatching(/a-Q4_K_M.*b-Q4_K_M/),
    });
  });
});

it('a repository is asked for once, however many files are looked for', async () => {
  const fetched = vi.spyOn(globalThis, 'fetch');
  const source = await open('org/model');
  await Promise.all(['a', 'b', 'c'].map((file) => source.size(`${file}.json`)));
  expect(fetched).toHaveBeenCalledTimes(1);
  fetched.mockRestore();
});
