import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { expect, type Page, test } from '@playwright/test';
import { drawn } from '../../src/gpu/testing/draw.js';
import { QUESTIONS, STORY } from '../../models/example.js';
import type { Model } from '../../src/index.js';
import { HostPage } from '../support/host_page.js';

// The test server builds dist/ before it starts.

// More than one attention chunk of 256 tokens, so that both ranks of a split sequence have work.
const tokens = Array.from({ length: 290 }, (_, i) => 260 + ((i * 7919) % 600));

test('two ranks in Web Workers give the same bits as one rank in the page', async ({ page }) => {
  const host = await HostPage.open(page);
  await host.load('/models/tiny-gqa/', { cache: false });
  const one = await host.logitsDigest(tokens);
  expect(one.rows).toBe(tokens.length);
  let downloaded = 0;
  page.on('response', (response) => {
    if (!response.url().endsWith('.safetensors') || response.request().method() !== 'GET') return;
    downloaded += Number(response.headers()['content-length']);
  });
  const { size } = statSync('models/tiny-gqa/model.safetensors');
  for (const [plan, least, most] of [
    ['tp', 1, 1.1], // once, not once per rank
    ['sp', 0, 0.1], // all of it is in the cache
  ] as const) {
    downloaded = 0;
    await host.load('/models/tiny-gqa/', { ranks: 2, plan, workers: true });
    expect(downloaded / size, plan).toBeGreaterThanOrEqual(least);
    expect(downloaded / size, plan).toBeLessThan(most);
    await expect.poll(() => page.workers().length, plan).toBe(2);
    expect(await host.logitsDigest(tokens), plan).toEqual(one);
  }
  await host.load('/models/tiny-gqa/', { cache: false });
  await expect.poll(() => page.workers().length, 'none is left after dispose').toBe(0);
});

/** The built library in a plain page, from `origin` as a CDN would serve it. */
async function plainPage(page: Page, origin: string): Promise<string> {
  await page.route(`${origin}/lib/*.js`, (route) => {
    const file = join('dist', basename(new URL(route.request().url()).pathname));
    return existsSync(file)
      ? route.fulfill({
          contentType: 'text/javascript',
          headers: { 'access-control-allow-origin': '*' },
          body: readFileSync(file, 'utf8'),
        })
      : route.fulfill({ status: 404 });
  });
  await page.route('**/plain.html', (route) =>
    route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>plain</title>' }),
  );
  await page.goto('/plain.html');
  return `${origin}/lib/splitkv.js`;
}

const places = [
  ['its own origin', ''],
  ['another origin', 'https://cdn.test'],
] as const;
for (const [where, origin] of drawn(places, 1, 'origins')) {
  test(`the built library of ${where} runs files that a person chose on ranks in workers`, async ({
    page,
    baseURL,
  }) => {
    const address = await plainPage(page, origin || baseURL!.replace(/\/$/, ''));
    const { question, answer } = QUESTIONS[2];
    const text = await page.evaluate(
      async ([library, content]) => {
        const { load } = (await import(library)) as typeof import('../../src/index.js');
        const names = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'];
        const files = await Promise.all(
          names.map(async (name) => new File([await (await fetch(`/models/tiny-gqa/${name}`)).blob()], name)),
        );
        const model = await load(files, { ranks: 2, plan: 'tp', workers: true });
        const completion = await model.chat.completions.create({
          messages: [{ role: 'user', content }],
          max_tokens: 20,
        });
        await model.dispose();
        return completion.choices[0]!.message.content;
      },
      [address, `${STORY} ${question}`] as const,
    );
    expect(text!.trim()).toBe(answer);
    await expect.poll(() => page.workers().length).toBe(0);
  });
}

const readyIn = [
  ['a worker', 1],
  ["the page, whose policy has worker-src 'none'", 0],
] as const;
for (const [where, workers] of drawn(readyIn, 1, 'forms')) {
  test(`a form is made ready in ${where}`, async ({ page, baseURL }) => {
    const address = await plainPage(page, baseURL!.replace(/\/$/, ''));
    if (workers === 0) {
      await page.route('**/plain.html', (route) =>
        route.fulfill({
          contentType: 'text/html',
          headers: { 'Content-Security-Policy': "worker-src 'none'" },
          body: '<!doctype html><title>plain</title>',
        }),
      );
      await page.reload();
    }
    const texts = await page.evaluate(async (library) => {
      const { load } = (await import(library)) as typeof import('../../src/index.js');
      const model = await load('/models/tiny-gqa/', { cache: false });
      (globalThis as unknown as { model: Model }).model = model;
      const wrong = await model.generate('the cat', { regex: '(' }).result.catch(({ code }: { code: string }) => code);
      const { text } = await model.generate('the cat', { regex: 'yes|no', maxTokens: 9 }).result;
      return [wrong, text];
    }, address);
    expect(texts).toEqual(['usage', expect.stringMatching(/^(yes|no)$/)]);
    expect(page.workers().length).toBe(workers);
    await page.evaluate(() => (globalThis as unknown as { model: Model }).model.dispose());
    await expect.poll(() => page.workers().length).toBe(0);
  });
}

