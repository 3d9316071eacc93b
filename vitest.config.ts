import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { ENTRIES } from './scripts/entries.mjs';
import { waitingFiles } from './scripts/turns.mjs';

/** Devices that are lost, parts of Dawn that are replaced, peers that must beat in time, and a renderer of its own. */
const ALONE = [
  'src/{gpu,cluster}/**/*.test.ts',
  'src/engine/{ranks,workers}/**/*.test.ts',
  'src/engine/serving/losses.test.ts',
  'src/server/{hostile_http,load}.test.ts',
  'src/app/react/**/*.test.ts',
];
const KERNELS = ['shaders/**/*.test.ts'];
const OTHERS = ['{bench,create-splitkv,models,pages,scripts,src}/**/*.test.ts'];

/** `npm test` leaves some files to other runs. */
const WAITING = process.env['SPLITKV_TURNS'] ? waitingFiles(Number(process.env['SPLITKV_SEED'])) : [];

/** Of a file in the same process as others: what it replaced is put back. */
const TOGETHER = { isolate: false, restoreMocks: true, unstubEnvs: true, unstubGlobals: true };

export default defineConfig({
  resolve: {
    alias: [
      // Its `main` is CommonJS in a package of type module, which Node refuses.
      { find: 'wgsl_reflect', replacement: 'wgsl_reflect/wgsl_reflect.module.js' },
      // As recipes import the package.
      ...Object.entries(ENTRIES).map(([entry, file]) => ({
        find: new RegExp(`^${entry}$`),
        replacement: fileURLToPath(new URL(file, import.meta.url)),
      })),
    ],
  },
  test: {
    setupFiles: ['src/gpu/testing/setup.ts'],
    // Dawn keeps native state a process wide, and software adapters want a core each. One file more than cores: some wait for a clock, a
    // process or a compiler's lock.
    pool: 'forks',
    maxWorkers: availableParallelism() + 1,
    testTimeout: 180_000,
    hookTimeout: 180_000,
    // A process and its imports take as long as most tests of a file, so files share them.
    projects: [
      { extends: true, test: { name: 'alone', include: ALONE, exclude: WAITING } },
      { extends: true, test: { name: 'kernels', include: KERNELS, exclude: WAITING, ...TOGETHER } },
      { extends: true, test: { name: 'together', include: OTHERS, exclude: [...ALONE, ...WAITING], ...TOGETHER } },
    ],
  },
});
