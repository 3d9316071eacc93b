import { test } from '@playwright/test';
import { SUITES } from '../../bench/cli/suites.js';
import { benchIn } from './run_bench.js';

/**
 * Benchmarks in a browser that Playwright starts: not tests, and not in `npm test`. SPLITKV_BENCH holds options of `splitkv bench`, as
 * one writes them in a shell, without quotes. docs/benchmarks.md says more.
 */
const options = (process.env['SPLITKV_BENCH'] ?? '').split(/\s+/).filter((word) => word !== '');

/** They run in Node alone. */
const NODE = ['compile', 'compression', 'planner', 'scale', 'load'];

for (const suite of Object.keys(SUITES).filter((name) => !NODE.includes(name))) {
  test(suite, async ({ browser }) => {
    console.log(await benchIn(browser, ['--suite', suite, ...options]));
  });
}
