import { createHash } from 'node:crypto';
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { findMmproj } from '../gguf/file.js';
import { openSource } from '../open_source.js';
import { readText, type Source } from '../source.js';
import { type HubServer, startHub } from '../testing/hub_server.js';
import { parseHubName } from './hub_name.js';
import { type PulledModel, pullModel } from './node_hub.js';
import {
  allCaches,
  cacheOf,
  deleteLocalModel,
  hubCacheFolder,
  listLocalModels,
  type LocalModel,
  nodeAccess,
} from './node_hub_cache.js';

const weights = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 7) % 251);
const files = {
  'config.json': '{"a":1}',
  'tokenizer.json': `{"t":"${'x'.repeat(2000)}"}`,
  'model.safetensors': weights,
  'README.md': 'not needed',
};
let hub: HubServer;
let home: string;
beforeEach(async () => {
  hub = await startHub({ 'org/model': { files: { ...files }, branches: ['refs/pr/1'] } });
  home = await mkdtemp(join(tmpdir(), 'splitkv-hub-'));
  for (const name of ['HF_TOKEN', 'HF_HUB_CACHE', 'HF_TOKEN_PATH', 'HF_HUB_OFFLINE', 'HUGGINGFACE_HUB_CACHE']) {
    vi.stubEnv(name, '');
  }
  vi.stubEnv('HUGGING_FACE_HUB_TOKEN', '');
  vi.stubEnv('HF_HOME', home);
  vi.stubEnv('HF_ENDPOINT', hub.url);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await hub[Symbol.asyncDispose]();
  await rm(home, { recursive: true, force: true });
});

const quick = (): Promise<Response> => Promise.reject(new Error('unreachable'));
const pull = (text = 'org/model', options = {}): Promise<PulledModel> =>
  pullModel(parseHubName(text), options, undefined);
const open = (text: string, options = {}): Promise<Source> => openSource(text, undefined, { whole: true, ...options });
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const repository = (): string => join(cacheOf(hub.url), 'models--org--model');
/** The double in the Hub's own place. */
const asOfficial: typeof fetch = (url, init) => fetch((url as string).replace('https://huggingface.co', hub.url), init);

