import { readFileSync } from 'node:fs';
import { expect, type Page, test } from '@playwright/test';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

/**
 * What the element looks like in each of its states, in light and in dark, on a phone and on a desktop, beside the pictures in e2e/looks.
 * After a change that is meant: `npx playwright test looks --update-snapshots`, and look at every picture that differs.
 */

/** Both schemes, and the same typefaces on every machine. */
const HEAD = `<meta name="color-scheme" content="light dark">
<link rel="stylesheet" href="fonts/roboto/400.css"><link rel="stylesheet" href="fonts/roboto/400-italic.css">
<link rel="stylesheet" href="fonts/roboto/600.css"><link rel="stylesheet" href="fonts/roboto/700.css">
<link rel="stylesheet" href="fonts/roboto-mono/400.css">
<style>splitkv-chat { --chat-font: Roboto; --chat-code-font: 'Roboto Mono' }</style>`;
const styled = (text: string): string => text.replace('<head>', `<head>${HEAD}`).replace(/<h1>.*<\/h1>/, '');
const bare = styled(chatPage('settings')).replace('model="models/tiny-gqa/" ', '');
const pages = {
  'bare.html': bare,
  'asks.html': styled(chatPage('settings')),
  'slow.html': styled(chatPage('settings autostart no-self-test')).replace('models/', 'slow/'),
  'gone.html': styled(chatPage('settings')).replace('models/tiny-gqa', 'models/gone'),
  'picker.html': bare.replace('<splitkv-chat', '<splitkv-chat picker memory="700MB" hub="http://127.0.0.1:9/"'),
  'loaded.html': styled(chatPage('settings autostart no-self-test')).replace(/about="[^"]*"/, ''),
};
/** What depends on the machine is said by texts of the test's own. */
const FIXED = {
  expected: '58 tokens/s on a GPU',
  fits: '43 MiB, which fits',
  progress_speed: '2.0 MiB/s',
  progress_left: 'about 2 s left',
};

// The pictures are small: a pixel of them is four of a page.
test.use({ deviceScaleFactor: 0.5 });

let site: StaticSite;
test.beforeAll(async () => {
  const weights = readFileSync('models/tiny-gqa/model.safetensors');
  site = await serveSite(pages, {
    more: { '/slow': 'models', '/fonts': 'node_modules/@fontsource' },
    before: (request, response) => {
      if (!request.url!.startsWith('/slow/') || !request.url!.endsWith('.safetensors')) return false;
      const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range!)!;
      const piece = weights.subarray(Number(from), Number(to) + 1);
      response.writeHead(206, {
        'Content-Range': `bytes ${from}-${Number(from) + piece.length - 1}/${weights.length}`,
        'Content-Length': piece.length,
        ETag: '"slow"',
      });
      // Of the last piece a third comes; the rest never does.
      if (from === '0') response.end(piece);
      else response.write(piece.subarray(0, Math.floor(piece.length / 3)));
      return true;
    },
  });
});
test.afterAll(() => site.close());

async function open(page: Page, name: string): Promise<ReturnType<typeof chatOf>> {
  await page.addInitScript(() => localStorage.clear());
  await page.goto(site.url + name);
  const parts = chatOf(page);
  await parts.chat.evaluate((element: SplitkvChat, strings) => void (element.strings = strings), FIXED);
  return parts;
}

/** Compares the element with its pictures. */
async function looks(page: Page, state: string): Promise<void> {
  for (const [width, height] of [
    [1280, 800],
    [390, 844],
  ] as const) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await page.evaluate(() => new Promise((later) => requestAnimationFrame(() => requestAnimationFrame(later))));
      const { content, view } = await page.evaluate(async () => {
        await document.fonts.ready;
        return { content: document.documentElement.scrollWidth, view: document.documentElement.clientWidth };
      });
      expect.soft(content, `${state}, ${width}: nothing is wider than the page`).toBeLessThanOrEqual(view);
      const picture = await page.locator('splitkv-chat').screenshot({ animations: 'disabled' });
      // Edges of letters may differ from one version of a browser to the next; a moved line is more than that.
      expect
        .soft(picture, `${state}, ${colorScheme}, ${width}`)
        .toMatchSnapshot(`${state}-${colorScheme}-${width}.png`, { maxDiffPixelRatio: 0.01, threshold: 0.25 });
    }
  }
}

