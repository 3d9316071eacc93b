import type { Browser } from '@playwright/test';
import { command, runBench } from '../../bench/cli/command.js';
import { parseOptions } from '../../src/cli/options.js';

/**
 * `splitkv bench` in a browser that Playwright started: the same options, environment and reports.
 * @returns what it printed
 */
export async function benchIn(browser: Browser, args: readonly string[]): Promise<string> {
  const printed: string[] = [];
  const stop = new AbortController();
  const gone = (): void => stop.abort();
  browser.once('disconnected', gone);
  const code = await runBench(
    parseOptions('bench', command.options, ['--host', 'chrome', ...args]),
    {
      write: (text) => {
        printed.push(text);
        return Promise.resolve();
      },
      note: (line) => console.error(line),
      progress: () => {},
      signal: stop.signal,
    },
    browser,
  );
  browser.off('disconnected', gone);
  const text = printed.join('');
  if (code !== 0) throw new Error(`the bench found something wrong:\n${text}`);
  return text;
}