describe('pulling a model', () => {
  it("lays it out as the Hub's tools do, and in their folder: blobs by hash, links in a snapshot, a ref", async () => {
    vi.stubEnv('HF_ENDPOINT', '');
    const shared = join(home, 'hub', 'models--org--model');
    const progress: number[] = [];
    const pulled = await pull('org/model', {
      fetch: asOfficial,
      onProgress: ({ loadedBytes, totalBytes }: { loadedBytes: number; totalBytes: number }) =>
        progress.push(loadedBytes / totalBytes),
    });
    const commit = hub.commit('org/model');
    expect(pulled).toMatchObject({ folder: join(shared, 'snapshots', commit), gguf: undefined, commit });
    expect(pulled.files).toEqual(['config.json', 'tokenizer.json', 'model.safetensors']);
    expect(pulled.bytes).toBe(pulled.downloadedBytes);
    expect(await readFile(join(shared, 'refs', 'main'), 'utf8')).toBe(commit);
    expect(await readlink(join(pulled.folder, 'model.safetensors'))).toBe(`../../blobs/${sha256(weights)}`);
    expect(new Uint8Array(await readFile(join(pulled.folder, 'model.safetensors')))).toEqual(weights);
    expect(await readFile(join(pulled.folder, 'config.json'), 'utf8')).toBe('{"a":1}');
    expect(progress.at(-1)).toBe(1);
    expect(progress).toEqual([...progress].sort((a, b) => a - b));
  });

  it('downloads nothing a second time, and only what changed when the branch has moved', async () => {
    await pull();
    hub.requests.length = 0;
    expect((await pull()).downloadedBytes).toBe(0);
    expect(hub.requests.map(({ url }) => url)).toEqual(['/api/models/org/model/revision/main?blobs=true']);
    hub.repositories.get('org/model')!.files = { ...files, 'config.json': '{"a":22}' };
    expect((await pull()).downloadedBytes).toBe(8);
  });

  it('uses what another tool has put there', async () => {
    const commit = hub.commit('org/model');
    const snapshot = join(repository(), 'snapshots', commit);
    await mkdir(snapshot, { recursive: true });
    await mkdir(join(repository(), 'blobs'));
    await writeFile(join(repository(), 'blobs', sha256(weights)), weights);
    await symlink(`../../blobs/${sha256(weights)}`, join(snapshot, 'model.safetensors'));
    expect((await pull()).downloadedBytes).toBe(7 + files['tokenizer.json'].length);
  });

  it('goes on where a download broke off', async () => {
    const blob = join(repository(), 'blobs', sha256(weights));
    await mkdir(join(repository(), 'blobs'), { recursive: true });
    await writeFile(`${blob}.incomplete`, weights.slice(0, 250_000));
    await pull();
    expect(new Uint8Array(await readFile(blob))).toEqual(weights);
    expect(hub.requests.filter(({ origin }) => origin === 'cdn').map(({ range }) => range)).toContain(
      'bytes=250000-299999',
    );
    await expect(stat(`${blob}.incomplete`)).rejects.toThrow();
  });

  it('keeps a part of what broke off, and refuses what arrives damaged', async () => {
    const blob = join(repository(), 'blobs', sha256(weights));
    await mkdir(join(repository(), 'blobs'), { recursive: true });
    await writeFile(`${blob}.incomplete`, weights.slice(0, 250_000).fill(9, 1000, 1001));
    await expect(pull()).rejects.toMatchObject({ code: 'io', message: expect.stringMatching(/arrived damaged/) });
    await expect(stat(`${blob}.incomplete`)).rejects.toThrow(); // of no use
    await pull();
    expect(new Uint8Array(await readFile(blob))).toEqual(weights);
  });

  it('fetches a file again that is shorter than it should be', async () => {
    const { folder } = await pull();
    const blob = join(repository(), 'blobs', sha256(weights));
    await writeFile(blob, weights.slice(0, 10));
    await pull();
    expect((await stat(join(folder, 'model.safetensors'))).size).toBe(weights.byteLength);
  });

  it('takes the shards that an index names, and one GGUF file of many', async () => {
    const index = JSON.stringify({
      weight_map: { a: 'model-00001-of-00002.safetensors', b: 'model-00002-of-00002.safetensors' },
    });
    hub.repositories.set('org/shards', {
      files: {
        'config.json': '{}',
        'model.safetensors.index.json': index,
        'model-00001-of-00002.safetensors': 'one',
        'model-00002-of-00002.safetensors': 'two',
        'consolidated.safetensors': 'not needed',
      },
    });
    expect((await pull('org/shards')).files).toEqual([
      'config.json',
      'model.safetensors.index.json',
      'model-00001-of-00002.safetensors',
      'model-00002-of-00002.safetensors',
    ]);
    hub.repositories.set('org/g', { files: { 'q8/m-Q8_0.gguf': 'GGUF8', 'm-Q4_0.gguf': 'GGUF4' } });
    expect(await pull('org/g:Q8_0')).toMatchObject({ gguf: 'q8/m-Q8_0.gguf', files: ['q8/m-Q8_0.gguf'] });
    const both = { 'v-Q4_0.gguf': 'GGUF4', 'mmproj-BF16.gguf': 'clip', 'mmproj-F32.gguf': 'longer clip' };
    hub.repositories.set('org/v', { files: both });
    expect((await pull('org/v')).files).toEqual(['v-Q4_0.gguf']);
    // What is kept lacks it.
    const looked = await open('org/v', { whole: false, images: true });
    expect(await looked.size('mmproj-BF16.gguf')).toBe(4);
    expect((await pull('org/v', { images: true })).files).toEqual(['v-Q4_0.gguf', 'mmproj-BF16.gguf']);
    expect((await pull('org/v', { images: 'mmproj-F32.gguf' })).files).toContain('mmproj-F32.gguf');
    await expect(pull('org/v', { images: 'mmproj-x.gguf' })).rejects.toThrow(/has v-Q4_0\.gguf, but not mmproj-x/);
    delete hub.repositories.get('org/shards')!.files['model-00002-of-00002.safetensors'];
    await expect(pull('org/shards')).rejects.toThrow(/but not model-00002-of-00002\.safetensors/);
  });

  it('takes the modules that modules.json names, and a tokenizer of any kind', async () => {
    const modules = JSON.stringify([
      { path: '', type: 'sentence_transformers.models.Transformer' },
      { path: '1_Mean', type: 'sentence_transformers.models.Pooling' },
      { path: '2_Dense_64', type: 'sentence_transformers.models.Dense' },
      { path: '../x', type: 'sentence_transformers.models.Dense' },
      { path: '3_Normalize', type: 'sentence_transformers.models.Normalize' },
    ]);
    const read = {
      'config.json': '{}',
      'modules.json': modules,
      'tokenizer.model': 'pieces',
      '1_Mean/config.json': '{}',
      '2_Dense_64/config.json': '{}',
      '2_Dense_64/model.safetensors': 'dense',
      'model.safetensors': weights,
    };
    const others = { '2_Dense_128/config.json': '{}', '2_Dense_64/pytorch_model.bin': 'x', 'onnx/model.onnx': 'x' };
    hub.repositories.set('org/vectors', { files: { ...read, ...others } });
    expect((await pull('org/vectors')).files.toSorted()).toEqual(Object.keys(read).toSorted());
    hub.repositories.get('org/vectors')!.files['tokenizer.json'] = '{}';
    expect((await pull('org/vectors')).files).not.toContain('tokenizer.model');
  });

  it('finds what goes with a GGUF file anywhere in its repository, also by its path', async () => {
    const model = 'Q4_0/v-Q4_0-00001-of-00002.gguf';
    for (const encoder of ['mmproj-F16.gguf', 'encoders/mmproj-F16.gguf']) {
      hub.repositories.set('org/v', {
        files: { [model]: 'GGUF', [model.replace('1-of', '2-of')]: 'GGUF', [encoder]: 'clip' },
      });
      const named = await open('org/v', { images: true });
      const { folder } = await pull('org/v', { images: true });
      for (const source of [named, await open(named.at!.where), await open(join(folder, model))]) {
        expect([source.name, source.gguf]).toEqual([folder, model]);
        expect(await findMmproj(source, model)).toBe(encoder);
      }
    }
  });

  it('of a cache that can be read only takes what is there, and says where the rest would go', async () => {
    await pull();
    await rm(join(repository(), 'refs'), { recursive: true });
    await writeFile(join(repository(), 'refs'), 'no folder');
    expect((await pull()).downloadedBytes).toBe(0);
    hub.repositories.get('org/model')!.files = { ...files, 'config.json': '{"a":22}' };
    const blob = createHash('sha1').update('blob 8\0{"a":22}').digest('hex');
    await mkdir(join(repository(), 'blobs', `${blob}.incomplete`));
    await expect(pull()).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/can't be written: EISDIR.*HF_HUB_CACHE names another folder/),
    });
  });

  it('two pulls at once download once', async () => {
    const [one, two] = await Promise.all([pull(), pull()]);
    expect(one.downloadedBytes + two.downloadedBytes).toBe(one.bytes);
  });

  it('takes over the lock of a process that is gone', async () => {
    const lock = join(cacheOf(hub.url), '.locks', 'models--org--model', `${sha256(weights)}.splitkv`);
    await mkdir(join(lock, '..'), { recursive: true });
    await writeFile(lock, `999999999 ${(await import('node:os')).hostname()}`);
    expect((await pull()).downloadedBytes).toBeGreaterThan(0);
    await expect(stat(lock)).rejects.toThrow();
  });

  it('ends when it is told to', async () => {
    const signal = AbortSignal.abort();
    await expect(pullModel(parseHubName('org/model'), {}, signal)).rejects.toMatchObject({ code: 'aborted' });
  });
});

