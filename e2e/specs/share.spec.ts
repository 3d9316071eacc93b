import { type BrowserContext, expect, type Page, test } from '@playwright/test';
import { QUESTIONS } from '../../models/example.js';
import type { Model } from '../../src/index.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite } from '../support/static_site.js';

const all = process.env['SPLITKV_SWEEP'] === 'all';
const TABS = all ? 10 : 4;
const KILLS = all ? 20 : 4;

declare global {
  interface Window {
    model: Model;
    /** GPU devices of this page that are in use. */
    devices: number;
    answers: { text: string; done: string }[];
    /** Hosts that said that they load. */
    hosts: number;
  }
}

/** Counts devices. */
const count = (page: Page): Promise<unknown> =>
  page.addInitScript(() => {
    window.devices = 0;
    window.answers = [];
    const { requestDevice } = GPUAdapter.prototype;
    GPUAdapter.prototype.requestDevice = async function (...given) {
      const device = await requestDevice.apply(this, given);
      window.devices++;
      void device.lost.then(() => window.devices--);
      return device;
    };
  });

async function open(page: Page, url: string, share: boolean): Promise<void> {
  await count(page);
  await page.goto(url);
  await page.evaluate(async (share) => {
    const address = '/lib/splitkv.js';
    const { load } = (await import(address)) as typeof import('../../src/index.js');
    window.model = await load('/models/tiny-gqa/', { share, requests: 4, contextLength: 512 });
  }, share);
}

/** Begins an answer by its number. */
const ask = (page: Page, seed: number): Promise<void> =>
  page.evaluate((seed) => {
    const answer = { text: '', done: '' };
    window.answers.push(answer);
    const drawn = seed % 2 === 0 ? {} : { temperature: 1, seed };
    const generation = window.model.generate([1, 300, 5, seed], { maxTokens: 80, ignoreEos: true, ...drawn });
    void (async () => {
      try {
        for await (const piece of generation) answer.text += piece;
        answer.done = (await generation.result).tokens.join(' ');
      } catch (error) {
        answer.done = String(error);
      }
    })();
  }, seed);

const texts = (page: Page, number: number): Promise<{ text: string; done: string }> =>
  page.evaluate((number) => window.answers[number]!, number);
const devices = (page: Page): Promise<number> => page.evaluate(() => window.devices);
const inAll = async <T>(pages: readonly Page[], of: (page: Page, at: number) => Promise<T>): Promise<T[]> =>
  Promise.all(pages.map(of));

const PLAIN = { 'plain.html': '<!doctype html><meta charset="utf-8"><title>plain</title>' };

/** Answers of a model of its own. */
async function answersAlone(context: BrowserContext, url: string, number: number): Promise<readonly unknown[]> {
  const alone = await context.newPage();
  await open(alone, url, false);
  expect(await devices(alone)).toBe(1);
  const expected: unknown[] = [];
  for (let seed = 0; seed < number; seed++) await ask(alone, seed);
  for (let seed = 0; seed < number; seed++) {
    await expect.poll(async () => (await texts(alone, seed)).done).toMatch(/^\d+ /);
    expected.push(await texts(alone, seed));
  }
  await alone.close();
  return expected;
}

/** Until an answer is being written there. */
const isWritten = (page: Page, number: number): Promise<unknown> =>
  page.waitForFunction(
    (number) => window.answers[number]!.text.length > 20 && window.answers[number]!.done === '',
    number,
    { polling: 20 },
  );

/** Until it has this answer. */
async function hasAnswered(page: Page, number: number, expected: unknown, when: string): Promise<void> {
  await expect.poll(async () => (await texts(page, number)).done, { timeout: 300_000 }).not.toBe('');
  expect(await texts(page, number), when).toEqual(expected);
}

