import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, type Page, test } from '@playwright/test';
import { connectCluster } from '../../src/cluster/connect.js';
import type { NatsServer } from '../../src/cluster/node_nats_server.js';
import { pushModel } from '../../src/cluster/store/push.js';
import { natsServer, startNats } from '../../src/cluster/testing/nats_server.js';
import { RankProcess } from '../../src/cluster/testing/rank_process.js';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { QUESTIONS } from '../../models/example.js';
import { drawn } from '../../src/gpu/testing/draw.js';
import type { LoadOptions } from '../../src/index.js';
import { openSource } from '../../src/loader/index.js';
import { checkAccessibility } from '../support/accessibility.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// Tabs and a process as ranks of pages, by a NATS server of this test; more of ranks: src/cluster/ranks. The test server builds dist/ before it starts.

test.skip(natsServer === undefined, 'no nats-server (npm run setup unpacks one)');
test.use({ viewport: { width: 390, height: 800 } });

const TOKEN = 'a long secret';
let server: NatsServer;
let site: StaticSite;
test.beforeAll(async () => {
  server = await startNats({ token: TOKEN });
  const cluster = await connectCluster({ servers: server.url, token: TOKEN });
  await pushModel(cluster, await openSource('models/tiny-gqa'));
  await cluster.close();
  const policy = `default-src 'self'; img-src 'self' data:; connect-src 'self' ${server.webSocketUrl}`;
  const pages = {
    'plain.html': '<!doctype html><title>plain</title>',
    'chat.html': chatPage('cluster-name="main" no-self-test')
      .replace('ranks="auto"', 'ranks="a" plan="single"')
      .replace('models/tiny-gqa/', 'cluster:tiny-gqa'),
  };
  site = await serveSite(pages, {
    before: (_request, response) => {
      response.setHeader('Content-Security-Policy', policy);
      return false;
    },
  });
});
test.afterAll(async () => {
  site?.close();
  await server?.stop();
});

/** A tab that joins as a rank, once somebody has said so and typed the token. */
async function joinAs(page: Page, name: string, token = TOKEN): Promise<void> {
  const query = new URLSearchParams({ cluster: server.webSocketUrl, name });
  await page.goto(`${site.url}app/rank.html?${query}`);
  await expect(page.locator('#foreign')).toContainText(new URL(server.webSocketUrl).host);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Join', exact: true }).click();
}

const state = (page: Page) => page.locator('#state');

/** SHA-256 of the logits of every position, in the built library in a page; the model stays loaded there. */
const digestIn = (page: Page, options: LoadOptions, where = '/models/tiny-gqa/'): Promise<string> =>
  page.evaluate(
    async ([library, more, from]) => {
      const { load } = (await import(library)) as typeof import('../../src/index.js');
      const kept = globalThis as { model?: Awaited<ReturnType<typeof load>> };
      await kept.model?.dispose();
      const model = await load(from, { contextLength: 256, ...(more as object) });
      kept.model = model;
      const rows: BlobPart[] = [];
      const tokens = Array.from({ length: 90 }, (_, at) => (at * 37) % 250);
      await model.logits(tokens, { all: true, onRow: (_position, row) => void rows.push(row.slice()) });
      const hash = await crypto.subtle.digest('SHA-256', await new Blob(rows).arrayBuffer());
      return [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
    },
    [`${site.url}lib/splitkv.js`, options as unknown, where] as const,
  );

test('two tabs are the ranks of a third one: the same bits, and a tab that closes is named', async ({
  page,
  context,
}) => {
  const [a, b] = [await context.newPage(), await context.newPage()];
  const problems: string[] = [];
  for (const each of [a, b, page]) {
    each.on('console', (message) => {
      if (/Content Security Policy|close frame/.test(message.text())) problems.push(message.text());
    });
    each.on('pageerror', (error) => problems.push(error.message));
  }
  await joinAs(a, 'a', 'wrong');
  await expect(a.getByRole('alert')).toContainText('the server refuses this account');
  await checkAccessibility(a);
  await joinAs(a, 'a');
  await expect(state(a)).toHaveText('Free: it waits for a model.');
  await joinAs(b, 'b');
  await expect(state(b)).toHaveText('Free: it waits for a model.');

  await page.goto(`${site.url}plain.html`);
  const one = await digestIn(page, {});
  const cluster = { servers: server.webSocketUrl, token: TOKEN };
  const [plan] = drawn(['pp', 'tp', 'token'], 1, 'plans');
  // From its site, or from the cluster's own store.
  const [where] = drawn(['/models/tiny-gqa/', 'cluster:tiny-gqa'], 1, 'models');
  expect(await digestIn(page, { cluster, ranks: ['a', 'b'], plan: plan! }, where), `${plan} ${where}`).toBe(one);
  await expect(state(b)).toHaveText('Busy with its part of tiny-gqa, as rank 1 of 2.');
  await expect(a.locator('#facts')).toContainText(/Holds\s*[\d.]+ MiB of weights, [\d.]+ \w+ of KV cache/);
  await checkAccessibility(a);
  await b.close();
  const lost = await page.evaluate(async () => {
    const { model } = globalThis as unknown as { model: import('../../src/index.js').Model };
    try {
      for (;;) await model.generate([1, 300, 301], { maxTokens: 50, ignoreEos: true }).result;
    } catch (error) {
      return `${(error as { code: string }).code}: ${(error as Error).message}`;
    } finally {
      await model.dispose();
    }
  });
  expect(lost).toMatch(/^peer_lost: .*\bb of the cluster/);
  await expect(state(a)).toHaveText(/^Free: it waits for a model\./);
  await a.getByRole('button', { name: 'Leave' }).click();
  await expect(a.locator('#foreign')).toHaveText('Left.');
  await expect(a.getByRole('button', { name: 'Join', exact: true })).toBeFocused();
  expect(problems).toEqual([]);
});

test('a chat runs on a rank in a process, says so, and what is wrong with its cluster', async ({ page }) => {
  const folder = mkdtempSync(join(tmpdir(), 'splitkv-cluster-'));
  writeFileSync(join(folder, 'token'), TOKEN);
  const rank = new RankProcess('a', server, ['--token-file', join(folder, 'token')]);
  await rank.ready();
  await page.goto(`${site.url}chat.html`);
  const { chat, status, problem, button, ask, answers } = chatOf(page);
  const come = (token: string, servers = server.webSocketUrl): Promise<void> =>
    chat.evaluate((element: SplitkvChat, access) => void (element.cluster = access), {
      servers,
      token,
      patience: 1,
    });
  await come('wrong');
  await expect(chat).toContainText(`a of the cluster main (${new URL(server.webSocketUrl).host})`);
  await button('Start').click();
  await expect(problem).toContainText("The cluster doesn't let this page in");
  expect(await page.content()).not.toContain('wrong');
  await come(TOKEN);
  await button('Start').click();
  await expect(status).toHaveText('Ready');
  await expect(chat).toContainText('what you type goes there');
  await button('About this model').click();
  await expect(chat).toContainText(/Runs on\s*a: \S/);
  await page.keyboard.press('Escape');
  await ask(QUESTIONS[0].question);
  await expect(answers).toHaveText(QUESTIONS[0].answer);
  // Nobody takes its place.
  await rank.stop('SIGKILL');
  await ask(QUESTIONS[1].question);
  await expect(problem).toContainText('A part of the model went away');
  await expect(button('Bring it back')).toBeVisible();
  rmSync(folder, { recursive: true });
});
