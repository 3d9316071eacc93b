import { type BrowserContext, expect, type Page, test } from '@playwright/test';
import { QUESTIONS, STORY } from '../../models/example.js';
import { renderSVG } from 'uqr';
import type { LoadOptions, Model, PeerAsks, Peers } from '../../src/index.js';
import { checkAccessibility } from '../support/accessibility.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// Pages as ranks of each other by WebRTC, without a server between them. The bus alone: src/cluster/peers/bus.test.ts.

test.use({ viewport: { width: 390, height: 800 } });
test.describe.configure({ timeout: 600_000 });

let site: StaticSite;
/** What a relay keeps. */
const kept = new Map<string, string>();
test.beforeAll(async () => {
  site = await serveSite(
    { 'plain.html': '<!doctype html><title>plain</title>' },
    {
      before: (request, response) => {
        const { url = '', method } = request;
        if (!url.startsWith('/relay/')) return false;
        if (method === 'PUT') {
          void request.toArray().then((parts) => {
            kept.set(url, Buffer.concat(parts as Buffer[]).toString());
            response.end();
          });
        } else if (kept.has(url)) response.end(kept.get(url));
        else response.writeHead(404).end();
        return true;
      },
    },
  );
});
test.afterAll(() => site?.close());

interface Kept {
  load: typeof import('../../src/index.js').load;
  joinPeer: typeof import('../../src/index.js').joinPeer;
  peers: Peers;
  model: Model;
  asks: PeerAsks;
  decide: (ok: boolean) => void;
}

/** A page that may invite, by the library. */
async function openInviter(page: Page, relay?: string): Promise<void> {
  await page.goto(`${site.url}plain.html`);
  await page.evaluate(
    async ([library, where]) => {
      const kept = globalThis as unknown as Kept;
      const { load, joinPeer, openPeers } = (await import(library!)) as typeof import('../../src/index.js');
      const confirm = (asks: PeerAsks): Promise<boolean> =>
        new Promise((decide) => Object.assign(globalThis, { asks, decide }));
      Object.assign(kept, { load, joinPeer });
      kept.peers = await openPeers({ confirm, ...(where !== undefined && { relay: where }) });
    },
    [`${site.url}lib/splitkv.js`, relay],
  );
}

const invite = (page: Page): Promise<{ id: string; text: string }> =>
  page.evaluate(async () => {
    const { peers } = globalThis as unknown as Kept;
    const invitation = await peers.invite();
    Object.assign(globalThis, {
      joined: invitation.joined.catch(
        (error: Error) => `${(error as Error & { code: string }).code}: ${error.message}`,
      ),
    });
    return { id: invitation.id, text: invitation.text };
  });

const joined = (page: Page): Promise<string> =>
  page.evaluate(() => (globalThis as unknown as { joined: Promise<string> }).joined);

/** A tab with the link of an invitation, in which Join is pressed. */
async function follow(context: BrowserContext, link: string, name: string): Promise<Page> {
  const tab = await context.newPage();
  await tab.goto(`${site.url}app/rank.html?name=${name}${link}`);
  await expect(tab.locator('#foreign')).toContainText('A page invites this tab to be a rank');
  await tab.getByRole('button', { name: 'Join', exact: true }).click();
  return tab;
}

const codeOf = (page: Page): Promise<string> =>
  page
    .waitForFunction(() => (globalThis as unknown as Partial<Kept>).asks?.code)
    .then((code) => code.jsonValue() as Promise<string>);

const decide = (page: Page, ok: boolean): Promise<void> =>
  page.evaluate((yes) => {
    const kept = globalThis as unknown as Partial<Kept>;
    kept.decide!(yes);
    delete kept.asks;
  }, ok);

const state = (tab: Page) => tab.locator('#state');
const PROMPT = `${STORY} ${QUESTIONS[0].question}`;

/** The ids of an answer, and how long a token took. The model stays loaded. */
const answerOf = (page: Page, options: LoadOptions) =>
  page.evaluate(
    async ([where, prompt, more]) => {
      const kept = globalThis as unknown as Kept;
      await kept.model?.dispose();
      const cluster = (more as { ranks?: unknown }).ranks === 'peers';
      const ranks = kept.peers?.names;
      kept.model = await kept.load(where, {
        contextLength: 512,
        ...(more as object),
        ...(cluster && { ranks, cluster: { peers: kept.peers, patience: 1 } }),
      });
      const answers = [];
      for (let run = 0; run < 2; run++) {
        answers.push(await kept.model.generate(prompt, { maxTokens: 40, ignoreEos: true, speculate: 'off' }).result);
      }
      const { tokens, stats } = answers[1]!;
      return { tokens: [...tokens], ms: 1000 / stats.tokens_per_second, ranks: stats.ranks };
    },
    [`${site.url}models/tiny-gqa/`, PROMPT, options as unknown] as const,
  );
const overPeers = { ranks: 'peers' } as unknown as LoadOptions;

