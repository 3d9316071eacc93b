import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { moduleFactories } from './scripts/module_factory.mjs';

export default defineConfig({
  plugins: [moduleFactories()],
  // Its `main` is CommonJS in a package of type module, which Node refuses.
  resolve: { alias: { wgsl_reflect: 'wgsl_reflect/wgsl_reflect.module.js' } },
  test: {
    include: [
      'src/**/*.test.ts',
      'bench/**/*.test.ts',
      'shaders/**/*.test.ts',
      'models/**/*.test.ts',
      'scripts/**/*.test.ts',
    ],
    setupFiles: ['src/gpu/testing/setup.ts'],
    // Dawn keeps native state a process wide: each test file gets its own process, and software adapters want a core each.
    // One file more than cores: some wait for a clock, a process or a compiler's lock.
    pool: 'forks',
    maxWorkers: availableParallelism() + 1,
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
});
