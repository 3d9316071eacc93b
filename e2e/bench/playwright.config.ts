import { defineConfig } from '@playwright/test';
import tests from '../../playwright.config.js';

const { testDir: _, webServer: __, snapshotPathTemplate: ___, projects: ____, ...usual } = tests;

/** `npx playwright test -c e2e/bench`: a suite at a time, in the browser of the tests, with a server of its own for the model. */
export default defineConfig({
  ...usual,
  testMatch: '*.bench.ts',
  outputDir: '../../test-results',
  workers: 1,
  // Real models on slow machines.
  timeout: 3 * 3_600_000,
});
