/** What the builds, of the library and of the pages, do to the source. */
import { builtinModules } from 'node:module';
import { gzipSync } from 'node:zlib';

/** What no build takes in: Node has it, or who needs it installs it. */
export const nodeOnly = [/^node:/, ...builtinModules, 'webgpu', 'sharp', 'node-llama-cpp', 'playwright-core', 'vite'];

/** WGSL as it is bundled: without comments, indentation and empty lines. The marks of variant lines stay: they are read (src/gpu/kernel.ts). */
export const plainWgsl = (text) =>
  text
    .split('\n')
    .map((line) => line.replace(/\/\/(?! variant\b).*$/, '').trim())
    .filter((line) => line !== '')
    .join('\n');

/** A style sheet without comments and indentation. */
const plainCss = (text) =>
  text
    .replace(/\/\*[^]*?\*\//g, '')
    .replace(/\s*\n\s*/g, '\n')
    .trim();

/** Vite plugin: `*.wgsl?raw` and `*.css?raw` are the plain text. */
export const bundleWgsl = () => ({
  name: 'splitkv-wgsl',
  enforce: 'pre',
  load: {
    filter: { id: /\.(wgsl|css)\?raw$/ },
    async handler(id) {
      const text = await this.fs.readFile(id.replace(/\?raw$/, ''), { encoding: 'utf8' });
      return `export default ${JSON.stringify(id.endsWith('.css?raw') ? plainCss(text) : plainWgsl(text))};`;
    },
  },
});

const EMPTY = '\0splitkv-node';
const NO_WORKERS = '\0splitkv-no-workers';

/** Vite plugin for what runs in pages alone: files that only Node loads (node*.ts, by `import()`) are left out. */
export const withoutNode = () => ({
  name: 'splitkv-without-node',
  enforce: 'pre',
  resolveId: {
    filter: { id: /\/node\w*\.js$/ },
    handler: (id) => (id.startsWith('.') ? EMPTY : undefined),
  },
  load: { filter: { id: new RegExp(`^${EMPTY}$`) }, handler: () => 'export {};' },
});

/** Vite plugin for a script by itself: it starts no workers. */
export const withoutWorkers = () => ({
  name: 'splitkv-without-workers',
  enforce: 'pre',
  resolveId: { filter: { id: /^\.\/(rank|form|share)_script\.js$/ }, handler: () => NO_WORKERS },
  load: {
    filter: { id: new RegExp(`^${NO_WORKERS}$`) },
    handler: () => 'export const [startFile, startText, startShared] = [];',
  },
});

/**
 * Vite plugin for the library: it starts ranks, forms and the worker of all tabs as their *_script_published.ts do. Side by side the workers are entries of it, so
 * that page and worker share their files.
 * @param codes each worker as one script, by the file that holds it as text
 */
export const publishedWorkers = (codes) => ({
  name: 'splitkv-worker',
  enforce: 'pre',
  resolveId: {
    filter: { id: /^\.\/(rank|form|share)_script\.js$/ },
    handler(id, importer) {
      return this.resolve(id.replace('_script', '_script_published'), importer);
    },
  },
  load: {
    filter: { id: /\/(rank|form)_worker_text\.ts$/ },
    handler: (id) =>
      `export const text = '${gzipSync(codes[id.replace(/.*\//, '')], { level: 9 }).toString('base64')}';`,
  },
});
