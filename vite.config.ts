import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { bundleWgsl } from './scripts/build_plugins.mjs';
import { moduleFactories } from './scripts/module_factory.mjs';
import { serveFiles } from './src/server/http/static_files.js';

const root = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

// Loaded only where the code finds itself in Node, or is asked for it.
const external = [/^node:/, 'webgpu', 'node-llama-cpp', /^onnxruntime-web/];

/** The demo page and the page that the command line runs in; models/ is served beside them with byte ranges. */
export default defineConfig({
  root: root('src/app'),
  base: './',
  appType: 'mpa', // a missing file is a 404, never the page
  publicDir: false,
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
      input: ['index', 'chat', 'bench', 'check', 'arrange', 'simulate', 'host'].map((page) =>
        root(`src/app/${page}.html`),
      ),
      external,
    },
  },
  // A rank's worker loads parts on demand, as the page does.
  worker: { format: 'es', plugins: () => [bundleWgsl()], rollupOptions: { external } },
  plugins: [
    bundleWgsl(),
    moduleFactories(),
    {
      name: 'splitkv-models',
      configureServer: ({ middlewares }) => void middlewares.use(serveFiles('/models', root('models'))),
      configurePreviewServer: ({ middlewares }) => void middlewares.use(serveFiles('/models', root('models'))),
    },
  ],
});
