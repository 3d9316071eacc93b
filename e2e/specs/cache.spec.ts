import { readFileSync, statSync } from 'node:fs';
import { expect, type Page, test } from '@playwright/test';
import { serveSite } from '../support/static_site.js';

/** One look at the file's head tells whether the server's copy has changed. */
const PROBE_BYTES = 65_536;
/** Who looks: the load, and the prediction of other plans, which may begin before the page is seen to be ready. */
const LOOKS = 2;

/** Loads the page; returns how many bytes of the weights it asked the server for. */
async function bytesAsked(page: Page, size: number): Promise<number> {
  let bytes = 0;
  const watch = (request: { url(): string; headers(): Record<string, string> }): void => {
    if (!request.url().endsWith('.safetensors')) return;
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers()['range'] ?? '');
    bytes += range ? Number(range[2]) - Number(range[1]) + 1 : size;
  };
  page.on('request', watch);
  await page.goto('/ranks.html');
  await expect(page.locator('#model-status')).toHaveText('tiny-gqa is ready.');
  page.off('request', watch);
  return bytes;
}

test('weights are downloaded once and come from OPFS after that', async ({ page }) => {
  const { size } = statSync('models/tiny-gqa/model.safetensors');
  await page.addInitScript(() => {
    const { persist } = StorageManager.prototype;
    StorageManager.prototype.persist = function () {
      document.documentElement.dataset['keep'] = 'asked';
      return persist.call(this);
    };
  });
  expect(await bytesAsked(page, size)).toBeGreaterThan(0.9 * size);
  // That the browser keeps them when room gets short.
  await expect(page.locator('html')).toHaveAttribute('data-keep', 'asked');
  expect(await bytesAsked(page, size)).toBeLessThanOrEqual(LOOKS * PROBE_BYTES);
});

test.describe('a model at a server of its own', () => {
  const weights = readFileSync('models/tiny-gqa/model.safetensors');
  const HEAD = `bytes=0-${PROBE_BYTES - 1}`;
  const page0 = { 'plain.html': '<!doctype html><meta charset="utf-8"><title>plain</title>' };

  /** Loads the model with the built library, lets it answer, and tells what was warned of. */
  const answer = (page: Page) =>
    page.evaluate(async () => {
      const address = '/lib/splitkv.js';
      const { load } = (await import(address)) as typeof import('../../src/index.js');
      const warnings: string[] = [];
      const model = await load('/models/tiny-gqa/', { onWarning: (text) => warnings.push(text) });
      const { tokens } = await model.generate([1, 300, 5], { maxTokens: 8, ignoreEos: true }).result;
      const { passed } = await model.selfTest();
      await model.dispose();
      return { tokens: tokens.join(' '), passed, warnings };
    });

  test('two pages that load it at once download it once', async ({ context }) => {
    const ranges: string[] = [];
    const site = await serveSite(page0, {
      before: (request) => {
        if (request.url!.endsWith('.safetensors')) ranges.push(request.headers.range ?? 'all');
        return false;
      },
    });
    const pages = await Promise.all([context.newPage(), context.newPage()]);
    await Promise.all(pages.map((page) => page.goto(`${site.url}plain.html`)));
    const [one, two] = await Promise.all(pages.map(answer));
    expect(one).toEqual({ ...two, passed: true, warnings: [] });
    const bytes = ranges
      .filter((range) => range !== HEAD)
      .reduce((sum, range) => {
        const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(range)!.map(Number);
        return sum + end! - start! + 1;
      }, 0);
    expect(bytes).toBe(weights.byteLength);
    site.close();
  });

  test('bytes that change on the disk are noticed and fetched again; a server that lost the model costs nothing', async ({
    page,
  }) => {
    let lost = false;
    const ranges: string[] = [];
    const site = await serveSite(page0, {
      before: (request, response) => {
        if (!request.url!.startsWith('/models/')) return false;
        if (request.url!.endsWith('.safetensors')) ranges.push(request.headers.range ?? 'all');
        if (lost) response.writeHead(404).end();
        return lost;
      },
    });
    await page.goto(`${site.url}plain.html`);
    const fresh = await answer(page);
    expect(fresh).toMatchObject({ passed: true, warnings: [] });
    const flipped = await page.evaluate(async () => {
      const flip = async (folder: FileSystemDirectoryHandle): Promise<number> => {
        let count = 0;
        for await (const [name, handle] of folder) {
          if (handle instanceof FileSystemDirectoryHandle) count += await flip(handle);
          else if (/^\d+$/.test(name)) {
            const bytes = new Uint8Array(await (await (handle as FileSystemFileHandle).getFile()).arrayBuffer());
            if (bytes.length < 1_000_000) continue;
            for (let at = 100_000; at < 1_000_000; at++) bytes[at] = bytes[at]! ^ 255;
            const writable = await (handle as FileSystemFileHandle).createWritable();
            await writable.write(bytes);
            await writable.close();
            count++;
          }
        }
        return count;
      };
      return flip(await navigator.storage.getDirectory());
    });
    expect(flipped).toBe(1); // the second piece of the weights is a short one
    await page.reload();
    ranges.length = 0;
    const mended = await answer(page);
    expect(mended).toEqual({ ...fresh, warnings: [expect.stringMatching(/is damaged, and is fetched again/)] });
    expect(ranges).toEqual([HEAD, `bytes=0-${4 * 1024 * 1024 - 1}`]);
    lost = true;
    await page.reload();
    const kept = await answer(page);
    expect(kept).toEqual({ ...fresh, warnings: [expect.stringMatching(/using the cached copy.*answered HTTP 404/)] });
    lost = false;
    await page.reload();
    ranges.length = 0;
    expect(await answer(page)).toEqual(fresh);
    expect(ranges).toEqual([HEAD]);
    site.close();
  });
});
