import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, type Page, test } from '@playwright/test';
import sharp from 'sharp';
import { described, draw, type Thing } from '../../models/drawing.js';
import { QUESTIONS, STORY } from '../../models/example.js';
import { natsServer, startNats } from '../../src/cluster/testing/nats_server.js';
import { BERT, makeRandomModel, writeModelFolder } from '../../src/model/testing/random_model.js';
import { chatOf } from '../support/chat_page.js';
import { freePort } from '../support/free_port.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// The recipes of pages, as they stand but for the models' names, beside the built package. Those that the gallery runs: site.spec.ts.

const folder = mkdtempSync(join(tmpdir(), 'splitkv-recipes-'));
const MODELS: Readonly<Record<string, string>> = {
  'smollm2-360m-instruct': '/models/tiny-gqa/',
  'HuggingFaceTB/SmolVLM-256M-Instruct': '/models/tiny-vlm/',
  'BAAI/bge-small-en-v1.5': '/embedder/',
};
const text = (recipe: string): string =>
  Object.entries(MODELS).reduce(
    (all, [name, own]) => all.replaceAll(name, own),
    readFileSync(`recipes/${recipe}/index.html`, 'utf8'),
  );

const sites: StaticSite[] = [];
/** Opens a recipe's page: its own files, the package in splitkv/, and the site's rank.html. */
async function open(page: Page, recipe: string, change = (whole: string): string => whole): Promise<StaticSite> {
  const more = {
    '/splitkv': 'dist',
    '/embedder': join(folder, 'embedder'),
    '/': `recipes/${recipe}`,
    '/app': 'dist/app',
  };
  const site = await serveSite({ 'page.html': change(text(recipe)) }, { more });
  sites.push(site);
  await page.goto(`${site.url}page.html`);
  return site;
}
test.afterEach(() => sites.splice(0).forEach((site) => site.close()));
test.afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('recipe form_filler: each field has what the text says of it', async ({ page }) => {
  await open(page, 'form_filler');
  await page.getByRole('button', { name: 'Fill the form' }).click();
  await expect(page.locator('#state')).toHaveText('Filled');
  await expect(page.getByLabel('where is the red key ?')).toHaveValue('in the kitchen box .');
  await expect(page.getByLabel('what is the code of owen ?')).toHaveValue('4 0 7');
  await expect(page.getByLabel('what does nora like ?')).toHaveValue('the lazy owl .');
});

test('recipe search: an answer with its source, and an index that is kept', async ({ page }) => {
  // Random weights, of a seed that has both questions' passages among the best two.
  const { files } = makeRandomModel({ seed: 5, config: { ...BERT, max_position_embeddings: 600 } });
  await writeModelFolder(join(folder, 'embedder'), files);
  await open(page, 'search');
  const state = page.locator('#state');
  await expect(state).toHaveText('Ready: the index of 3 documents was made');
  await page.getByRole('button', { name: 'Ask' }).click();
  await expect(page.locator('#answer')).toHaveText(/^in the workshop bag \. \[[12]\]$/);
  const cited = Number(/\[(\d)\]/.exec((await page.locator('#answer').textContent())!)![1]);
  await expect(page.locator('#sources li')).toHaveCount(2);
  await expect(page.locator('#sources li').nth(cited - 1)).toContainText('Workshop: lena hid the red needle');
  await page.reload();
  await expect(state).toHaveText('Ready: the index of 3 documents was kept');
  await page.getByLabel('Question').fill('what is the code of mia ?');
  await page.getByRole('button', { name: 'Ask' }).click();
  await expect(page.locator('#answer')).toHaveText(/^5 8 2 \. \[[12]\]$/);
});

