/**
 * `npm run build`: dist/splitkv.js (the library; beside it its parts, the WGSL inside, of which those that only Node or a worker
 * needs load on demand) and dist/splitkv-chat.js (the element) with their declarations in dist/types, dist/app (the pages) and dist/cli (the command line).
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { join } from 'node:path';
import { build } from 'vite';
import { bundleWgsl, publishedWorker, withoutNode } from './build_plugins.mjs';
import { buildTypes } from './build_types.mjs';
import { ensurePackages, root } from './setup.mjs';

ensurePackages();
rmSync(join(root, 'dist'), { recursive: true, force: true });

const nodeOnly = [
  /^node:/,
  ...builtinModules,
  'webgpu',
  'node-llama-cpp',
  /^onnxruntime-web/,
  'playwright-core',
  'vite',
];
// What runs in the worker_thread of a rank: src/engine/node_workers.ts looks for it beside itself, under a name like its own.
const nodeWorker = join(root, 'src/engine/node_rank_worker.ts');
const common = { configFile: false, root, logLevel: 'warn', publicDir: false };

await build({ configFile: join(root, 'vite.config.ts'), logLevel: 'warn' });

// One script without imports, for who bundles the library.
const [{ output }] = await build({
  ...common,
  plugins: [bundleWgsl(), withoutNode()],
  build: {
    write: false,
    target: 'es2023',
    chunkSizeWarningLimit: 2000,
    lib: { entry: join(root, 'src/engine/rank_worker.ts'), formats: ['iife'], name: 'splitkvRank' },
    rollupOptions: { external: nodeOnly, output: { minify: true, codeSplitting: false } },
  },
});
const worker = output[0].code;
if (output.length !== 1 || /\bimport\s*\(|\bimport\.meta\b|^(import|export)\b/m.test(worker)) {
  throw new Error("the rank's worker isn't one self-contained script");
}

await build({
  ...common,
  base: './',
  plugins: [bundleWgsl(), publishedWorker(worker)],
  build: {
    outDir: 'dist',
    emptyOutDir: false,
    target: 'es2023',
    sourcemap: true,
    chunkSizeWarningLimit: 2000, // WGSL is text
    lib: {
      entry: {
        splitkv: join(root, 'src/index.ts'),
        'splitkv-chat': join(root, 'src/app/chat/index.ts'),
        'splitkv-rank_worker': join(root, 'src/engine/rank_worker.ts'),
        'splitkv-node_rank_worker': nodeWorker,
      },
      formats: ['es'],
      fileName: (_format, name) => `${name}.js`,
    },
    rollupOptions: {
      external: nodeOnly,
      output: {
        chunkFileNames: 'splitkv-[name].js',
        // Vite leaves the whitespace of libraries in, for annotations that ours hasn't.
        minify: true,
        // Who imports SplitkvError alone gets nothing else.
        codeSplitting: {
          groups: [
            { name: 'errors', test: /\/src\/base\/errors\.ts$/ },
            // Every model needs them: in one file they are smaller than in one for each set of parts that share them.
            {
              name: 'layers',
              test: /\/src\/model\/(layers\/|record_|roles|scratch|matrix|weight_|stage_rows|model_map|model_weights|shape|tensor_names|rope_table|vocab_ranks|attention_ranks|gathered_)/,
            },
          ],
        },
      },
    },
  },
});

// By itself, as it shares nothing with the element but the element: that stays the one file with a side effect.
await build({
  ...common,
  plugins: [
    {
      name: 'splitkv-element',
      enforce: 'pre',
      resolveId: {
        filter: { id: /\/chat\/index\.js$/ },
        handler: () => ({ id: './splitkv-chat.js', external: true }),
      },
    },
  ],
  build: {
    outDir: 'dist',
    emptyOutDir: false,
    target: 'es2023',
    lib: { entry: { 'splitkv-react': join(root, 'src/app/react/index.ts') }, formats: ['es'] },
    rollupOptions: { external: ['react'], output: { minify: true, banner: "'use client';" } },
  },
});

// The command line, and the page that it runs in Chrome: made of the same files. Its address of the package is two folders up.
await build({
  ...common,
  base: './',
  plugins: [bundleWgsl(), publishedWorker('')],
  build: {
    outDir: 'dist/cli',
    target: 'es2023',
    chunkSizeWarningLimit: 2000,
    lib: {
      entry: {
        main: join(root, 'src/cli/main.ts'),
        host: join(root, 'src/app/host.ts'),
        'splitkv-rank_worker': join(root, 'src/engine/rank_worker.ts'),
        'splitkv-node_rank_worker': nodeWorker,
        // The thread that reads large requests: src/server/request_thread.ts looks for it beside itself.
        node_request_worker: join(root, 'src/server/node_request_worker.ts'),
      },
      formats: ['es'],
      fileName: (_format, name) => `${name}.js`,
    },
    rollupOptions: { external: nodeOnly, output: { chunkFileNames: 'splitkv-[name].js', minify: true } },
  },
});
const hostPage = readFileSync(join(root, 'src/app/host.html'), 'utf8').replace('./host.ts', './host.js');
writeFileSync(join(root, 'dist/cli/host.html'), hostPage);

buildTypes(join(root, 'dist'));
console.log('built dist/splitkv.js, its declarations, dist/app, dist/cli');