describe('a model by its name', () => {
  it('is a folder on this disk where there is one, else the Hub', async () => {
    const source = await open('org/model');
    expect(source.name).toBe(join(repository(), 'snapshots', hub.commit('org/model')));
    const commit = hub.commit('org/model');
    expect(source.at).toEqual({ where: source.name, commit, name: 'hf:org/model' });
    expect(await readText(source, 'config.json')).toBe('{"a":1}');
    const cwd = process.cwd();
    const here = await mkdtemp(join(tmpdir(), 'splitkv-here-'));
    try {
      process.chdir(here);
      await mkdir('org/model', { recursive: true });
      await writeFile('org/model/config.json', '{"local":1}');
      expect(await readText(await open('org/model'), 'config.json')).toBe('{"local":1}');
      expect(await readText(await open('hf:org/model'), 'config.json')).toBe('{"a":1}');
      await expect(open('./org/other')).rejects.toThrow(/does not exist/);
    } finally {
      process.chdir(cwd);
      await rm(here, { recursive: true });
    }
  });

  it('tells both readings of a name that means nothing', async () => {
    await expect(open('org/missing')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(
        /org\/missing is not at .*\(nor is there a folder or file of that name on this disk\)/,
      ),
    });
    await expect(open('smollm2-360m-instrukt')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringMatching(/the catalog has no model .*Did you mean 'smollm2-360m-instruct'/),
    });
  });

  it('may be one of the catalog, or the address of its page', async () => {
    const file = 'SmolLM2-360M-Instruct-Q4_K_M.gguf';
    hub.repositories.set('bartowski/SmolLM2-360M-Instruct-GGUF', {
      files: { [file]: '{"a":2}' },
      branches: ['7be6f65f1db715fe5dc5a4634c0d459b4eed42ec'],
    });
    expect(await readText(await open('SmolLM2-360M-Instruct'), file)).toBe('{"a":2}');
    for (const [address, options] of [
      [`${hub.url}/org/model`, { hub: hub.url }],
      [`${hub.url}/org/model/tree/main?x=1`, {}], // as HF_ENDPOINT says
      ['https://huggingface.co/org/model', {}], // which the mirror has
      ['https://hf.co/org/model', { hub: `${hub.url}/` }],
      ['hf.co/org/model', {}],
    ] as const)
      expect((await open(address, options)).name).toContain('models--org--model');
  });

  it('is read by ranges where only its plan is wanted, and from disk where it is there', async () => {
    const remote = await open('org/model', { whole: false });
    expect(remote.url).toBe(`${hub.url}/org/model/resolve/main/`);
    await expect(lstat(repository())).rejects.toThrow();
    const { folder } = await pull();
    expect((await open('org/model', { whole: false })).name).toContain('snapshots');
    await rm(join(folder, 'tokenizer.json')); // as other programs leave it
    expect((await open('org/model', { whole: false })).url).toContain('/org/model/resolve/');
  });

  it('opens the copy on disk where the Hub is out of reach, and says so', async () => {
    await pull();
    const warnings: string[] = [];
    const onWarning = (message: string): void => void warnings.push(message);
    const source = await open('org/model', { fetch: quick, onWarning });
    expect(await readText(source, 'config.json')).toBe('{"a":1}');
    expect(warnings).toEqual([
      expect.stringMatching(/the copy on this disk is used, because the Hub .* can't be reached/),
    ]);
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    hub.requests.length = 0;
    expect(await readText(await open('hf:org/model'), 'config.json')).toBe('{"a":1}');
    expect(hub.requests).toEqual([]);
    await expect(open('hf:org/other')).rejects.toThrow(/not complete in .*HF_HUB_OFFLINE/);
  }, 20_000);

  it('keeps the files of something else than a model, and opens them without the Hub', async () => {
    const adapter = ['adapter_config.json', 'adapter_model.safetensors'] as const;
    hub.repositories.set('org/lora', {
      files: { [adapter[0]]: '{"r":8}', [adapter[1]]: weights, 'training_args.bin': 'not needed' },
    });
    const openLora = (options = {}): Promise<Source> => open('hf:org/lora', { files: adapter, ...options });
    expect((await openLora({ whole: false })).url).toBe(`${hub.url}/org/lora/resolve/main/`);
    const source = await openLora();
    expect(source.name).toContain('snapshots');
    expect((await readdir(source.name)).sort()).toEqual([...adapter]);
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    hub.requests.length = 0;
    expect(await readText(await openLora(), adapter[0])).toBe('{"r":8}');
    expect(hub.requests).toEqual([]);
    await expect(open('hf:org/lora')).rejects.toThrow(/not complete in/);
  });

  it('says that the Hub is out of reach where nothing is kept', async () => {
    await expect(open('hf:org/model', { fetch: quick })).rejects.toThrow(/can't be reached.*unreachable/);
  }, 20_000);
});

