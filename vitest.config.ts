import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'shaders/**/*.test.ts', 'models/**/*.test.ts', 'scripts/**/*.test.ts'],
    setupFiles: ['src/gpu/testing/setup.ts'],
    // Dawn keeps native state a process wide: each test file gets its own process, and software adapters want a core each.
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
