/**
 * `npm run build`: dist/splitkv.js (the library; beside it its parts, the WGSL inside, of which those that only Node or a worker
 * needs load on demand), dist/splitkv-planning.js (plans without a GPU) and dist/splitkv-chat.js (the element) with their declarations, dist/app (the pages) and dist/cli (the command
 * line, and its page: what they have beyond the library).
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'vite';
import { bundleWgsl, nodeOnly, publishedWorkers, withoutNode, withoutWorkers } from './build_plugins.mjs';
import { buildTypes } from './build_types.mjs';
import { ensurePackages, root } from './setup.mjs';

ensurePackages();
const { checkLicenseFile } = await import('./licenses.mjs');
rmSync(join(root, 'dist'), { recursive: true, force: true });

const common = { configFile: false, root, logLevel: 'warn', publicDir: false };

await build({ configFile: join(root, 'vite.config.ts'), logLevel: 'warn' });

/** One script without imports, for who bundles the library. */
async function asScript(entry, name, ...plugins) {
  const [{ output }] = await build({
    ...common,
    plugins: [bundleWgsl(), withoutNode(), ...plugins],
    build: {
      write: false,
      target: 'es2023',
      chunkSizeWarningLimit: 2000,
      lib: { entry: join(root, entry), formats: ['iife'], name },
      rollupOptions: {
        external: nodeOnly,
        output: { minify: true, codeSplitting: false },
      },
    },
  });
  const { code } = output[0];
  if (output.length !== 1 || /\bimport\s*\(|\bimport\.meta\b|^(import|export)\b/m.test(code)) {
    throw new Error(`${entry} isn't one self-contained script`);
  }
  return code;
}

const scripts = {
  'rank_worker_text.ts': await asScript('src/engine/workers/rank_worker.ts', 'splitkvRank'),
  'form_worker_text.ts': await asScript('src/grammar/threads/form_worker.ts', 'splitkvForms'),
};

const library = {
  splitkv: join(root, 'src/index.ts'),
  'splitkv-chat': join(root, 'src/app/chat/index.ts'),
  'splitkv-rank_worker': join(root, 'src/engine/workers/rank_worker.ts'),
  // What runs in the worker_thread of a rank: src/engine/workers/node_workers.ts looks for it beside itself, under a name like its own.
  'splitkv-node_rank_worker': join(root, 'src/engine/workers/node_rank_worker.ts'),
  // Forms': src/grammar/threads/node_form_port.ts and form_script_published.ts look for them in the same way.
  'splitkv-form_worker': join(root, 'src/grammar/threads/form_worker.ts'),
  'splitkv-node_form_worker': join(root, 'src/grammar/threads/node_form_worker.ts'),
  // share_script_published.ts of src/engine/faces/share does so, too.
  'splitkv-share_worker': join(root, 'src/app/share_worker.ts'),
};
// Plans without a GPU: by itself, as few pages need it.
const planning = { 'splitkv-planning': join(root, 'src/planning/index.ts') };
const commandLine = {
  'cli/main': join(root, 'src/cli/main.ts'),
  'cli/host': join(root, 'src/app/host.ts'),
  // Threads of the server: src/server/threads.ts looks for them beside itself.
  'cli/node_request_worker': join(root, 'src/server/node_request_worker.ts'),
  'cli/node_beat_worker': join(root, 'src/server/replicas/node_beat_worker.ts'),
};

const buildParts = ({ entry, output, write = true, ...rest }) =>
  build({
    ...common,
    base: './',
    plugins: [bundleWgsl(), publishedWorkers(scripts)],
    build: {
      write,
      outDir: 'dist',
      emptyOutDir: false,
      target: 'es2023',
      sourcemap: true,
      // What is bundled is others' work, too.
      license: { fileName: 'THIRD_PARTY_LICENSES.md' },
      chunkSizeWarningLimit: 2000, // WGSL is text
      lib: { entry, formats: ['es'], fileName: (_format, name) => `${name}.js` },
      // Vite leaves the whitespace of libraries in, for annotations that ours hasn't.
      rollupOptions: { external: nodeOnly, output: { minify: true, ...output }, ...rest },
    },
  });

// First the library alone, to see how it is cut: with more entries it would be cut finer, and a page's first download would grow.
const [{ output: alone }] = await buildParts({
  entry: library,
  output: {
    chunkFileNames: '[name]',
    codeSplitting: {
      groups: [
        // Who imports SplitkvError alone gets nothing else.
        { name: 'errors', test: /\/src\/base\/errors\.ts$/ },
        // What the command line and the server's thread need without an engine. Of placement: what a page's first download has anyway.
        { name: 'base', test: /\/src\/base\/(math|json|stats)\.ts$/ },
        // What options and plans need of the engine, beside it.
        { name: 'scheduler', test: /\/src\/engine\/scheduler\/(\w+|groups\/\w+|adp\/config)\.ts$/ },
        // What a prompt is asked before there is a tokenizer.
        { name: 'tools', test: /\/src\/chat_formats\/tools\.ts$/ },
        {
          name: 'tokenizer_parts',
          test: /\/src\/tokenizer\/(parts|chat_template|template_budget|check_tokenizer|expressions|plain_text)\.ts$|\/@huggingface\/jinja\//,
        },
        {
          name: 'tokenizer',
          test: /\/src\/(tokenizer\/(?!gguf)|engine\/serving\/prompt_tokens\.ts$)|\/@huggingface\//,
        },
        {
          name: 'placement',
          test: /\/src\/(base\/lists|placement\/((check|make|plan|sequences)\/)?(capabilities|check_\w+|copies|copy_moves|make_plan|memory|owner|partition|plan|policy|prompt_chunk|refuse|routes|sequence_\w+|stage_\w+))\.ts$/,
        },
        // The search for arrangements, and the measurement that it is made for, without an engine.
        {
          name: 'arrangement',
          test: /\/src\/(arrangement\/(solvers\/\w+|latency\/\w+|(?!form|profile|arrangement_file|index)\w+)|engine\/measure\/measure_profile)\.ts$/,
        },
        // Every model needs them: in one file they are smaller than in one for each set of parts that share them. Layers that few
        // models have are parts of their own.
        {
          name: 'layers',
          test: /\/src\/model\/(layers\/(?!attention\/mla(_fusion)?\.|recurrent\/recurrent(_fusion)?\.|mlp\/(routed_)?experts\.)|weights\/|shape\.|config\/tensor_names)/,
        },
      ],
    },
  },
  write: false,
});
const partOf = new Map();
const ofLibrary = new Set();
// Files that are Node's alone are called node_..., so that bundlers of pages are told to leave them out (package.json, browser).
const named = { 'transport-node': 'node_nats' };
for (const { moduleIds = [], isEntry, fileName } of alone) {
  for (const id of moduleIds) {
    ofLibrary.add(id);
    if (!isEntry) partOf.set(id, named[fileName] ?? fileName);
  }
}

// What planning has beyond the library: what it imports is one part, what it loads on demand another.
const [{ output: planned }] = await buildParts({ entry: planning, output: { chunkFileNames: '[name]' }, write: false });
const ofPlanning = new Set(planned.flatMap(({ moduleIds = [] }) => moduleIds).filter((id) => !ofLibrary.has(id)));
const imported = new Set(['splitkv-planning.js']);
for (const name of imported) {
  for (const next of planned.find(({ fileName }) => fileName === name)?.imports ?? []) imported.add(next);
}
for (const { fileName, moduleIds = [] } of planned) {
  if (!imported.has(fileName)) continue;
  for (const id of moduleIds) if (ofPlanning.has(id)) partOf.set(id, 'planning_parts');
}

// Then with the command line, which imports the library's files and has the rest in a folder of its own.
const [{ output: files }] = await buildParts({
  entry: { ...library, ...planning, ...commandLine },
  output: {
    chunkFileNames: ({ moduleIds }) =>
      moduleIds.some((id) => ofLibrary.has(id) || ofPlanning.has(id)) ? 'splitkv-[name].js' : 'cli/[name].js',
    codeSplitting: {
      groups: [{ debugName: 'library', name: (id) => partOf.get(id) ?? null }],
      includeDependenciesRecursively: false,
    },
  },
  preserveEntrySignatures: 'allow-extension',
});
for (const { fileName, imports = [] } of files) {
  const wrong = fileName.startsWith('cli/') ? undefined : imports.find((file) => file.startsWith('cli/'));
  if (wrong) throw new Error(`dist/${fileName} imports dist/${wrong}: the library must not need the command line`);
}

// By themselves, as they share with the element and the library nothing but these: the element stays the one file with a side effect,
// and who takes one of the parts gets nothing of the others.
const elsewhere = { chat: './splitkv-chat.js', stores: './splitkv-stores.js' };
const buildBeside = (entries, options = {}) =>
  build({
    ...common,
    plugins: [
      {
        name: 'splitkv-elsewhere',
        enforce: 'pre',
        resolveId: {
          filter: { id: /^\.\.\/(chat|stores|\.\.)\/index\.js$/ },
          handler: (id) => ({ id: elsewhere[id.split('/')[1]] ?? './splitkv.js', external: true }),
        },
      },
    ],
    build: {
      outDir: 'dist',
      emptyOutDir: false,
      target: 'es2023',
      lib: {
        entry: Object.fromEntries(Object.entries(entries).map(([name, file]) => [name, join(root, file)])),
        formats: ['es'],
      },
      rollupOptions: { external: ['react'], output: { minify: true, ...options } },
    },
  });
await buildBeside({ 'splitkv-stores': 'src/app/stores/index.ts' });
await buildBeside(
  { 'splitkv-react': 'src/app/react/index.ts' },
  {
    banner: "'use client';",
    chunkFileNames: 'splitkv-react_[name].js',
    codeSplitting: { groups: ['chat', 'hooks'].map((name) => ({ name, test: new RegExp(`/react/${name}\\.ts$`) })) },
  },
);

// By themselves, as they hold nothing of the library: who uses them loads the model.
await build({
  ...common,
  build: {
    outDir: 'dist',
    emptyOutDir: false,
    target: 'es2023',
    lib: {
      entry: {
        'splitkv-ai_sdk': join(root, 'src/app/ai_sdk/index.ts'),
        'splitkv-offline': join(root, 'src/app/offline/index.ts'),
        'splitkv-prompt_api': join(root, 'src/app/prompt_api/index.ts'),
      },
      formats: ['es'],
    },
    rollupOptions: { output: { minify: true, chunkFileNames: 'splitkv-[name].js' } },
  },
});

// A script that pages copy, or bring in by importScripts.
await build({
  ...common,
  build: {
    outDir: 'dist',
    emptyOutDir: false,
    target: 'es2023',
    lib: {
      entry: { 'splitkv-service_worker': join(root, 'src/app/offline/service_worker.ts') },
      formats: ['iife'],
      name: 'splitkvServiceWorker',
      fileName: (_format, name) => `${name}.js`,
    },
    rollupOptions: { output: { minify: true } },
  },
});

// The worker of all tabs for pages that are bundled: they copy one file, and give its address.
writeFileSync(
  join(root, 'dist/splitkv-whole_share_worker.js'),
  await asScript('src/app/share_worker.ts', 'splitkvShare', withoutWorkers()),
);

// The page of --host chrome.
const hostPage = readFileSync(join(root, 'pages/host.html'), 'utf8').replace('./host.ts', './host.js');
writeFileSync(join(root, 'dist/cli/host.html'), hostPage);

checkLicenseFile(join(root, 'dist/THIRD_PARTY_LICENSES.md'));
await buildTypes(join(root, 'dist'));
console.log('built dist/splitkv.js, its declarations, dist/app, dist/cli');