describe('what another Hub serves', () => {
  const tree = async (): Promise<string[]> => (await readdir(join(home, 'hub'), { recursive: true })).sort();
  const notKept = {
    code: 'io',
    message: expect.stringMatching(/huggingface\.co is not complete in .*one of another Hub in/),
  };

  it.each(['hub', 'HF_ENDPOINT'])("never counts as the Hub's own, named by %s", async (by) => {
    vi.stubEnv('HF_ENDPOINT', by === 'hub' ? '' : hub.url);
    const other = by === 'hub' ? { hub: hub.url } : {};
    await pull('org/model', other);
    expect((await tree()).filter((path) => path.startsWith('models--') || path.startsWith('.locks'))).toEqual([]);
    vi.stubEnv('HF_ENDPOINT', '');
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    for (const whole of [true, false]) {
      await expect(open('hf:org/model', { whole })).rejects.toMatchObject(notKept);
      await expect(open(`hf:org/model@${hub.commit('org/model')}`, { whole })).rejects.toMatchObject(notKept);
      await expect(open('hf:org/model', { whole, hub: `${hub.url}/other` })).rejects.toMatchObject({ code: 'io' });
      vi.stubEnv('HF_ENDPOINT', by === 'hub' ? '' : hub.url);
      expect(await readText(await open('hf:org/model', { whole, ...other }), 'config.json')).toBe('{"a":1}');
      vi.stubEnv('HF_ENDPOINT', '');
    }
  });

  it("isn't taken for what the Hub has under the same commit, and leaves it as it is", async () => {
    vi.stubEnv('HF_ENDPOINT', '');
    const evil = await startHub({ 'org/model': { files: { ...files, 'config.json': '{"a":6}' } } });
    evil.commit = () => hub.commit('org/model');
    await pull('org/model', { hub: evil.url });
    await pull('org/model', { fetch: asOfficial });
    await pull('org/model', { hub: evil.url });
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    expect(await readText(await open('hf:org/model'), 'config.json')).toBe('{"a":1}');
    expect(await readText(await open('hf:org/model', { hub: evil.url }), 'config.json')).toBe('{"a":6}');
    await evil[Symbol.asyncDispose]();
  });

  it('has a folder for each endpoint, on file systems that mix up case, too', () => {
    const endpoints = [
      'http://h',
      'https://h',
      'http://h:81',
      'http://h/a',
      'http://h/A',
      'http://h/_41',
      'http://h/a.',
    ];
    endpoints.push(`http://h/${'a'.repeat(300)}`, `http://h/${'a'.repeat(301)}`);
    const folders = endpoints.map((endpoint) => cacheOf(endpoint, { HF_HUB_CACHE: '/c' }));
    expect(new Set(folders.map((folder) => folder.toLowerCase())).size).toBe(endpoints.length);
    for (const folder of folders) expect(folder).toMatch(/^[/\\]c[/\\]\.splitkv[/\\][\w.-]{1,120}(?<!\.)$/);
    expect(cacheOf('https://huggingface.co', { HF_HUB_CACHE: '/c' })).toBe('/c');
  });
});

