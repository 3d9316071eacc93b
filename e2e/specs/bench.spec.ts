import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { expect, test } from '@playwright/test';
import type { BenchDocument } from '../../bench/document.js';
import type { DecodeResult } from '../../bench/suites/decode.js';
import type { PeerResult } from '../../bench/peers/peer_result.js';
import type { KernelResult } from '../../bench/suites/kernels.js';
import { benchIn } from '../bench/run_bench.js';
import { runCli as splitkv } from '../../src/cli/testing/run_cli.js';

const out = mkdtempSync(join(tmpdir(), 'splitkv-bench-e2e-'));
test.afterAll(() => rmSync(out, { recursive: true }));

const bench = async <Result>(...args: string[]): Promise<BenchDocument<Result>> => {
  const { code, stdout, stderr } = await splitkv(['bench', '--json', '--host', 'chrome', '--out', out, ...args]);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout) as BenchDocument<Result>;
};

test('decode in Chrome, and its report in a page: light, dark and narrow', async ({ page }) => {
  const args = ['--weights', 'f16,q8', '--prompt-tokens', '8,24', '--max-tokens', '4', '--runs', '2'];
  const { environment, results } = await bench<DecodeResult>(...args);
  expect(environment.chrome).toMatch(/^\d+\./);
  expect(results).toHaveLength(4);
  for (const { tokens_per_second: speed, samples } of results) {
    expect(samples).toHaveLength(2);
    expect(speed).toBeGreaterThan(0);
  }

  const html = readFileSync(join(out, 'decode-chrome.html'), 'utf8');
  const requests: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await page.setContent(html);
    await expect(page.getByRole('img', { name: 'decode, tokens/s' })).toBeVisible();
    expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);
  }
  await page.setViewportSize({ width: 360, height: 640 });
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth)).toBe(true);
  expect(requests.filter((url) => !url.startsWith('data:'))).toEqual([]);
});

test('kernels in Chrome agree with their references, by the benchmarks of e2e/bench', async ({ browser }) => {
  const folder = join(out, 'kernels');
  const args = ['--suite', 'kernels', '--kernel', 'norm/', '--runs', '1', '--out', folder];
  const printed = await benchIn(browser, args);
  const { environment, results } = JSON.parse(
    readFileSync(join(folder, 'kernels-chrome.json'), 'utf8'),
  ) as BenchDocument<KernelResult>;
  expect(environment).toMatchObject({ host: 'chrome', chrome: browser.version() });
  expect(readFileSync(join(folder, 'kernels-chrome.txt'), 'utf8')).toBe(printed);
  expect(readFileSync(join(folder, 'kernels-chrome.html'), 'utf8')).toContain('layer_norm');
  expect(results.length).toBeGreaterThan(3);
  for (const { copy_share: copy } of results) expect(copy).toBeGreaterThan(0);
  // A suite with a model takes another way: the model's name is looked up.
  const short = ['--prompt-tokens', '8', '--max-tokens', '2', '--runs', '1', '--out', folder];
  expect(await benchIn(browser, ['--suite', 'decode', ...short])).toMatch(/^tiny-gqa +f16 +8 /m);
});

test('onnxruntime-web on the same weights in the same page: the same logits, tokens and outputs', async () => {
  const args = ['--suite', 'peers', '--prompt-tokens', '12', '--max-tokens', '16', '--runs', '1'];
  const { results } = await bench<PeerResult>(...args);
  const of = (runtime: string): PeerResult[] => results.filter((result) => result.runtime.startsWith(runtime));
  const operators = of('onnxruntime-web').filter(({ unit }) => unit === 'us');
  expect(operators.map(({ task, tokens }) => [task, tokens])).toEqual([
    ['attention', 12],
    ['q4 matrix 2048 x 2048', undefined],
  ]);
  for (const { error } of operators) expect(error).toBeLessThan(1e-3);
  const [ours] = of('splitkv').filter(({ unit }) => unit !== 'us');
  const [theirs] = of('onnxruntime-web').filter(({ unit }) => unit !== 'us');
  expect(theirs).toMatchObject({ task: 'decode', tokens: 12, same_tokens: 16 });
  expect(theirs!.error).toBeLessThan(1e-4);
  // One pass, one submit, one id read back a token; it has more to do on the host. The prompt is submitted in pieces by what they
  // take, so its passes and submits don't cancel to the last one.
  expect(ours!.calls).toMatchObject({ maps: 1 });
  expect(ours!.calls!.passes).toBeLessThan(2);
  expect(ours!.calls!.submits).toBeLessThan(2);
  expect(theirs!.calls!.dispatches).toBeGreaterThan(ours!.calls!.dispatches);
});
