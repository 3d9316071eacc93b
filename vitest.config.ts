import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { ENTRIES } from './scripts/entries.mjs';
import { waitingFiles } from './scripts/turns.mjs';

/** Rooms whose tests open no device. */
const PURE = [
  '{scripts,create-splitkv}/**/*.test.ts',
  'src/{arrangement,base,chat_formats,grammar,images,loader,placement,tokenizer}/**/*.test.ts',
  'pages/**/*.test.ts',
  'src/{app/chat,cli/terminal,cluster/routing,server/requests,server/responses}/**/*.test.ts',
  'bench/{cluster,simulate}/**/*.test.ts',
  'src/engine/scheduler/**/*.test.ts',
  'src/model/{compression,config,gguf}/**/*.test.ts',
  'src/server/http/**/*.test.ts',
];
const KERNELS = ['shaders/**/*.test.ts'];
const OTHERS = ['src/**/*.test.ts', 'pages/**/*.test.ts', 'bench/**/*.test.ts', 'models/**/*.test.ts'];

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
    // A process and its imports take as long as most tests of these files, which share them. Files that run models have a process each:
    // they lose devices, replace parts of Dawn and fill memory.
    projects: [
      { extends: true, test: { name: 'models', include: OTHERS, exclude: [...PURE, ...WAITING] } },
      { extends: true, test: { name: 'kernels', include: KERNELS, exclude: WAITING, ...TOGETHER } },
      { extends: true, test: { name: 'pure', include: PURE, exclude: WAITING, ...TOGETHER } },
    ],
  },
});
