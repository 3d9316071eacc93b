/** What both builds, of the library and of the pages, do to the source. */

/** WGSL as it is bundled: without comments, indentation and empty lines. The marks of variant lines stay: they are read (src/gpu/kernel.ts). */
export const plainWgsl = (text) =>
  text
    .split('\n')
    .map((line) => line.replace(/\/\/(?! variant\b).*$/, '').trim())
    .filter((line) => line !== '')
    .join('\n');

/** Vite plugin: `*.wgsl?raw` is the plain text. */
export const bundleWgsl = () => ({
  name: 'splitkv-wgsl',
  enforce: 'pre',
  load: {
    filter: { id: /\.wgsl\?raw$/ },
    async handler(id) {
      return `export default ${JSON.stringify(plainWgsl(await this.fs.readFile(id.replace(/\?raw$/, ''), { encoding: 'utf8' })))};`;
    },
  },
});

const WORKER = '__SPLITKV_RANK_WORKER__';

/**
 * Vite plugin for the library: the worker's script is one of its entries, so that page and worker share their files. Vite would
 * bundle all of it a second time. The address is written as bundlers of those who use the library look for it.
 */
export const sharedWorker = (script) => ({
  name: 'splitkv-worker',
  transform: {
    order: 'pre',
    filter: { id: /\/page_workers\.ts$/ },
    handler(code) {
      const shared = code.replace("new URL('./rank_worker.ts', import.meta.url)", WORKER);
      if (shared === code)
        throw new Error("page_workers.ts no longer starts './rank_worker.ts'; see scripts/build_plugins.mjs");
      return { code: shared, map: null };
    },
  },
  renderChunk(code) {
    return code.includes(WORKER)
      ? { code: code.replace(WORKER, `new URL("./${script}", import.meta.url)`), map: null }
      : undefined;
  },
});
