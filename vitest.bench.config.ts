import { defineConfig } from 'vitest/config';

// Comparisons of kernels (`bench --suite kernels` times each alone): npx vitest run -c vitest.bench.config.ts [folder]. One file at a time.
export default defineConfig({
  // Its `main` is CommonJS in a package of type module, which Node refuses.
  resolve: { alias: { wgsl_reflect: 'wgsl_reflect/wgsl_reflect.module.js' } },
  test: {
    include: ['shaders/**/*.bench.ts', 'src/**/*.bench.ts', 'bench/**/*.bench.ts'],
    setupFiles: ['src/gpu/testing/setup.ts'],
    pool: 'forks',
    maxWorkers: 1,
    fileParallelism: false,
    testTimeout: 600_000,
    hookTimeout: 120_000,
  },
});
