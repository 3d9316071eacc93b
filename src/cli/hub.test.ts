import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { type HubServer, startHub } from '../loader/testing/hub_server.js';
import { runCli } from './testing/run_cli.js';
import { runHere } from './testing/run_here.js';

const embedded: Record<string, Uint8Array> = {};
let hub: HubServer;
let home: string;
let env: Record<string, string>;

beforeAll(async () => {
  for (const file of [
    'config.json',
    'tokenizer.json',
    'tokenizer_config.json',
    'generation_config.json',
    'model.safetensors',
  ]) {
    const bytes = await readFile(join('models/tiny-gqa', file)).catch(() => undefined);
    if (bytes) embedded[file] = new Uint8Array(bytes);
  }
  hub = await startHub({
    'tiny/Stories': { files: embedded },
    'tiny/Other': { files: { ...embedded, 'config.json': '{"model_type":"mamba"}' } },
  });
});
afterAll(() => hub[Symbol.asyncDispose]());
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'splitkv-cli-hub-'));
  env = { HF_HOME: home, HF_ENDPOINT: hub.url, HF_TOKEN: '', HF_HUB_CACHE: '' };
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(home, { recursive: true, force: true });
});

describe('models of the Hub on the command line', () => {
  it('pulls, lists and deletes them', async () => {
    const pulled = await runHere(['pull', 'tiny/Stories', '--json']);
    expect(pulled.stderr).toBe('');
    const document = JSON.parse(pulled.stdout) as { path: string; bytes: number; downloaded_bytes: number };
    expect(document).toMatchObject({ model: 'tiny/Stories', commit: hub.commit('tiny/Stories'), gguf: null });
    expect(document.downloaded_bytes).toBe(document.bytes);
    expect(await readdir(document.path)).toContain('model.safetensors');
    const again = await runHere(['pull', 'hf:tiny/Stories']);
    expect(again).toMatchObject({
      code: 0,
      stdout: `${document.path}\n`,
      stderr: expect.stringMatching(/nothing was missing/),
    });

    const listed = JSON.parse((await runHere(['models', '--json'])).stdout) as Record<
      string,
      Record<string, unknown>[]
    >;
    expect(listed['local']).toEqual([
      expect.objectContaining({ model: 'tiny/Stories', revision: 'main', complete: true, path: document.path }),
    ]);
    expect(listed['catalog']!.map(({ name }) => name)).toContain('smollm2-360m-instruct');
    const text = (await runHere(['models'])).stdout;
    expect(text).toMatch(/tiny\/Stories +[\d.]+ MiB +complete/);
    expect(text).toMatch(/llama-3\.2-1b-instruct +1\.2 B +770 MiB +~770 MiB/);

    const catalog = text.slice(text.indexOf('the catalog')).trimEnd().split('\n');
    expect(catalog.length).toBeGreaterThan(30);
    expect(catalog.filter((line) => line.length > 80)).toEqual([]);
    expect((await runHere(['models', '--verbose'])).stdout).toContain('bartowski/SmolLM2-360M-Instruct-GGUF');
    expect((await runHere(['models', '--delete', 'tiny/Stories'])).stdout).toMatch(/tiny\/Stories deleted: [\d.]+ MiB/);
    expect(await runHere(['models', '--delete', 'tiny/Stories'])).toMatchObject({ code: 1 });
  });

  it.each([
    [['pull'], 2, /which model\?/],
    [['pull', 'smollm'], 2, /expected ORG\/NAME/],
    [['pull', 'a/b', 'c/d'], 2, /unexpected argument 'c\/d'/],
    [['pull', 'tiny/missing'], 1, /tiny\/missing is not at/],
    [['pull', 'tiny/Stories@v7'], 1, /no revision 'v7'/],
    [['pull', 'hf:tiny/St ories'], 2, /may hold letters/],
    [
      ['generate', '--prompt', 'x', '--model', 'tiny/missing'],
      1,
      /^splitkv: --model tiny\/missing: no such folder or file on this disk, and .*tiny\/missing is not at/,
    ],
    [['generate', '--prompt', 'x', '--model', 'tiny/Other'], 1, /model_type "mamba" is not supported/],
    [['generate', '--prompt', 'x', '--model', 'smollm2-360m-instruc'], 1, /Did you mean 'smollm2-360m-instruct'/],
    [['generate', '--prompt', 'x', '--model', 'tiny/Stories', '--hub', 'nowhere'], 2, /hub 'nowhere': expected/],
  ])('refuses %j', async (args, code, message) => {
    const done = await runHere(args as string[]);
    expect(done).toMatchObject({ code, stdout: '', stderr: expect.stringMatching(message as RegExp) });
    expect(await readdir(home)).toEqual([]); // before anything is downloaded
  });

  it('downloads a model that --model names, then answers; offline from then on', async () => {
    const args = [
      'generate',
      '--model',
      'tiny/Stories',
      '--prompt',
      'lena hid the red needle in the bag .',
      '--max-tokens',
      '2',
      '--seed',
      '1',
      '--json',
    ];
    const first = await runCli(args, { env });
    expect(first).toMatchObject({ code: 0 });
    const requests = hub.requests.length;
    const second = await runCli(args, { env: { ...env, HF_HUB_OFFLINE: '1' } });
    expect(second).toMatchObject({ code: 0 });
    expect(hub.requests).toHaveLength(requests);
    const tokens = [first, second].map(({ stdout }) => (JSON.parse(stdout) as { tokens: number[] }).tokens);
    expect(tokens[0]).toHaveLength(2);
    expect(tokens[1]).toEqual(tokens[0]);
  }, 240_000);
});
