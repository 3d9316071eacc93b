import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { expect, type FrameLocator, type Page, test } from '@playwright/test';
import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../../models/example.js';
import { PAGES } from '../../pages/shared/pages.js';
import { drawn } from '../../src/gpu/testing/draw.js';
import { serveFiles } from '../../src/server/http/static_files.js';
import { openExtension } from '../apps/run_app.js';
import { checkAccessibility } from '../support/accessibility.js';

// `npm run site` of the build that the test server made, at a path of its own, by a server that knows only files.

const folder = mkdtempSync(join(tmpdir(), 'splitkv-site-'));
const out = join(folder, 'site');
const PATH = '/some/where/';
/** Where it is said to be. */
const BASE = 'https://example.org/some/where/';
let server: Server;
let url: string;

test.beforeAll(async () => {
  const made = spawnSync(process.execPath, ['scripts/site.mjs', '--out', out, '--base', BASE], {
    encoding: 'utf8',
    env: { ...process.env, SPLITKV_BUILT: '1' },
  });
  expect(made.status, made.stderr).toBe(0);
  const files = serveFiles(PATH, out);
  server = createServer((request, response) => {
    const [path = ''] = (request.url ?? '').split(/[?#]/);
    if (path.endsWith('/')) request.url += 'index.html';
    if (path.startsWith(PATH) && (path.endsWith('/') || existsSync(join(out, path.slice(PATH.length))))) {
      return files(request, response, () => {});
    }
    response.writeHead(404, { 'Content-Type': 'text/html' }).end(readFileSync(join(out, '404.html')));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}${PATH}`;
});
test.afterAll(() => {
  server.closeAllConnections();
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

/** What goes wrong on a page, and what it asks other sites for. */
function watch(page: Page): string[] {
  const problems: string[] = [];
  page.on('pageerror', ({ message }) => problems.push(message));
  page.on('response', (response) => {
    // Optional files of a model, and the icon that no page asked for.
    if (response.status() >= 400 && !/\/models\/|favicon/.test(response.url())) problems.push(response.url());
  });
  page.on('request', (request) => {
    if (/^https?:/.test(request.url()) && !request.url().startsWith(new URL(url).origin)) problems.push(request.url());
  });
  return problems;
}

/** Downloads the example model in a chat, unless another did, and asks. */
async function ask(chat: ReturnType<FrameLocator['locator']>, question: string): Promise<void> {
  const start = chat.getByRole('button', { name: /^(Download|Start)/ });
  const ready = chat.getByText('Ready', { exact: true });
  await expect(start.or(ready)).toBeVisible();
  if (await start.isVisible()) await start.click();
  await expect(ready).toBeVisible();
  await chat.getByRole('textbox', { name: 'Message' }).fill(question);
  await chat.getByRole('textbox', { name: 'Message' }).press('Enter');
  await expect(chat.getByRole('article', { name: 'Answer' })).toHaveAttribute('aria-busy', 'false');
}

test('every address in the site is relative, and leads to a file of it', () => {
  const wrong: string[] = [];
  const pages = readdirSync(out, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.html'));
  expect(pages.length).toBeGreaterThan(100);
  for (const page of pages) {
    const text = readFileSync(join(out, page), 'utf8').replaceAll(/<(pre|code)\b[\s\S]*?<\/\1>/g, '');
    for (const [, address] of text.matchAll(/\s(?:href|src)="([^"]*)"/g)) {
      if (/^($|#|data:|https:|mailto:)/.test(address!)) continue;
      const path = join(dirname(page), decodeURIComponent(address!.replaceAll('&amp;', '&').replace(/[?#].*$/, '')));
      const file = join(out, path);
      const isThere = existsSync(file) && (statSync(file).isFile() || existsSync(join(file, 'index.html')));
      if (address!.startsWith('/') || !isThere) wrong.push(`${page}: ${address}`);
    }
  }
  expect(wrong).toEqual([]);
  expect(existsSync(join(out, '.nojekyll'))).toBe(true);
});

test('every page opens below a path, with the same links and nothing from elsewhere', async ({ page }) => {
  const problems = watch(page);
  for (const { address, name, want } of drawn(PAGES, 4, 'pages below a path')) {
    await page.goto(url + address);
    const links = page.getByRole('navigation', { name: 'Pages' }).getByRole('link');
    const near = PAGES.filter((other) => want !== undefined && other.want === want).map((other) => other.name);
    const wants = ['Chat', 'Docs', 'Several GPUs', 'Bench', 'Play'];
    await expect(links).toHaveText(['splitkv', ...wants, ...(near.length > 1 ? near : [])]);
    await expect(links.and(page.locator('[aria-current=page]'))).toHaveText(near.length === 1 ? want! : name);
  }
  await page.goto(`${url}api/functions/splitkv.load.html`);
  await expect(page.getByText('SplitkvError:')).toBeVisible();
  // Guides stand in groups, and are found by what they say.
  await expect(page.locator('#tsd-nav-container > li > details > summary')).toContainText(['Start', 'Embed', 'Serve']);
  await page.locator('#tsd-search-trigger').click();
  await page.locator('#tsd-search-input').fill('nginx');
  await expect(page.locator('#tsd-search-results li').first()).toContainText('Operation');
  await page.keyboard.press('Escape');
  for (const guide of ['index', 'documents/docs_chat']) {
    await page.goto(`${url}api/${guide}.html`);
    await checkAccessibility(page, ['nested-interactive']); // TypeDoc's folders are links, too
  }
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Play' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Play');
  expect(problems).toEqual([]);
});

test('pages stay where they are while they open, complain of nothing, and have what links to them show', async ({
  page,
}) => {
  const problems: string[] = [];
  page.on('console', (message) => {
    // Optional files of a model.
    if (message.type() === 'error' && !/404/.test(message.text())) problems.push(message.text());
  });
  await page.addInitScript(() => {
    let moved = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as (PerformanceEntry & { value: number; hadRecentInput: boolean })[]) {
        if (!entry.hadRecentInput) moved += entry.value;
      }
      Object.assign(globalThis, { moved });
    }).observe({ type: 'layout-shift', buffered: true });
  });
  const own = PAGES.filter(({ address }) => !address.includes('/'));
  const about = (name: string) => page.locator(`meta[name="${name}"], meta[property="${name}"]`);
  // What a page shows once its model is there moves nothing either.
  const filled: Readonly<Record<string, string>> = { 'ranks.html': '#answer-figures', 'bench.html': '#about' };
  const some = own.filter(({ address }, at) => at < 2 || address in filled);
  const others = own.filter((one) => !some.includes(one));
  for (const { address } of [...some, ...drawn(others, 1, 'heads')]) {
    for (const [width, height] of [
      [390, 844],
      [1280, 800],
    ] as const) {
      await page.setViewportSize({ width, height });
      await page.goto(url + address, { waitUntil: 'networkidle' });
      if (address in filled) await page.locator(filled[address]!).filter({ hasText: /\S/, visible: true }).waitFor();
      const moved = await page.evaluate(() => (globalThis as { moved?: number }).moved ?? 0);
      expect(moved, `${address} at ${width}`).toBeLessThan(0.1);
    }
    const title = await page.title();
    expect(title, address).toMatch(/\S( · |: )/);
    await expect(about('og:title')).toHaveAttribute('content', title);
    const text = await about('description').getAttribute('content');
    expect(text!.length, address).toBeGreaterThan(30);
    await expect(about('og:description')).toHaveAttribute('content', text!);
    await expect(about('og:image')).toHaveAttribute('content', `${BASE}card.png`);
    await expect(about('og:url')).toHaveAttribute('content', BASE + address.replace('index.html', ''));
  }
  const card = readFileSync(join(out, 'card.png'));
  expect([card.readUInt32BE(16), card.readUInt32BE(20)]).toEqual([1200, 630]);
  expect(card.length).toBeLessThan(60_000);
  const manifest = await (await page.request.get(`${url}site.webmanifest`)).json();
  for (const file of [manifest.start_url, manifest.icons[0].src]) {
    expect((await page.request.get(new URL(file, url).href)).status(), file).toBe(200);
  }
  expect(problems).toEqual([]);
});

test.describe('without a network', () => {
  test.use({ serviceWorkers: 'allow' });
  test('the chat page opens and answers after one visit', async ({ page, context }) => {
    await page.goto(`${url}chat.html`);
    const chat = page.locator('splitkv-chat');
    await ask(chat, QUESTIONS[0].question);
    await expect(page.locator('html')).toHaveAttribute('data-kept', /^\d{2,}$/);
    await context.setOffline(true);
    await page.reload();
    await expect(chat.getByRole('article', { name: 'Answer' })).toHaveText(QUESTIONS[0].answer);
    await expect(chat.getByText('Ready', { exact: true })).toBeVisible();
    await chat.getByRole('textbox', { name: 'Message' }).fill(QUESTIONS[1].question);
    await chat.getByRole('textbox', { name: 'Message' }).press('Enter');
    await expect(chat.getByRole('article', { name: 'Answer' }).last()).toHaveText(QUESTIONS[1].answer);
  });
});

test('what is not there leads back, from any depth', async ({ page }) => {
  await page.goto(`${url}no/such/page`);
  await expect(page.getByRole('heading')).toHaveText('There is no such page');
  await page.getByRole('link').hover();
  await expect(page.getByRole('link')).toHaveAttribute('href', url);
  await checkAccessibility(page);
  await page.getByRole('link').click();
  await expect(page).toHaveURL(url);
});

test('the first page has a live chat, which loads what is asked for', async ({ page }) => {
  const problems = watch(page);
  const weights: string[] = [];
  page.on('request', (request) => {
    if (request.url().endsWith('.safetensors')) weights.push(request.url());
  });
  await page.goto(url);
  await expect(page.locator('#tag')).toContainText('<splitkv-chat model="smollm2-360m-instruct"></splitkv-chat>');
  await checkAccessibility(page);
  expect(weights).toEqual([]);
  await page.getByRole('button', { name: 'The example' }).click();
  const chat = page.locator('splitkv-chat');
  await ask(chat, QUESTIONS[1].question);
  await expect(chat.getByRole('article', { name: 'Answer' })).toHaveText(QUESTIONS[1].answer);
  await page.setViewportSize({ width: 340, height: 700 });
  await checkAccessibility(page);
  expect(problems).toEqual([]);
});

/** What each of the gallery's texts shows once it has answered. */
const SHOWS: Readonly<Record<string, (frame: FrameLocator) => Promise<void>>> = {
  one_tag: async (frame) => expect(frame.getByRole('article', { name: 'Answer' })).not.toBeEmpty(),
  react: async (frame) => expect(frame.locator('p > output')).toHaveText('1'),
  two_ranks: async (frame) => {
    await expect(frame.locator('#ranks li')).toHaveText([
      /^Rank 0 on .+: \d\.\d MiB of weights, [1-9]\d* bytes sent per token in [1-9]\d* exchanges$/,
      /^Rank 1 on .+: \d\.\d MiB of weights, [1-9]\d* bytes sent per token in [1-9]\d* exchanges$/,
    ]);
  },
  json_answers: async (frame) => {
    await expect(frame.locator('#verdict')).toHaveText(/^★{1,5} (happy|mixed|unhappy)$/);
    const answer = await frame.getByRole('article', { name: 'Answer' }).locator('pre').innerText();
    expect(JSON.parse(answer)).toEqual({ mood: expect.any(String), stars: expect.any(Number) });
  },
};

test('the gallery shows texts that run as they are shown', async ({ page }) => {
  const problems = watch(page);
  await page.goto(`${url}gallery.html`);
  await checkAccessibility(page);
  await page.getByLabel('Model in all of this page').selectOption(EMBEDDED_MODEL);
  const examples = page.locator('.example');
  const recipes = [...readFileSync('recipes/README.md', 'utf8').matchAll(/^- \[(\w+)\]/gm)].map(([, id]) => id!);
  const titles = recipes.map((id) => readFileSync(`recipes/${id}/README.md`, 'utf8').split('\n')[0]!.replace('# ', ''));
  await expect(examples.getByRole('heading')).toHaveText(titles);
  for (const [id, shows] of drawn(Object.entries(SHOWS), 1, 'gallery')) {
    const example = page.locator(`#${id}`);
    await expect(example.locator('pre').first()).toContainText(EMBEDDED_MODEL);
    await example.getByRole('button', { name: /^Run .* here$/ }).click();
    const frame = example.frameLocator('iframe');
    await ask(frame.locator('splitkv-chat'), QUESTIONS[0].question);
    await shows(frame);
  }
  expect(problems).toEqual([]);
});

test('the playground asks what its address holds, in a form, and writes the program that does', async ({ page }) => {
  const problems = watch(page);
  const asked = new URLSearchParams({
    model: EMBEDDED_MODEL,
    prompt: `${STORY} ${QUESTIONS[0].question}`,
    maxTokens: '12',
  });
  await page.goto(`${url}gallery.html#playground?${String(asked)}`);
  const play = page.getByRole('region', { name: 'Playground' });
  await expect(page.getByLabel('Model in all of this page')).toHaveValue(EMBEDDED_MODEL);
  await expect(play.getByLabel('Most tokens')).toHaveValue('12');
  await expect(play.getByRole('region', { name: 'Program' })).toContainText('maxTokens: 12');
  // Nothing runs before somebody says so.
  await expect(play.getByRole('region', { name: 'Answer' })).toBeEmpty();
  await play.getByRole('button', { name: 'Run' }).click();
  await expect(play.getByRole('status')).toHaveText(/^\d+ tokens, .+ tokens\/s, the first after \d+ ms$/);
  await expect(play.getByRole('region', { name: 'Answer' })).toHaveText(QUESTIONS[0].answer);
  await play.getByLabel('Schema of the answer').fill('{"enum": ["in the garden"]');
  await expect(play.getByRole('status')).toContainText('The schema is no JSON');
  await play.getByLabel('Schema of the answer').fill('{"enum": ["in the garden"]}');
  await play.getByRole('button', { name: 'Run' }).click();
  await expect(play.getByRole('region', { name: 'Answer' })).toHaveText('"in the garden"');
  expect(new URLSearchParams(new URL(page.url()).hash.split('?')[1]).get('schema')).toBe('{"enum": ["in the garden"]}');
  await page.reload();
  await expect(play.getByLabel('Schema of the answer')).toHaveValue('{"enum": ["in the garden"]}');
  await checkAccessibility(page);
  expect(problems).toEqual([]);
});

test("the gallery's extension is one: loaded into the browser, its panel answers", async ({ page }) => {
  await page.goto(`${url}gallery.html`);
  const example = page.locator('#extension');
  const own = join(folder, 'extension');
  cpSync(join(out, 'splitkv'), join(own, 'splitkv'), { recursive: true });
  cpSync(resolve('models/tiny-gqa'), join(own, EMBEDDED_MODEL), { recursive: true });
  await page.getByLabel('Model in all of this page').selectOption(EMBEDDED_MODEL);
  for (const [at, name] of (await example.locator('.file > span').allInnerTexts()).entries()) {
    writeFileSync(join(own, name), await example.locator('pre').nth(at).innerText());
  }
  const site = await openExtension(own);
  try {
    const panel = await site.open();
    const failures: string[] = [];
    panel.on('pageerror', ({ message }) => failures.push(message));
    await panel.goto(`${site.url}panel.html`);
    await panel.locator('splitkv-chat').evaluate((chat, about) => chat.setAttribute('about', about), STORY);
    await ask(panel.locator('splitkv-chat'), QUESTIONS[2].question);
    await expect(panel.getByRole('article', { name: 'Answer' })).toHaveText(QUESTIONS[2].answer);
    // Kept, as the tag says.
    await panel.reload();
    await expect(panel.getByRole('article', { name: 'Answer' })).toHaveText(QUESTIONS[2].answer);
    expect(failures).toEqual([]);
  } finally {
    await site.close();
  }
});

test('a model that was put into the site is offered first, and opened by the chat page', async ({ page }) => {
  const own = join(folder, 'own');
  const made = spawnSync(process.execPath, ['scripts/site.mjs', '--out', own, '--model', 'models/tiny-mla'], {
    encoding: 'utf8',
    env: { ...process.env, SPLITKV_BUILT: '1' },
  });
  expect(made.status, made.stderr).toBe(0);
  const files = serveFiles('/own/', own);
  const server = createServer((request, response) => files(request, response, () => response.writeHead(404).end()));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  try {
    const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}/own/`;
    await page.goto(`${at}index.html`);
    const first = page.locator('#models button').first();
    await expect(first).toHaveText('tiny-mla');
    await first.click();
    await expect(page.getByText(/[\d.]+ MiB from this site/)).toBeVisible();
    await expect(page.locator('#tag')).toContainText('models/tiny-mla/');
    await page.goto(`${at}chat.html`);
    const chat = page.locator('splitkv-chat');
    await expect(chat).toHaveAttribute('model', 'models/tiny-mla/');
    await ask(chat, `${STORY} ${QUESTIONS[0].question}`);
    await expect(chat.getByRole('article', { name: 'Answer' })).toHaveText(QUESTIONS[0].answer);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test('the folder is refused where it holds something else', () => {
  const made = spawnSync(process.execPath, ['scripts/site.mjs', '--out', 'docs'], {
    encoding: 'utf8',
    env: { ...process.env, SPLITKV_BUILT: '1' },
  });
  expect(made.status).not.toBe(0);
  expect(made.stderr).toContain('holds something else');
});
