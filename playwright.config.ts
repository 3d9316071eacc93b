import { register } from 'node:module';
import { defineConfig } from '@playwright/test';
import { freePort } from './e2e/support/free_port.js';
import { launchChrome } from './src/cli/hosts/chrome.js';
import { chromeFlags, findChrome } from './src/cli/hosts/find_chrome.js';

// The command line's modules import texts by `?raw`, which Playwright's loader doesn't know. Every process reads this file first.
register('./scripts/wgsl_hooks.mjs', import.meta.url);

// Found once, by trying; the worker processes that read this file again inherit the answers.
if (process.env['SPLITKV_CHROME_ADAPTER'] === undefined) {
  const { browser, adapter } = await launchChrome();
  await browser.close();
  process.env['SPLITKV_CHROME_ADAPTER'] = adapter;
}
// A test's name must be the same in every process that reads its file.
process.env['SPLITKV_SEED'] ??= String(Date.now() % 100_000);
// As in the unit tests (src/gpu/testing/setup.ts).
process.env['LP_NATIVE_VECTOR_WIDTH'] ??= '128';
const port = (process.env['SPLITKV_TEST_PORT'] ??= String(await freePort()));

/** Files with tests of a minute or more: they begin first, so that none of them is what a run waits for at its end. */
const LONG = /(attached|conversations?|numerics|offline|ranks|recipes|share|workers)\.spec\.ts$/;

export default defineConfig({
  testDir: 'e2e/specs',
  outputDir: 'test-results',
  snapshotPathTemplate: 'e2e/looks/{arg}{ext}',
  // A page waits for its server, its worker or its download about half of the time.
  workers: 3,
  projects: [
    { name: 'long', testMatch: LONG },
    { name: 'short', testIgnore: LONG },
  ],
  timeout: 300_000,
  expect: { timeout: 120_000 },
  forbidOnly: process.env['CI'] !== undefined,
  reporter: 'list',
  use: {
    baseURL: `http://127.0.0.1:${port}/`,
    launchOptions: {
      executablePath: findChrome()!,
      args: chromeFlags(process.env['SPLITKV_CHROME_ADAPTER'] as 'hardware' | 'software'),
    },
    screenshot: 'only-on-failure',
    // What a test's own routes answer isn't theirs.
    serviceWorkers: 'block',
  },
  // The built pages (the library and command line of the same build are tested too): they load fast, and an edit during the run reloads nothing.
  // `npm test` has built them before.
  webServer: {
    command: `${process.env['SPLITKV_BUILT'] ? '' : 'node scripts/build.mjs && '}npx vite preview --port ${port} --strictPort`,
    url: `http://127.0.0.1:${port}/index.html`,
    reuseExistingServer: false,
    // The build takes its time on a busy machine.
    timeout: 240_000,
    stdout: 'ignore',
  },
});
