import { expect, type Page, test } from '@playwright/test';
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

test('tabs share one model, and its tab closes again and again while they are answered', async ({ context }) => {
  test.setTimeout(all ? 3_600_000 : 600_000);
  const downloads: string[] = [];
  const site = await serveSite(
    { 'plain.html': '<!doctype html><meta charset="utf-8"><title>plain</title>' },
    {
      before: (request) => {
        if (request.url!.endsWith('.safetensors')) downloads.push(request.headers.range ?? 'all');
        return false;
      },
    },
  );
  const url = `${site.url}plain.html`;

  const alone = await context.newPage();
  await open(alone, url, false);
  const ofOne = await devices(alone);
  expect(ofOne).toBe(1);
  const expected: { text: string; done: string }[] = [];
  for (let seed = 0; seed < TABS; seed++) await ask(alone, seed);
  for (let seed = 0; seed < TABS; seed++) {
    await expect.poll(async () => (await texts(alone, seed)).done).toMatch(/^\d+ /);
    expected.push(await texts(alone, seed));
  }
  await alone.close();
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
    const isWritten = (page: Page): Promise<unknown> =>
      page.waitForFunction(
        (number) => window.answers[number]!.text.length > 20 && window.answers[number]!.done === '',
        numbers[pages.indexOf(page)]!,
        { polling: 20 },
      );
    await Promise.any(others.map(isWritten));
    await host.close();
    await inAll(others, async (page) => {
      const at = pages.indexOf(page);
      await expect.poll(async () => (await texts(page, numbers[at]!)).done, { timeout: 300_000 }).not.toBe('');
      expect(await texts(page, numbers[at]!), `tab ${at} after ${kill + 1} hosts`).toEqual(expected[at]);
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

test('two chats with share have one model', async ({ context }) => {
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
  const both = await inAll(pages, devices);
  expect(both.toSorted((a, b) => a - b)).toEqual([0, 1]);
  await pages[both.indexOf(1)]!.close();
  const { ask, answers } = chatOf(pages[both.indexOf(0)]!);
  await ask(QUESTIONS[1].question);
  await expect(answers).toHaveCount(2);
  await expect(answers.last()).toContainText(QUESTIONS[1].answer);
  site.close();
});
