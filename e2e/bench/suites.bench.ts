import { test } from '@playwright/test';
import { benchIn } from './run_bench.js';

/**
 * Benchmarks in a browser that Playwright starts: not tests, and not in `npm test`. SPLITKV_BENCH holds options of `splitkv bench`, as
 * one writes them in a shell, without quotes. docs/benchmarks.md says more.
 */
const options = (process.env['SPLITKV_BENCH'] ?? '').split(/\s+/).filter((word) => word !== '');

for (const suite of ['kernels', 'decode', 'ranks']) {
  test(suite, async ({ browser }) => {
    console.log(await benchIn(browser, ['--suite', suite, ...options]));
  });
}
