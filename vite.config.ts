import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';
import { MARK, navigation, PAGES } from './pages/shared/pages.js';
import { BESIDE_PAGES } from './scripts/beside_pages.mjs';
import { bundleWgsl } from './scripts/build_plugins.mjs';
import { serveFiles } from './src/server/http/static_files.js';

const root = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

// Loaded only where the code finds itself in Node, or is asked for it.
const external = [/^node:/, 'webgpu', 'sharp', 'node-llama-cpp', /^onnxruntime-web/];

/** What the pages find beside them. From source the library is, too, by the address that it has in the package. */
function besidePages(): Plugin {
  const library: Readonly<Record<string, string>> = {
    '/splitkv/splitkv.js': root('src/index.ts'),
    '/splitkv/splitkv-chat.js': root('src/app/chat/index.ts'),
  };
  const folders = Object.entries(BESIDE_PAGES).map(
    ([at, from]) => [`/${at}`, serveFiles(`/${at}`, root(from))] as const,
  );
  return {
    name: 'splitkv-beside-pages',
    resolveId: (id) => library[id],
    configureServer: ({ middlewares }) => {
      for (const [at, handler] of folders) if (at !== '/splitkv') middlewares.use(handler);
    },
    configurePreviewServer: ({ middlewares }) => {
      for (const [, handler] of folders) middlewares.use(handler);
    },
  };
}

/** What the head of every page begins with, unless it brings its own. */
const HEAD = `
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <link rel="icon" href="${MARK}" />`;

/** Heads of pages, what links to them show, and the navigation: in the text, so that nothing moves once scripts have come. */
const pageHeads = (): Plugin => ({
  name: 'splitkv-page-heads',
  transformIndexHtml: {
    order: 'pre',
    handler: (html, { path }) => {
      const page = PAGES.find(({ address }) => path.endsWith(`/${address}`));
      const [, title = ''] = /<title>(.*)<\/title>/.exec(html) ?? [];
      const [, own] = /<meta\s+name="description"\s+content="([^"]*)"/.exec(html) ?? [];
      const about = own ?? page?.about;
      const card = page
        ? `
    <meta property="og:type" content="website" />
    <meta property="og:site_name" content="splitkv" />
    <meta property="og:title" content="${title}" />
    <meta property="og:description" content="${about}" />
    <meta name="twitter:card" content="summary" />
    <meta name="theme-color" media="(prefers-color-scheme: light)" content="#f5f6f8" />
    <meta name="theme-color" media="(prefers-color-scheme: dark)" content="#14161a" />${
      own === undefined ? `\n    <meta name="description" content="${about}" />` : ''
    }`
        : '';
      const whole = html.replace('<site-nav></site-nav>', navigation(page?.address));
      return whole.includes('<meta charset') ? whole : whole.replace('<head>', `<head>${HEAD}${card}`);
    },
  },
});

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" fill="#f5f6f8"/><rect x="1.5" y="1.5" width="2" height="5" rx=".6" fill="#3b6fd4"/><rect x="4.5" y="1.5" width="2" height="5" rx=".6" fill="#d4773b"/></svg>`;

/** What makes the site installable, and open without a network: `keepSite` of pages/shared asks for it. */
const installable = (): Plugin => ({
  name: 'splitkv-installable',
  apply: 'build',
  transformIndexHtml: (_html, { path }) =>
    PAGES.some(({ address }) => path.endsWith(`/${address}`))
      ? [{ tag: 'link', attrs: { rel: 'manifest', href: './site.webmanifest' }, injectTo: 'head' }]
      : [],
  generateBundle() {
    const add = (fileName: string, source: string): void => void this.emitFile({ type: 'asset', fileName, source });
    add('sw.js', "importScripts('./splitkv/splitkv-service_worker.js');\n");
    add('icon.svg', ICON);
    const manifest = {
      name: 'splitkv chat',
      short_name: 'splitkv',
      description: 'Chat with language models that run on this device',
      start_url: './chat.html',
      scope: './',
      display: 'standalone',
      background_color: '#f5f6f8',
      theme_color: '#f5f6f8',
      icons: [{ src: './icon.svg', sizes: 'any', type: 'image/svg+xml', purpose: 'any maskable' }],
    };
    add('site.webmanifest', JSON.stringify(manifest, undefined, 2));
  },
});

/** The pages, and the page that the command line runs in. */
export default defineConfig({
  root: root('pages'),
  base: './',
  appType: 'mpa', // a missing file is a 404, never the page
  publicDir: false,
  resolve: {
    // As the gallery's examples name it.
    alias: [{ find: /^splitkv\/react$/, replacement: root('src/app/react/index.ts') }],
  },
  // The dependencies are ES modules and load as they are: no pre-bundling, which could reload a page in the middle of a run.
  optimizeDeps: { noDiscovery: true, include: [] },
  server: { host: '127.0.0.1', fs: { allow: [root('.')] } },
  preview: { host: '127.0.0.1' },
  build: {
    outDir: root('dist/app'),
    emptyOutDir: true,
    target: 'es2023',
    chunkSizeWarningLimit: 2000, // WGSL is text
    rollupOptions: {
      input: readdirSync(root('pages'))
        .filter((name) => name.endsWith('.html'))
        .map((page) => root(`pages/${page}`)),
      external,
    },
  },
  // A rank's worker loads parts on demand, as the page does.
  worker: { format: 'es', plugins: () => [bundleWgsl()], rollupOptions: { external } },
  plugins: [bundleWgsl(), besidePages(), pageHeads(), installable()],
});
