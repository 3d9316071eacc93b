import { readFileSync } from 'node:fs';
import { expect, test } from '@playwright/test';
import { transformWithOxc } from 'vite';

const FILE = 'src/engine/measure/stores/page_store.ts';

test('what a worker of a page measured is kept for the page, and as long as it is new', async ({ page }) => {
  const { code } = await transformWithOxc(readFileSync(FILE, 'utf8'), FILE);
  const module = code.replace(/^import .*$/m, 'const MEASURE_DAYS = 30;');
  await page.goto('/host.html');
  const found = await page.evaluate(async (text) => {
    const url = (part: string): string => URL.createObjectURL(new Blob([part], { type: 'text/javascript' }));
    const address = url(text);
    const worker = new Worker(
      url(`import { pageStore } from '${address}';
           await pageStore().set('key', { wrong: ['linear'] });
           postMessage(pageStore().environment);`),
      { type: 'module' },
    );
    const environment = await new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = reject;
    });
    const { pageStore } = (await import(address)) as typeof import('../../src/engine/measure/stores/page_store.js');
    const store = pageStore();
    const now = Date.now;
    const later = async (days: number): Promise<unknown> => {
      Date.now = () => now() + days * 24 * 3600 * 1000;
      return store.get('key');
    };
    return [
      environment === store.environment,
      await store.get('key'),
      (await store.get('other')) ?? 'none',
      await later(29),
      (await later(31)) ?? 'none',
    ];
  }, module);
  const kept = { wrong: ['linear'] };
  expect(found).toEqual([true, kept, 'none', kept, 'none']);
});