/** In a worker: the next step's device is destroyed. */
function destroysDevice(): void {
  const create = GPUDevice.prototype.createCommandEncoder;
  GPUDevice.prototype.createCommandEncoder = function (descriptor) {
    this.destroy();
    return create.call(this, descriptor);
  };
}

test('a rank that breaks in its worker fails the generation, and recover() replaces it', async ({ page, baseURL }) => {
  const address = await plainPage(page, baseURL!.replace(/\/$/, ''));
  type Held = { model: Model; ended: Promise<string> };
  await page.evaluate(async (library) => {
    const { load } = (await import(library)) as typeof import('../../src/index.js');
    const model = await load('/models/tiny-gqa/', { ranks: 2, plan: 'tp', workers: true, cache: false });
    (globalThis as unknown as Held).model = model;
  }, address);
  /** Starts a generation: its tokens, or the code and message it fails with. */
  const begin = (maxTokens: number) =>
    page.evaluate((most) => {
      const held = globalThis as unknown as Held;
      const { result } = held.model.generate([1, 300, 301, 302], { ignoreEos: true, maxTokens: most });
      held.ended = result.then(
        ({ tokens: ids }) => ids.join(),
        ({ code, message }: { code: string; message: string }) => `${code}: ${message}`,
      );
    }, maxTokens);
  const end = () => page.evaluate(() => (globalThis as unknown as Held).ended);
  await begin(8);
  const expected = await end();
  expect(expected).toMatch(/^\d+(,\d+){7}$/);
  const breaks = [
    ['device_lost', destroysDevice],
    ['peer_lost', () => void Promise.reject(new Error('broken on purpose'))],
  ] as const;
  for (const [code, breakIt] of breaks) {
    await expect.poll(() => page.workers().length).toBe(2);
    const [first, second] = page.workers();
    await begin(1000);
    await second!.evaluate(breakIt);
    expect(await end()).toMatch(new RegExp(`^${code}: `));
    await begin(8);
    expect(await end()).toMatch(new RegExp(`^${code}: `));
    await page.evaluate(() => (globalThis as unknown as Held).model.recover());
    await expect.poll(() => page.workers().length).toBe(2);
    expect(page.workers()).toContain(first);
    expect(page.workers()).not.toContain(second);
    await begin(8);
    expect(await end()).toBe(expected);
  }
});

test('a worker script that is not served has a substitute; without that one it is an error, not a wait', async ({
  page,
  baseURL,
}) => {
  const address = await plainPage(page, baseURL!.replace(/\/$/, ''));
  const loads = () =>
    page.evaluate(async (library) => {
      const { load } = (await import(library)) as typeof import('../../src/index.js');
      return load('/models/tiny-gqa/', { workers: true, cache: false }).then(
        async (model) => {
          await model.dispose();
          return { code: 'none', message: '' };
        },
        ({ code, message }: { code: string; message: string }) => ({ code, message }),
      );
    }, address);
  await page.route('**/splitkv-rank_worker.js', (route) => route.fulfill({ status: 404 }));
  expect(await loads()).toEqual({ code: 'none', message: '' });
  await page.route('**/splitkv-rank_worker_text.js', (route) => route.fulfill({ status: 404 }));
  await page.reload();
  const outcome = await loads();
  expect(outcome).toMatchObject({ code: 'io', message: expect.stringContaining("worker can't be started") });
});

test('the packed command line runs ranks in worker_threads, and ends', () => {
  const root = mkdtempSync(join(tmpdir(), 'splitkv-workers-'));
  try {
    for (const name of ['bin', 'dist', 'package.json']) cpSync(name, join(root, name), { recursive: true });
    symlinkSync(resolve('node_modules'), join(root, 'node_modules'), 'junction');
    const digest = (...more: string[]): string => {
      const args = [
        'logits',
        '--model',
        resolve('models/tiny-gqa'),
        '--tokens',
        '1,300,301',
        '--all',
        '--json',
        ...more,
      ];
      const run = spawnSync(process.execPath, [join(root, 'bin/splitkv.js'), ...args], {
        encoding: 'utf8',
        cwd: tmpdir(),
        timeout: 120_000,
      });
      expect(run.status, run.stderr).toBe(0);
      return (JSON.parse(run.stdout) as { results: { sha256: string }[] }).results[0]!.sha256;
    };
    expect(digest('--ranks', '2', '--plan', 'sp', '--workers')).toBe(digest());
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
