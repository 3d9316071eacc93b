import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from '@playwright/test';
import { build } from 'vite';
import { serveFiles } from '../../src/server/static_files.js';

// The test server builds dist/ before it starts.

/** The files of dist/ that these import, and those import, statically. */
function reached(...entries: readonly string[]): Set<string> {
  const files = new Set<string>();
  const add = (file: string): void => {
    if (files.has(file)) return;
    files.add(file);
    const text = readFileSync(join('dist', file), 'utf8');
    for (const [, next] of text.matchAll(/(?:from|import)\s*["'`]\.\/([\w.-]+\.js)["'`]/g)) add(next!);
  };
  for (const entry of entries) add(entry);
  return files;
}

const gzipped = (files: Iterable<string>): number =>
  [...files].reduce((sum, file) => sum + gzipSync(readFileSync(join('dist', file)), { level: 9 }).length, 0);

/** What any page may need that loads a model in safetensors and generates with it, its ranks in workers. */
const core = (): Set<string> => reached('splitkv.js', 'splitkv-page_workers.js', 'splitkv-rank_worker.js');
/** What comes with the first use of it. */
const ON_DEMAND = ['chat', 'self_test', 'pick_plan', 'plan_model', 'basics', 'gguf_files', 'serving_model', 'parse_plan'];

test('the runtime is small: dependencies, WGSL and workers included', () => {
  const files = core();
  const kilobytes = gzipped(files) / 1000;
  expect(files.size).toBeGreaterThan(5);
  expect(kilobytes).toBeGreaterThan(50);
  expect(kilobytes).toBeLessThan(150);
});

test('what is loaded on demand is not loaded before, and is not large', () => {
  const first = core();
  const all = reached(...first, ...ON_DEMAND.map((name) => `splitkv-${name}.js`));
  for (const name of ON_DEMAND) expect(first).not.toContain(`splitkv-${name}.js`);
  expect(gzipped(all) / 1000).toBeLessThan(200);
  const rest = readdirSync('dist').filter((file) => file.endsWith('.js') && !all.has(file));
  for (const file of rest) expect(file, 'any other file is for Node').toMatch(/^splitkv-node/);
});

test.describe('for bundlers', () => {
  const root = mkdtempSync(join(tmpdir(), 'splitkv-bundled-'));
  const packed = join(root, 'node_modules/splitkv');
  test.beforeAll(() => {
    mkdirSync(packed, { recursive: true });
    cpSync('dist', join(packed, 'dist'), { recursive: true });
    cpSync('package.json', join(packed, 'package.json'));
  });
  test.afterAll(() => rmSync(root, { recursive: true, force: true }));

  const bundle = async (name: string, script: string): Promise<string> => {
    const folder = join(root, name);
    mkdirSync(folder);
    writeFileSync(
      join(folder, 'index.html'),
      `<!doctype html><title>${name}</title><script type="module" src="./main.js"></script>`,
    );
    writeFileSync(join(folder, 'main.js'), script);
    await build({ root: folder, base: './', configFile: false, logLevel: 'error', worker: { format: 'es' } });
    return join(folder, 'dist');
  };

  test('who takes one name gets its part only', async () => {
    const folder = await bundle(
      'one',
      "import { SplitkvError } from 'splitkv'; globalThis.found = new SplitkvError('usage', '');",
    );
    const [file, ...more] = readdirSync(join(folder, 'assets'));
    expect(more).toEqual([]);
    expect(readFileSync(join(folder, 'assets', file!), 'utf8').length).toBeLessThan(3000);
  });

  test('a bundled page runs ranks in workers', async ({ page }) => {
    const folder = await bundle('whole', "import { load } from 'splitkv'; globalThis.load = load;");
    const [pages, models] = [serveFiles('/', folder), serveFiles('/models', resolve('models'))];
    const server = createServer((request, response) =>
      models(request, response, () => pages(request, response, () => {})),
    );
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    try {
      await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/index.html`);
      const result = await page.evaluate(async () => {
        const { load } = globalThis as unknown as typeof import('../../src/index.js');
        const model = await load('/models/tiny-gqa/', { workers: true, cache: false, contextLength: 64 });
        const { tokens } = await model.generate([1, 300, 301], { maxTokens: 3, ignoreEos: true }).result;
        await model.dispose();
        return tokens.length;
      });
      expect(result).toBe(3);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});