test('recipe webmcp: an agent of the browser, or the page itself, calls the tool', async ({ page }) => {
  await open(page, 'webmcp');
  const list = page.getByRole('listitem');
  await expect(page.locator('#told')).toHaveText(/^No WebMCP in this browser/);
  await page.getByRole('button', { name: /own model/ }).click();
  await expect(list).toHaveText([/^(red key|blue book|old map)$/]);
  // A browser that has it, as far as the page sees.
  await page.addInitScript(() => {
    const tools: unknown[] = [];
    Object.assign(globalThis, { tools });
    Object.defineProperty(navigator, 'modelContext', { value: { registerTool: (tool: unknown) => tools.push(tool) } });
  });
  await page.reload();
  await expect(page.locator('#told')).toHaveText("This browser's agents may call add_item.");
  const said = await page.evaluate(async () => {
    const [tool] = (globalThis as unknown as { tools: { execute(given: object): Promise<unknown> }[] }).tools;
    return tool!.execute({ item: 'old map' });
  });
  expect(said).toEqual({ content: [{ type: 'text', text: 'old map is on the list' }] });
  await expect(list).toHaveText(['old map']);
});

test.describe('with service workers', () => {
  test.use({ serviceWorkers: 'allow' });
  test('recipe offline: the app opens and answers when its server is gone', async ({ page }) => {
    const site = await open(page, 'offline', (whole) => whole.replace('keep="offline"', `about="${STORY}"`));
    await expect(page.locator('#kept')).toHaveText(/^Kept: \d{2,} files/);
    const { button, ask, answers, status } = chatOf(page);
    const answer = async ({ question, answer: wanted }: (typeof QUESTIONS)[number]): Promise<void> => {
      await expect(status).toHaveText('Ready');
      await ask(question);
      await expect(answers).toHaveText(wanted);
    };
    await button('Download').click();
    await answer(QUESTIONS[0]);
    site.close();
    // A model that is kept starts by itself.
    await page.reload();
    await answer(QUESTIONS[1]);
  });
});

test('recipe pictures: what is in a picture', async ({ page }) => {
  const things: Thing[] = [
    [0, 0, 0],
    [3, 2, 4],
  ];
  const [width, height] = [150, 120];
  const buffer = await sharp(draw(things, { width, height, ground: 238 }), { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer();
  await open(page, 'pictures');
  const [ask, answer] = [page.getByRole('button', { name: 'Ask' }), page.locator('#answer')];
  await ask.click();
  await expect(answer).toHaveText('Choose a picture first');
  await page.getByLabel('Picture').setInputFiles({ name: 'a.png', mimeType: 'image/png', buffer });
  await ask.click();
  await expect(answer).toHaveText(described(things));
});

test('recipe from_webllm: the same requests, answered here', async ({ page }) => {
  await open(page, 'from_webllm');
  await expect(page.locator('#answer')).toHaveText('in the kitchen box .');
  await expect(page.locator('#state')).toHaveText(/^\d tokens, the same text again: true$/);
});

test('recipe rank_in_a_tab: a chat whose weights another tab has', async ({ page, context }) => {
  test.skip(natsServer === undefined, 'no nats-server (npm run setup unpacks one)');
  const webSocketPort = await freePort();
  const { url } = await open(page, 'rank_in_a_tab', (whole) =>
    whole
      .replace('ws://127.0.0.1:4223', `ws://127.0.0.1:${webSocketPort}`)
      .replace('rank.html', 'app/rank.html')
      .replace('plan="single"', `plan="single" about="${STORY}"`),
  );
  const server = await startNats({ webSocketPort, origins: [new URL(url).origin] });
  try {
    await page.reload();
    const opened = context.waitForEvent('page');
    await page.getByRole('link', { name: 'Open a tab that is a rank' }).click();
    const rank = await opened;
    await rank.getByRole('button', { name: 'Join', exact: true }).click();
    await expect(rank.locator('#state')).toHaveText('Free: it waits for a model.');
    const { button, ask, answers, status } = chatOf(page);
    await button('Start').click();
    await expect(status).toHaveText('Ready');
    await ask(QUESTIONS[2].question);
    await expect(answers).toHaveText(QUESTIONS[2].answer);
    await expect(page.locator('#ranks li')).toHaveText([/: [1-9]\.\d MiB of weights$/]);
    await expect(rank.locator('#state')).toHaveText('Busy with tiny-gqa.');
  } finally {
    await server.stop();
  }
});