const MARKDOWN = `Three ways to keep **bread** fresh, from *best* to worst:

1. In the freezer, cut in slices
2. In a bread bin
3. In the fridge, which makes it \`stale\` sooner

| where | days |
| :--- | ---: |
| freezer | 90 |
| bread bin | 4 |

\`\`\`js
const days = { freezer: 90, bin: 4 };
console.log(\`\${days.bin} days\`);
\`\`\`

More at [a baker's page](https://example.com/bread).`;

test('the chat without a model, and what it tells before a download', async ({ page }) => {
  await open(page, 'bare.html');
  await looks(page, 'empty');
  const { button } = await open(page, 'asks.html');
  await expect(button(/^Download/)).toBeVisible();
  await looks(page, 'asks');
  const { chat } = await open(page, 'slow.html');
  await expect(chat.getByRole('progressbar')).toBeVisible();
  await expect(chat.getByText(/Loading… \d+ %/)).toBeVisible();
  await looks(page, 'downloading');
  const { problem } = await open(page, 'gone.html');
  await expect(problem).toBeVisible();
  await looks(page, 'gone');
});

test('the models to choose from', async ({ page }) => {
  const { chat, button } = await open(page, 'picker.html');
  await button('Choose a model').click();
  await expect(chat.locator('.model').first()).toBeVisible();
  await looks(page, 'picker');
});

test('the chat with answers', async ({ page }) => {
  const { chat, answers } = await open(page, 'bare.html');
  await chat.evaluate((element: SplitkvChat, content) => {
    element.messages = [
      { role: 'user', content: 'How do I keep bread fresh?' },
      { role: 'assistant', content, reasoning: 'Bread, so: freezer, bin, fridge.' },
    ];
  }, MARKDOWN);
  await expect(answers.locator('figure')).toBeVisible();
  await looks(page, 'answered');
  await chat.locator('.thought summary').click();
  await looks(page, 'thought');
});

test('the chat at work: ready, answering, failed, full, and its settings', async ({ page }) => {
  const { chat, status, ask, answers, button, problem, stop } = await open(page, 'loaded.html');
  await expect(status).toHaveText('Ready');
  await looks(page, 'ready');
  // What the model says, and whether it can, is the test's: it is the looks that are tested.
  await chat.evaluate(async (element: SplitkvChat) => {
    const address = '/lib/splitkv.js';
    const { SplitkvError } = (await import(address)) as typeof import('../../src/index.js');
    element.tools = { none: { description: 'none', parameters: { type: 'object' }, run: () => '' } };
    let turn = 0;
    Object.defineProperty(element.engine!, 'generate', {
      value: (_prompt: unknown, { signal }: { signal?: AbortSignal }) => {
        const failure = [
          undefined,
          new SplitkvError('internal', 'the tokens of this answer were lost'),
          new SplitkvError('context_full', 'the conversation takes 100 tokens; the context holds 4', {
            details: { tokens: 100, most: 4 },
          }),
        ][turn++];
        const stopped = new Promise<void>((done) => {
          signal?.addEventListener('abort', () => done());
        });
        const text = 'Put it into the **freezer**, cut in slices, and';
        const result = (async () => {
          if (failure) throw failure;
          await stopped;
          return { text, finish_reason: 'abort', finish_detail: 'aborted', stats: { tokens_per_second: 42 } };
        })();
        result.catch(() => {});
        return {
          result,
          async *deltas() {
            if (failure) throw failure;
            yield { text };
            await stopped;
          },
        };
      },
    });
  });
  await ask('How do I keep bread fresh?');
  await expect(answers).toContainText('cut in slices');
  await looks(page, 'answering');
  await stop.click();
  await expect(status).toHaveText('Ready');
  await looks(page, 'stopped');
  await ask('And cheese?');
  await expect(problem).toBeVisible();
  await looks(page, 'failed');
  await ask('And all the rest?');
  await expect(problem).toContainText('too long');
  await looks(page, 'full');
  await button('Settings').click();
  await expect(chat.getByRole('dialog')).toBeVisible();
  await looks(page, 'settings');
});
