/**
 * `npm run build`: dist/splitkv.js (the library, one ES module with the WGSL inside; what only Node needs lies beside it and
 * loads on demand) with its declarations in dist/types, dist/app (the pages) and dist/cli (the command line).
 */
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { join } from 'node:path';
import { build } from 'vite';
import { ensurePackages, root } from './setup.mjs';

ensurePackages();
rmSync(join(root, 'dist'), { recursive: true, force: true });

const nodeOnly = [/^node:/, ...builtinModules, 'webgpu', 'playwright-core', 'vite'];
const common = { configFile: false, root, logLevel: 'warn', publicDir: false };

await build({ configFile: join(root, 'vite.config.ts'), logLevel: 'warn' });

await build({
  ...common,
  build: {
    outDir: 'dist',
    emptyOutDir: false,
    target: 'es2023',
    sourcemap: true,
    lib: { entry: join(root, 'src/index.ts'), formats: ['es'], fileName: () => 'splitkv.js' },
    rollupOptions: { external: nodeOnly, output: { chunkFileNames: 'splitkv-[name].js' } },
  },
});

await build({
  ...common,
  ssr: { noExternal: true },
  build: {
    outDir: 'dist/cli',
    target: 'node20',
    ssr: join(root, 'src/cli/main.ts'),
    // Chunks lie beside main.js: the code finds the package's files two folders up.
    rollupOptions: { external: nodeOnly, output: { entryFileNames: 'main.js', chunkFileNames: '[name].js' } },
  },
});

const tsc = [join(root, 'node_modules/typescript/bin/tsc'), '-p', join(root, 'tsconfig.types.json')];
if (spawnSync(process.execPath, tsc, { stdio: 'inherit' }).status !== 0) throw new Error('writing dist/types failed');
console.log('built dist/splitkv.js, dist/types, dist/app, dist/cli');