describe('the environment', () => {
  it("gives the token of HF_TOKEN, else of the login's file; options win", async () => {
    expect((await nodeAccess({})).token).toBeUndefined();
    await writeFile(join(home, 'token'), 'hf_file\n');
    expect((await nodeAccess({})).token).toBe('hf_file');
    await writeFile(join(home, 'other'), 'hf_other');
    vi.stubEnv('HF_TOKEN_PATH', join(home, 'other'));
    expect((await nodeAccess({})).token).toBe('hf_other');
    vi.stubEnv('HF_TOKEN', ' hf_env ');
    expect((await nodeAccess({})).token).toBe('hf_env');
    expect((await nodeAccess({ token: 'hf_given' })).token).toBe('hf_given');
    vi.stubEnv('HF_HUB_DISABLE_IMPLICIT_TOKEN', '1');
    expect((await nodeAccess({})).token).toBeUndefined();
  });

  it('names the Hub and the folders; its token goes to no other Hub', async () => {
    vi.stubEnv('HF_TOKEN', 'hf_env');
    expect(await nodeAccess({})).toMatchObject({ endpoint: hub.url, token: 'hf_env' });
    expect(await nodeAccess({ hub: 'https://mirror.example/hf/' })).toMatchObject({
      endpoint: 'https://mirror.example/hf',
      token: undefined,
    });
    expect(hubCacheFolder({ HF_HOME: '/h' })).toBe(join('/h', 'hub'));
    expect(hubCacheFolder({ HF_HOME: '/h', HF_HUB_CACHE: '/c' })).toBe('/c');
    expect(hubCacheFolder({ XDG_CACHE_HOME: '/x' })).toBe(join('/x', 'huggingface', 'hub'));
    await expect(nodeAccess({ hub: 'ftp://x' })).rejects.toMatchObject({ code: 'usage' });
    vi.stubEnv('HF_TOKEN', 'two words');
    await expect(nodeAccess({})).rejects.toMatchObject({ code: 'usage', message: expect.not.stringContaining('two') });
  });

  it('is sent to the Hub, not to a URL elsewhere', async () => {
    vi.stubEnv('HF_TOKEN', 'hf_env');
    hub.tokens.set('hf_env', { accepted: true });
    hub.repositories.get('org/model')!.gated = true;
    await pull();
    expect(
      hub.requests.filter(({ origin, authorization }) => (authorization !== undefined) !== (origin === 'hub')),
    ).toEqual([]);
    hub.requests.length = 0;
    await open(`${hub.cdn}/model/`, { token: 'hf_env' }).catch(() => {});
    expect(hub.requests.length).toBeGreaterThan(0);
    expect(hub.requests.filter(({ authorization }) => authorization !== undefined)).toEqual([]);
  });
});