test('two pages of a browser: the tokens of one page, and a tab that closes', async ({ page, context }) => {
  await openInviter(page);
  const one = await answerOf(page, {});
  const workers = await answerOf(page, { ranks: 2, workers: true, plan: 'tp' });
  const { text } = await invite(page);
  const tab = await follow(context, `#peer=${text}`, 'tab');
  const code = await codeOf(page);
  expect(code).toMatch(/^\d{3} \d{3}$/);
  await expect(tab.locator('.peer-code')).toHaveText(code);
  await tab.getByRole('button', { name: 'It shows the same' }).click();
  await decide(page, true);
  expect(await joined(page)).toBe('tab');
  await expect(state(tab)).toHaveText('Free: it waits for a model.');

  const late = await follow(context, `#peer=${text}`, 'late');
  await expect(late.getByRole('alert').filter({ hasText: 'invitation' })).toContainText('this invitation was used');
  await late.close();

  for (const plan of ['tp', 'pp']) {
    const two = await answerOf(page, { ...overPeers, plan });
    expect(two.tokens, plan).toEqual(one.tokens);
    const [{ bytes_per_token: bytes } = { bytes_per_token: 0 }] = two.ranks;
    const ms = [one, workers, two].map((each) => each.ms.toFixed(0)).join(', ');
    console.log(`ms a token of one page, two workers by tp, two pages by ${plan}: ${ms}; bytes a token: ${bytes}`);
    await expect(state(tab)).toHaveText('Busy with its part of tiny-gqa, as rank 1 of 2.');
  }
  const failed = page.evaluate(async () => {
    const { model } = globalThis as unknown as Kept;
    try {
      for (;;) await model.generate([1, 300, 301], { maxTokens: 50, ignoreEos: true }).result;
    } catch (error) {
      return `${(error as { code: string }).code}: ${(error as Error).message}`;
    }
  });
  await tab.close();
  expect(await failed).toMatch(/^peer_lost: .*tab of the cluster/);
  const rest = await page.evaluate(async () => {
    const { model, peers } = globalThis as unknown as Kept;
    await model.recover();
    return [model.info.plan.worldSize, peers.names];
  });
  expect(rest).toEqual([1, ['here']]);
});

test('another browser, by a text that is copied; what is denied, and what is no invitation', async ({
  page,
  browser,
}) => {
  const elsewhere = await browser.newContext();
  await page.goto(`${site.url}app/ranks.html?plan=tp&context=512`);
  const status = page.locator('#peers-status');
  await expect(page.locator('#model-status')).toHaveText('tiny-gqa is ready.');
  const link = async (): Promise<string> => {
    await page.getByRole('button', { name: 'Invite a tab' }).click();
    await expect(status).toHaveText(/^It is for one tab/);
    return (await page.locator('#invitation-link').getAttribute('href'))!.replace(/^[^#]*/, '');
  };
  const answer = async (tab: Page): Promise<void> => {
    await expect(tab.locator('#answer')).not.toBeEmpty();
    await page.getByLabel('Its answer').fill(await tab.locator('#answer').innerText());
  };
  const first = await follow(elsewhere, await link(), 'wrong');
  // The same link as a QR code.
  await page.getByText('The link as a QR code').click();
  await expect(page.getByRole('img', { name: 'QR code of the link' })).toBeVisible();
  const { href } = new URL((await page.locator('#invitation-link').getAttribute('href'))!, page.url());
  const [, drawn] = / d="([^"]*)"/.exec(renderSVG(href))!;
  expect(await page.locator('#invitation-code path').getAttribute('d')).toBe(drawn);
  await page.getByLabel('Its answer').fill('nothing');
  await expect(status).toHaveText('this is not an answer to an invitation, or not all of it: copy the whole text.');
  await answer(first);
  await expect(first.locator('.peer-code')).toBeVisible();
  for (const each of [first, page]) await checkAccessibility(each);
  await page.getByRole('button', { name: "No, don't join" }).click();
  await expect(first.getByRole('alert').last()).toContainText('here said no');
  await expect(status).toHaveText('Nobody joined: wrong was not let in.');

  await first.getByLabel('Invitation').fill('peer=abc');
  await first.getByRole('button', { name: 'Join', exact: true }).click();
  await expect(first.getByRole('alert').last()).toContainText('this is not an invitation');

  const tab = await follow(elsewhere, await link(), 'tab');
  await answer(tab);
  const code = await page.locator('.peer-code').innerText();
  await expect(tab.locator('.peer-code')).toHaveText(code);
  await page.getByRole('button', { name: 'It shows the same' }).click();
  await tab.getByRole('button', { name: 'It shows the same' }).click();
  await expect(status).toHaveText('2 ranks: here, tab.');
  await expect(page.locator('#plan')).toHaveText('Plan tp on 2 ranks.');
  await page.getByLabel('Text', { exact: true }).fill(STORY);
  await page.getByLabel('Question', { exact: true }).fill(QUESTIONS[0].question);
  await page.getByLabel('Question', { exact: true }).press('Enter');
  await expect(page.locator('#answer')).toHaveText(QUESTIONS[0].answer);
  await tab.getByRole('button', { name: 'Leave' }).click();
  await expect(tab.locator('#foreign')).toHaveText('Left.');
  await elsewhere.close();
});

test('another browser, by a relay, and an inviting page that closes', async ({ page, browser }) => {
  const relay = `${site.url}relay`;
  const elsewhere = await browser.newContext();
  await openInviter(page, relay);
  const { id } = await invite(page);
  const unknown = await follow(elsewhere, `#peer=${'0'.repeat(32)}&relay=${relay}`, 'tab');
  await expect(unknown.getByRole('alert').last()).toContainText("this invitation isn't there");
  const tab = await follow(elsewhere, `#peer=${id}&relay=${relay}`, 'tab');
  await expect(tab.locator('.peer-code')).toHaveText(await codeOf(page));
  await decide(page, true);
  await tab.getByRole('button', { name: 'It shows the same' }).click();
  expect(await joined(page)).toBe('tab');
  await expect(state(tab)).toHaveText('Free: it waits for a model.');
  await page.close();
  await expect(tab.getByRole('alert').last()).toContainText('The page that invited it is gone: ');
  await elsewhere.close();
});