test('ten tabs share the model of a worker: who closes interrupts nobody, and where it dies a tab takes over', async ({
  context,
}) => {
  test.setTimeout(600_000);
  const site = await serveSite(PLAIN);
  const url = `${site.url}plain.html`;
  const expected = await answersAlone(context, url, 10);
  const pages = await Promise.all(Array.from({ length: 10 }, () => context.newPage()));
  await inAll(pages, (page) => open(page, url, true));
  const session = await context.browser()!.newBrowserCDPSession();
  const workers = async () =>
    (await session.send('Target.getTargets')).targetInfos.filter(
      (target) => target.type === 'shared_worker' && target.url.startsWith(site.url),
    );
  expect(await workers()).toHaveLength(1);
  const last = pages[9]!;
  await last.evaluate(async () => {
    window.hosts = 0;
    const { held = [] } = await navigator.locks.query();
    const { name } = held.find((lock) => lock.name!.startsWith('splitkv-share'))!;
    new BroadcastChannel(`${name} all`).onmessage = ({ data }) =>
      (window.hosts += Number((data as { type: string }).type === 'here'));
  });
  const ofAll = async (pages: readonly Page[]): Promise<number> =>
    (await inAll(pages, devices)).reduce((sum, count) => sum + count);

  // All at once; then with tabs that close meanwhile.
  await inAll(pages, ask);
  await inAll(pages, (page, at) => hasAnswered(page, 0, expected[at], `tab ${at}`));
  await inAll(pages, ask);
  await Promise.any(pages.map((page) => isWritten(page, 1)));
  await inAll(pages.slice(0, 6), (page) => page.close());
  const left = pages.slice(6);
  await inAll(left, (page, at) => hasAnswered(page, 1, expected[6 + at], `tab ${6 + at} after others closed`));
  expect(await last.evaluate(() => window.hosts)).toBe(0);
  expect(await ofAll(left)).toBe(0);

  await inAll(left, (page, at) => ask(page, 6 + at));
  await Promise.any(left.map((page) => isWritten(page, 2)));
  const { targetId } = (await workers())[0]!;
  await session.send('Target.closeTarget', { targetId });
  await inAll(left, (page, at) => hasAnswered(page, 2, expected[6 + at], `tab ${6 + at} without the worker`));
  expect(await last.evaluate(() => window.hosts)).toBe(1);
  expect(await ofAll(left)).toBe(1);
  await inAll(left, (page) => page.evaluate(() => window.model.dispose()));
  await expect.poll(() => ofAll(left)).toBe(0);

  // The next one has it in a worker again.
  await last.reload();
  await open(last, url, true);
  await ask(last, 3);
  await hasAnswered(last, 0, expected[3], 'a worker again');
  expect(await devices(last)).toBe(0);
  site.close();
});

test('without a worker a tab has it, and closes again and again while others are answered', async ({ context }) => {
  test.setTimeout(all ? 3_600_000 : 600_000);
  const downloads: string[] = [];
  const site = await serveSite(PLAIN, {
    before: (request, response) => {
      if (request.url!.endsWith('.safetensors')) downloads.push(request.headers.range ?? 'all');
      const isWorker = request.url!.endsWith('/splitkv-share_worker.js');
      if (isWorker) response.writeHead(404).end();
      return isWorker;
    },
  });
  const url = `${site.url}plain.html`;
  const expected = await answersAlone(context, url, TABS);
  downloads.length = 0;

  let pages: readonly Page[] = await Promise.all(Array.from({ length: TABS }, () => context.newPage()));
  await inAll(pages, (page) => open(page, url, true));
  for (let kill = 0; kill < KILLS; kill++) {
    const numbers = await inAll(pages, (page) => page.evaluate(() => window.answers.length));
    await inAll(pages, ask);
    const counts = await inAll(pages, devices);
    expect(counts.reduce((sum, count) => sum + count)).toBe(1);
    const host = pages[counts.indexOf(1)]!;
    // An answer is being written in another tab; others are, too, or wait.
    const others = pages.filter((page) => page !== host);
    await Promise.any(others.map((page) => isWritten(page, numbers[pages.indexOf(page)]!)));
    await host.close();
    await inAll(others, (page) => {
      const at = pages.indexOf(page);
      return hasAnswered(page, numbers[at]!, expected[at], `tab ${at} after ${kill + 1} hosts`);
    });
    // Another visitor, in its place.
    const next = await context.newPage();
    await open(next, url, true);
    pages = pages.map((page) => (page === host ? next : page));
  }
  // No weights are downloaded for another host: the file's head tells whether the server's copy has changed.
  const bytes = downloads
    .map((range) => /^bytes=(\d+)-(\d+)$/.exec(range)!)
    .map(([, from, to]) => Number(to) - Number(from) + 1);
  expect(Math.max(...bytes)).toBeLessThanOrEqual(65_536);

  await inAll(pages, (page) => page.evaluate(() => window.model.dispose()));
  await expect.poll(async () => (await inAll(pages, devices)).reduce((sum, count) => sum + count)).toBe(0);
  site.close();
});

test('two chats with share have one model, of a worker', async ({ context }) => {
  const site = await serveSite({
    'chat.html': chatPage('share autostart').replace('lib/', '/lib/').replace('"models/', '"/models/'),
  });
  const pages = await Promise.all([context.newPage(), context.newPage()]);
  await inAll(pages, count);
  await inAll(pages, (page) => page.goto(`${site.url}chat.html`));
  await inAll(pages, async (page) => {
    const { ask, answers, status } = chatOf(page);
    await expect(status).toHaveText('Ready');
    const { question, answer } = QUESTIONS[0];
    await ask(question);
    await expect(answers.last()).toContainText(answer);
  });
  expect(await inAll(pages, devices)).toEqual([0, 0]);
  await pages[0]!.close();
  const { ask, answers } = chatOf(pages[1]!);
  await ask(QUESTIONS[1].question);
  await expect(answers).toHaveCount(2);
  await expect(answers.last()).toContainText(QUESTIONS[1].answer);
  site.close();
});
