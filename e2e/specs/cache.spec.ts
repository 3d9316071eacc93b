import { statSync } from 'node:fs';
import { expect, type Page, test } from '@playwright/test';

/** One look at the file's head tells whether the server's copy has changed. */
const PROBE_BYTES = 65_536;

/** Loads the page; returns how many bytes of the weights it asked the server for. */
async function bytesAsked(page: Page, size: number): Promise<number> {
  let bytes = 0;
  const watch = (request: { url(): string; headers(): Record<string, string> }): void => {
    if (!request.url().endsWith('.safetensors')) return;
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers()['range'] ?? '');
    bytes += range ? Number(range[2]) - Number(range[1]) + 1 : size;
  };
  page.on('request', watch);
  await page.goto('/');
  await expect(page.locator('#model-status')).toHaveText('tiny-gqa is ready.');
  page.off('request', watch);
  return bytes;
}

test('weights are downloaded once and come from OPFS after that', async ({ page }) => {
  const { size } = statSync('models/tiny-gqa/model.safetensors');
  expect(await bytesAsked(page, size)).toBeGreaterThan(0.9 * size);
  expect(await bytesAsked(page, size)).toBeLessThanOrEqual(PROBE_BYTES);
});
