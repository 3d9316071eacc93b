import { expect, test } from '@playwright/test';
import { QUESTIONS } from '../../models/example.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite } from '../support/static_site.js';

// The test server builds dist/ before it starts; the pages here are served as plain files.

test.use({ serviceWorkers: 'allow' });

const page = chatPage('autostart no-self-test').replace(
  '</body>',
  `<script type="module">
    import { keepOffline } from './lib/splitkv-offline.js';
    globalThis.kept = keepOffline('sw.js');
  </script></body>`,
);

test('after the first load a page, its scripts and its model need no server', async ({ page: tab }) => {
  const site = await serveSite(
    { 'page.html': page },
    {
      before: (request, response) => {
        if (request.url !== '/sw.js') return false;
        response.setHeader('Content-Type', 'text/javascript');
        response.end("importScripts('lib/splitkv-service_worker.js');");
        return true;
      },
    },
  );
  const answers = async (): Promise<void> => {
    const { field, answers: shown, status } = chatOf(tab);
    await expect(status).toHaveText('Ready');
    await field.fill(QUESTIONS[0].question);
    await field.press('Enter');
    await expect(shown).toHaveText(QUESTIONS[0].answer);
  };
  try {
    await tab.goto(`${site.url}page.html`);
    await answers();
    expect(await tab.evaluate(() => (globalThis as unknown as { kept: Promise<number> }).kept)).toBeGreaterThan(20);
    // Weights are the library's to keep, in pieces that it has checked.
    const kept = await tab.evaluate(async () =>
      (await (await caches.open('splitkv-pages-1')).keys()).map(({ url }) => url),
    );
    expect(kept).toContain(`${site.url}page.html`);
    expect(kept.filter((url) => url.includes('/models/'))).toEqual([]);
  } finally {
    site.close();
  }
  await tab.reload();
  await answers();
  // What was never there isn't made up.
  await expect(tab.goto(`${site.url}other.html`)).rejects.toThrow();
});

test('what is kept stands in for files that a new version took away, and for a server in trouble', async ({
  page: tab,
}) => {
  const parts: Readonly<Record<string, string>> = {
    '/page.html': '<title>Old</title><link rel="icon" href="data:,"><script type="module" src="main.js"></script>',
    '/main.js': `import { keepOffline } from './lib/splitkv-offline.js';
      globalThis.later = () => import('./part-1.js');
      globalThis.kept = keepOffline('sw.js');`,
    '/part-1.js': 'export const said = "the part of this page";',
    '/sw.js': "importScripts('lib/splitkv-service_worker.js');",
  };
  let answered: number | undefined;
  const site = await serveSite(
    {},
    {
      before: (request, response) => {
        const text = parts[request.url!];
        if (text === undefined) return false;
        if (answered !== undefined)
          return (response.writeHead(answered, { 'Content-Type': 'text/html' }).end('none'), true);
        response.setHeader('Content-Type', request.url!.endsWith('.js') ? 'text/javascript' : 'text/html');
        return (response.end(text), true);
      },
    },
  );
  const page = `${site.url}page.html`;
  try {
    await tab.goto(page);
    await tab.evaluate(() => (globalThis as unknown as { kept: Promise<number> }).kept);
    answered = 404;
    const said = tab.evaluate(async () => {
      const { later } = globalThis as unknown as { later: () => Promise<{ said: string }> };
      return (await later()).said;
    });
    expect(await said).toBe('the part of this page');
    answered = 503;
    await tab.goto(page);
    await expect(tab).toHaveTitle('Old');
    // A page that is gone is gone.
    answered = 404;
    await tab.goto(page);
    await expect(tab.locator('body')).toHaveText('none');
  } finally {
    site.close();
  }
});
