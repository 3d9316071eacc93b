import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { ENTRIES } from './scripts/entries.mjs';
import { waitingFiles } from './scripts/turns.mjs';

const KERNELS = ['shaders/**/*.test.ts'];
const OTHERS = ['{bench,create-splitkv,models,pages,scripts,src}/**/*.test.ts'];

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

/** They lose devices, time their peers, or want what no other file has touched. */
const ALONE = [
  'src/{gpu,cluster}/**/*.test.ts',
  'src/engine/{ranks,workers}/**/*.test.ts',
  'src/engine/serving/losses.test.ts',
  'src/server/{hostile_http,load}.test.ts',
  'bench/peers/*.test.ts',
  ...testsWith(/\bvi\.(mock|doMock|resetModules)\b|^(const \w+ = )?vi\.spyOn|^beforeAll\(.*\bvi\.|toy_policy/m),
];

/** Tests outside PURE that replace modules, or parts of them, for all of their file. */
function testsWith(pattern: RegExp): string[] {
  const files = ['bench', 'models', 'src'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((file) => `${folder}/${file.replaceAll('\\', '/')}`),
  );
  return files.filter((file) => file.endsWith('.test.ts') && pattern.test(readFileSync(file, 'utf8')));
}

/** What isn't run; `npm test` leaves some files to other runs. */
const WAITING = [
  // Of other runtimes, where they are installed.
  '**/node_modules/**',
  ...(process.env['SPLITKV_TURNS'] ? waitingFiles(Number(process.env['SPLITKV_SEED'])) : []),
];

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
      { extends: true, test: { name: 'alone', include: ALONE, exclude: [...PURE, ...WAITING] } },
      { extends: true, test: { name: 'kernels', include: KERNELS, exclude: WAITING, ...TOGETHER } },
      { extends: true, test: { name: 'pure', include: PURE, exclude: WAITING, ...TOGETHER } },
      {
        extends: true,
        test: {
          name: 'models',
          include: OTHERS,
          exclude: [...PURE, ...ALONE, ...WAITING],
          env: { SPLITKV_KEEP_DEVICES: '1' },
          ...TOGETHER,
        },
      },
    ],
  },
});
