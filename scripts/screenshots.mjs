/**
 * `node scripts/screenshots.mjs`: the pictures of the README, docs/images/*.png, taken of the built pages (npm run build) in the
 * Chrome that is found. Small, and in the colours of a light system.
 */
import { mkdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { ensureChrome, root } from './setup.mjs';

process.env.CHROME_PATH = ensureChrome();
await import('./run_typescript.mjs');
const { launchChrome } = await import('../src/cli/hosts/chrome.ts');
const { QUESTIONS } = await import('../models/example.ts');
const { serveFiles } = await import('../src/server/http/static_files.ts');

const [models, pages] = [serveFiles('/models', join(root, 'models')), serveFiles('/', join(root, 'dist/app'))];
const server = createServer((request, response) =>
  models(request, response, () => pages(request, response, () => response.writeHead(404).end())),
);
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const base = `http://127.0.0.1:${server.address().port}/`;
const folder = join(root, 'docs/images');
mkdirSync(folder, { recursive: true });

/** What links to the site show (scripts/site.mjs): flat colours, so that it stays small. */
const CARD = `<!doctype html><meta charset="utf-8"><style>
  body { margin: 0; display: grid; align-content: center; gap: 28px; block-size: 630px; padding-inline: 100px;
    box-sizing: border-box; background: #14161a; color: #e8eaee; font: 40px/1.35 system-ui, sans-serif; }
  svg { block-size: 120px; justify-self: start; }
  h1 { margin: 0; font-size: 104px; line-height: 1; letter-spacing: -0.03em; }
  p { margin: 0; max-inline-size: 24em; color: #a2abbc; }
</style><svg viewBox="0 0 8 8"><rect width="3" height="8" rx="1" fill="#3b6fd4"/><rect x="5" width="3" height="8" rx="1" fill="#d4773b"/></svg>
<h1>splitkv</h1><p>Language models on WebGPU, in a page or in Node: on one GPU or on several, with the same bits.</p>`;

const { browser } = await launchChrome();
const page = await browser.newPage({ viewport: { width: 760, height: 620 }, colorScheme: 'light' });
page.setDefaultTimeout(60_000);
const shoot = async (name, height) => {
  await page.setViewportSize({ width: 760, height });
  await page.screenshot({ path: join(folder, `${name}.png`) });
  console.log(`docs/images/${name}.png`);
};

try {
  await page.setViewportSize({ width: 1200, height: 630 });
  await page.setContent(CARD);
  await page.screenshot({ path: join(folder, 'card.png') });
  console.log('docs/images/card.png');

  await page.goto(`${base}chat.html`);
  await page.getByRole('button', { name: /^Download/ }).waitFor();
  await page.locator('splitkv-chat').scrollIntoViewIfNeeded();
  await page.setViewportSize({ width: 760, height: 1000 });
  await page.locator('splitkv-chat').screenshot({ path: join(folder, 'before_download.png') });
  console.log('docs/images/before_download.png');
  await page.getByRole('button', { name: /^Download/ }).click();
  await page.getByText('Ready', { exact: true }).waitFor();
  for (const index of [0, 2]) {
    const field = page.getByRole('textbox', { name: 'Message' });
    await field.fill(QUESTIONS[index].question);
    await field.press('Enter');
    await page
      .locator('splitkv-chat .log .note')
      .nth(index === 0 ? 0 : 1)
      .waitFor();
  }
  await page.locator('splitkv-chat').screenshot({ path: join(folder, 'chat.png') });
  console.log('docs/images/chat.png');

  await page.goto(`${base}ranks.html?ranks=2&plan=sp&virtual=1`);
  await page.getByText('tiny-gqa is ready.').waitFor();
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText(/dispatches per token/).waitFor();
  await page.locator('#ranks').screenshot({ path: join(folder, 'ranks.png') });
  console.log('docs/images/ranks.png');

  await page.goto(`${base}arrange.html`);
  await page.locator('#verdict').waitFor();
  await page.locator('#result').scrollIntoViewIfNeeded();
  await page.evaluate(() => document.querySelector('#result').scrollIntoView());
  await shoot('arrange', 560);

  await page.goto(`${base}bench.html`);
  await page.locator('[name=prompts]').fill('16, 64, 256');
  await page.locator('[name=runs]').fill('3');
  await page.getByRole('button', { name: 'Run' }).click();
  await page.getByText(/^Done on/).waitFor({ timeout: 600_000 });
  await page.evaluate(() => document.querySelector('#result').scrollIntoView());
  await shoot('bench', 640);

  await page.goto(`${base}check.html`);
  await page.getByRole('button', { name: 'Check' }).click();
  await page.getByText(/^Done: /).waitFor({ timeout: 600_000 });
  await page.evaluate(() => document.querySelector('#result').scrollIntoView());
  await shoot('check', 560);

  await page.goto(`${base}simulate.html`);
  await page.locator('[name=requests]').fill('2000');
  await page.locator('[name=concurrency]').fill('640');
  await page.locator('[name=max-batch]').fill('64');
  await page.getByRole('button', { name: 'Simulate' }).click();
  await page.getByText(/^Done in/).waitFor();
  await page.evaluate(() => document.querySelector('#result').scrollIntoView());
  await shoot('simulate', 640);
} finally {
  await browser.close();
  server.close();
  server.closeAllConnections();
}
