import { expect, test } from '@playwright/test';

test('in a page: a conversation computes what is new, goes on after a reload, and many prompts run at once', async ({
  page,
}) => {
  const hold = (saved: string | undefined) =>
    page.evaluate(async (given) => {
      const address = '/lib/splitkv.js';
      const { load } = (await import(address)) as typeof import('../../src/index.js');
      const model = await load('/models/tiny-gqa/', { cache: false });
      const talk = model.conversation(given === undefined ? {} : { restore: JSON.parse(given) as never });
      const cached: number[] = [];
      const options = { maxTokens: 6, ignoreEos: true, seed: 1, temperature: 0.5 };
      for (const text of ['who ?', 'why ?']) {
        const { stats } = await talk.send(text, options).result;
        cached.push(stats.cached_tokens!);
      }
      const texts: string[] = [];
      for await (const { index, text } of model.generateMany(['who ?', 'why ?', 'where ?'], options))
        texts[index] = text;
      const alone = await model.generate('why ?', { ...options, cachePrompt: false }).result;
      const messages = talk.messages.map(({ content }) => content);
      const json = JSON.stringify(talk.save());
      await model.dispose();
      return { cached, texts, alone: alone.text, messages, saved: json };
    }, saved);
  await page.route('**/lib/*.js', (route) =>
    route.fulfill({
      path: `dist/${new URL(route.request().url()).pathname.split('/').at(-1)}`,
      contentType: 'text/javascript',
    }),
  );
  await page.route('**/plain.html', (route) =>
    route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>plain</title>' }),
  );
  await page.goto('/plain.html');
  const first = await hold(undefined);
  expect(first.cached[0]).toBe(0);
  expect(first.cached[1]).toBeGreaterThan(0);
  expect(first.texts).toHaveLength(3);
  expect(first.texts[1]).toBe(first.alone);
  await page.reload();
  const second = await hold(first.saved);
  expect(second.messages.slice(0, 4)).toEqual(first.messages);
  expect(second.messages).toHaveLength(8);
  expect(second.cached[0]).toBe(0);
});
