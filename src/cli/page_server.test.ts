import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { serveBuild, startPageServer } from './page_server.js';

test('serves the page and the model, and leaves signals to the command line', async () => {
  const listeners = process.listenerCount('SIGTERM');
  const server = await startPageServer('models/tiny-gqa');
  try {
    expect(process.listenerCount('SIGTERM')).toBe(listeners);
    expect((await fetch(`${server.url}host.html`)).status).toBe(200);
    expect(await (await fetch(`${server.modelUrl}config.json`)).json()).toHaveProperty('vocab_size');
    expect((await fetch(`${server.modelUrl}missing.json`)).status).toBe(404);
  } finally {
    await server.close();
  }
});

/** A raw request: fetch would tidy the path, and says its own Host. */
const get = (at: string, path: string, host?: string): Promise<{ readonly status: number; readonly body: string }> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(at);
    const headers = host === undefined ? {} : { host: host.replace('PORT', port) };
    request({ hostname, port, path, headers }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (text: string) => (body += text));
      response.on('end', () => resolve({ status: response.statusCode!, body }));
    })
      .on('error', reject)
      .end();
  });

describe('beside a model nothing is served', () => {
  const SECRET = 'secret';
  const COMMIT = 'c'.repeat(40);
  let folder: string;
  const write = async (files: Record<string, string>): Promise<void> => {
    for (const [name, text] of Object.entries(files)) {
      await mkdir(dirname(join(folder, name)), { recursive: true });
      await writeFile(join(folder, name), text);
    }
  };
  beforeEach(async () => {
    folder = await realpath(await mkdtemp(join(tmpdir(), 'splitkv-pages-')));
    await write({ 'outside.txt': SECRET });
  });
  afterEach(() => rm(folder, { recursive: true }));

  /** What each path below the model's folder is answered with. */
  const ask = async (model: string, paths: readonly string[]): Promise<(string | number)[]> => {
    const server = await startPageServer(join(folder, model));
    try {
      const base = new URL('.', server.modelUrl).pathname;
      const answers = await Promise.all(paths.map((path) => get(server.url, base + path)));
      for (const { body } of answers) expect(body).not.toContain(SECRET);
      return answers.map(({ status, body }) => (status === 200 ? body : status));
    } finally {
      await server.close();
    }
  };

  test('of a GGUF file: other files, folders, links out of it', async () => {
    await write({ 'dl/m.gguf': 'GGUF', 'dl/secret.txt': SECRET, 'dl/sub/p.txt': SECRET, 'dl/mmproj-m.gguf': 'clip' });
    await write({ 'dl/other.gguf': SECRET, 'dl/config.json': SECRET, 'dl/tokenizer.json': SECRET });
    await symlink('../outside.txt', join(folder, 'dl/link'));
    await symlink('..', join(folder, 'dl/up'));
    await symlink('../outside.txt', join(folder, 'dl/mmproj-link.gguf'));
    const ours = ['m.gguf', 'm.gguf?x=1', 'm%2Egguf', 'mmproj-m.gguf'];
    const others = [
      'secret.txt',
      'sub/p.txt',
      'mmproj-link.gguf',
      'other.gguf',
      'config.json',
      'tokenizer.json',
      'link',
    ];
    const tricks = ['up/outside.txt', '../outside.txt', '%2e%2e/outside.txt', 'm.gguf/../secret.txt', 'm.gguf%00', ''];
    const answers = await ask('dl/m.gguf', [...ours, ...others, ...tricks]);
    expect(answers.slice(0, 4)).toEqual(['GGUF', 'GGUF', 'GGUF', 'clip']);
    expect(answers.slice(4, 4 + others.length)).toEqual(others.map(() => 404));
    for (const status of answers.slice(4)) expect(status).toBeGreaterThanOrEqual(400);
  });

  test('the parts of a split model are served, where they lie beside the first one', async () => {
    const [one, two, three] = [1, 2, 3].map((part) => `m-0000${part}-of-00003.gguf`) as [string, string, string];
    await write({ [`a/${one}`]: '1', [`a/${two}`]: '2', 'a/m-00001-of-00002.gguf': SECRET });
    await symlink('../outside.txt', join(folder, 'a', three));
    expect(await ask(`a/${one}`, [one, two, three, 'm-00001-of-00002.gguf'])).toEqual(['1', '2', 404, 404]);
  });

  test('of a folder: what no load reads, and links out of it', async () => {
    const index = JSON.stringify({ weight_map: { a: 'w-1.safetensors', b: 'w/2.safetensors', c: '../outside.txt' } });
    await write({ 'm/config.json': '{}', 'm/model.safetensors.index.json': index, 'm/w-1.safetensors': '1' });
    await write({ 'm/w/2.safetensors': '2', 'm/w-3.safetensors': SECRET, 'm/.env': SECRET, 'm/notes.txt': SECRET });
    await symlink('../outside.txt', join(folder, 'm/tokenizer.json'));
    await symlink('config.json', join(folder, 'm/generation_config.json'));
    const paths = ['config.json', 'w-1.safetensors', 'w/2.safetensors', 'generation_config.json'];
    expect(await ask('m/', paths)).toEqual(['{}', '1', '2', '{}']);
    const others = ['tokenizer.json', 'w-3.safetensors', '.env', 'notes.txt', '../outside.txt', 'chat_template.jinja'];
    for (const answer of await ask('m/', others)) expect(answer).toBeGreaterThanOrEqual(400);
  });

  test("a snapshot of the Hub's cache is served, whose files are links", async () => {
    const at = `models--org--name/snapshots/${COMMIT}`;
    await write({ 'models--org--name/blobs/b1': '{}', 'models--org--name/blobs/b2': 'GGUF', [`${at}/x`]: SECRET });
    await mkdir(join(folder, at, 'q8'));
    await symlink('../../blobs/b1', join(folder, at, 'config.json'));
    await symlink('../../../blobs/b2', join(folder, at, 'q8/m.gguf'));
    await write({ 'models--org--name/blobs/b3': 'clip' });
    await symlink('../../../blobs/b3', join(folder, at, 'q8/mmproj-F16.gguf'));
    await symlink('../../../outside.txt', join(folder, at, 'tokenizer.json'));
    await symlink(`models--org--name/snapshots/${COMMIT}`, join(folder, 'mine'));
    for (const model of [at, 'mine']) {
      expect(await ask(`${model}/`, ['config.json', 'tokenizer.json', 'x'])).toEqual(['{}', 404, 404]);
      expect(await ask(`${model}/q8/m.gguf`, ['m.gguf', 'mmproj-F16.gguf', 'config.json'])).toEqual([
        'GGUF',
        'clip',
        404,
      ]);
    }
  });

  test("from the package's build, too, and to no page that comes by a name of its own", async () => {
    await write({ 'dist/cli/host.html': 'the page', 'dl/m.gguf': 'GGUF', 'dl/secret.txt': SECRET });
    const pages = await startPageServer(join(folder, 'dl/m.gguf'));
    await pages.close();
    const path = new URL(pages.modelUrl).pathname;
    for (const from of ['source', 'build'] as const) {
      const built: typeof serveBuild = (port, files) => serveBuild(port, files, join(folder, 'dist'));
      const server = await startPageServer(join(folder, 'dl/m.gguf'), 0, {}, from === 'build' ? built : undefined);
      try {
        for (const host of ['evil.example:PORT', 'evil.example', 'localhost.evil.example', '10.0.0.1:PORT']) {
          for (const asked of [path, '/cli/host.html', '/host.html', '/'])
            expect((await get(server.url, asked, host)).status, `${from} ${host} ${asked}`).toBe(403);
        }
        for (const host of ['127.0.0.1:PORT', 'localhost:PORT', '[::1]:PORT', undefined])
          expect(await get(server.url, path, host)).toEqual({ status: 200, body: 'GGUF' });
        expect((await get(server.url, path.replace('m.gguf', 'secret.txt'))).status).toBe(404);
        if (from === 'build')
          expect(await get(server.url, '/cli/host.html')).toEqual({ status: 200, body: 'the page' });
      } finally {
        await server.close();
      }
    }
  });
});

test('serves the parts of a GGUF model from the folder it is in', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'splitkv my '));
  await writeFile(join(folder, 'a #1.gguf'), 'GGUF');
  const server = await startPageServer(join(folder, 'a #1.gguf'));
  try {
    expect(server.modelUrl).toMatch(/\/a%20%231\.gguf$/);
    expect(await (await fetch(server.modelUrl)).text()).toBe('GGUF');
  } finally {
    await server.close();
    await rm(folder, { recursive: true });
  }
});