describe('what is on this disk', () => {
  it('is listed and deleted', async () => {
    await pull();
    hub.repositories.set('org/g', { files: { 'm-Q4_0.gguf': 'GGUF4' } });
    await pull('org/g');
    const cache = cacheOf(hub.url);
    expect(await allCaches()).toEqual([hubCacheFolder(), cache]);
    await mkdir(join(cache, 'models--org--begun', 'blobs'), { recursive: true });
    await mkdir(join(cache, 'datasets--org--data'), { recursive: true });
    const adapter = { 'adapter_config.json': '{}', 'adapter_model.safetensors': 'pairs' };
    hub.repositories.set('org/lora', { files: { ...adapter, 'training_args.bin': 'x' } });
    await expect(pull('org/lora')).rejects.toThrow(/holds no model that runs here/);
    const pulled = await pullModel(parseHubName('org/lora'), {}, undefined, true);
    expect(pulled.files).toEqual(Object.keys(adapter));
    const local = await listLocalModels(cache);
    expect(local.map(({ repo, kind, complete }) => [repo, kind, complete])).toContainEqual([
      'org/lora',
      'adapter',
      true,
    ]);
    await deleteLocalModel(cache, 'org/lora');
    const listed = await listLocalModels(cache);
    expect(listed.map(({ repo, complete, gguf }) => [repo, complete, gguf])).toEqual([
      ['org/g', true, ['m-Q4_0.gguf']],
      ['org/model', true, []],
    ]);
    expect(listed[1]!.bytes).toBeGreaterThan(weights.byteLength);
    await rm(join(listed[1]!.snapshot, 'model.safetensors'));
    expect((await listLocalModels(cache))[1]).toMatchObject({ repo: 'org/model', complete: false });
    const [{ snapshot }] = listed as [LocalModel, LocalModel];
    await rename(join(snapshot, 'm-Q4_0.gguf'), join(snapshot, 'm-Q4_0-00001-of-00002.gguf'));
    expect((await listLocalModels(cache))[0]).toMatchObject({ repo: 'org/g', complete: false });
    expect(await deleteLocalModel(cache, 'org/model')).toBeGreaterThan(weights.byteLength);
    expect(await deleteLocalModel(cache, 'org/model')).toBeUndefined();
    expect(await listLocalModels(cache)).toHaveLength(1);
  });
});
