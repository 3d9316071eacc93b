import { readFileSync } from 'node:fs';
import { expect, type Page, test } from '@playwright/test';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { QUESTIONS } from '../../models/example.js';
import { type HubServer, startHub } from '../../src/loader/testing/hub_server.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// The test server builds dist/ before it starts. Page, Hub and the place of large files are three origins.

const files = Object.fromEntries(
  ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'].map((file) => [
    file,
    new Uint8Array(readFileSync(`models/tiny-gqa/${file}`)),
  ]),
);
let hub: HubServer;
let site: StaticSite;
test.beforeAll(async () => {
  hub = await startHub({ 'tiny/Stories': { files }, 'tiny/Gated': { files, gated: true } });
  hub.tokens.set('hf_mine', { accepted: true });
  const page = (model: string): string =>
    chatPage(`hub="${hub.url}" autostart no-self-test`).replace('models/tiny-gqa/', model).replace('"auto"', '"1"');
  site = await serveSite({
    'named.html': page('hf:tiny/Stories'),
    'gated.html': page('hf:tiny/Gated'),
    'either.html': page('tiny/Stories'),
    'here.html': page('models/tiny-gqa'),
    'neither.html': page('tiny/Missing'),
  });
});
test.afterAll(async () => {
  site.close();
  await hub[Symbol.asyncDispose]();
});

const answers = async (page: Page): Promise<void> => {
  const { field, answers: shown } = chatOf(page);
  await expect(chatOf(page).status).toHaveText(/^Ready/);
  await field.fill(QUESTIONS[0].question);
  await field.press('Enter');
  await expect(shown).toHaveText(QUESTIONS[0].answer);
};

test('a model of the Hub answers in a page of another origin, and is kept for when the Hub is out of reach', async ({
  page,
}) => {
  const failed: string[] = [];
  page.on('response', (response) => {
    if (response.status() >= 400) failed.push(response.url());
  });
  await page.goto(`${site.url}named.html`);
  await answers(page);
  expect(failed).toEqual([]); // nothing is asked for that isn't there
  expect(hub.requests.filter(({ method }) => method === 'OPTIONS')).toEqual([]); // requests without a token are simple ones
  hub.misbehave = (request) => (request.destroy(), true);
  await page.reload();
  await answers(page);
  hub.misbehave = undefined;
});

test('a gated model tells where its licence is; with a token it loads, and the token goes to the Hub alone', async ({
  page,
}) => {
  await page.goto(`${site.url}gated.html`);
  await expect(chatOf(page).problem).toContainText('tiny/Gated is gated: accept its licence at');
  hub.requests.length = 0;
  await page.evaluate(() => (document.querySelector<SplitkvChat>('splitkv-chat')!.hubToken = 'hf_mine'));
  await answers(page);
  const tokens = (origin: string) =>
    hub.requests
      .filter((request) => request.origin === origin && request.method === 'GET')
      .map(({ authorization }) => authorization);
  expect(new Set(tokens('hub'))).toEqual(new Set(['Bearer hf_mine']));
  expect(tokens('cdn').length).toBeGreaterThan(0);
  expect(new Set(tokens('cdn'))).toEqual(new Set([undefined]));
});

test("ORG/NAME is the page's own folder where there is one, else the Hub's; neither is told with both readings", async ({
  page,
}) => {
  hub.requests.length = 0;
  await page.goto(`${site.url}here.html`);
  await answers(page);
  expect(hub.requests).toEqual([]);
  await page.goto(`${site.url}either.html`);
  await answers(page);
  await page.goto(`${site.url}neither.html`);
  await expect(chatOf(page).problem).toContainText(
    new RegExp(`tiny/Missing is not at ${hub.url}.*nor is there a model at ${site.url}tiny/Missing`),
  );
});
