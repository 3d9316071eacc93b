import { expect, test } from '@playwright/test';
import { openLibraryPage } from '../support/library_page.js';

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
  await openLibraryPage(page);
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

test('in a page: the Prompt API, where the browser has none, or beside its own', async ({ page }) => {
  await openLibraryPage(page);
  const got = await page.evaluate(async () => {
    const [library, face] = ['/lib/splitkv.js', '/lib/splitkv-prompt_api.js'];
    const { load } = (await import(library)) as typeof import('../../src/index.js');
    const { providePromptApi } = (await import(face)) as typeof import('../../src/app/prompt_api/index.js');
    delete (globalThis as { LanguageModel?: unknown }).LanguageModel;
    const set = providePromptApi((options) => load('/models/tiny-gqa/', { cache: false, ...options }));
    const again = providePromptApi(() => Promise.reject(new Error('never asked')));
    const { LanguageModel } = globalThis as unknown as {
      LanguageModel: import('../../src/app/prompt_api/index.js').LanguageModelClass;
    };
    const before = await LanguageModel.availability();
    const progress: number[] = [];
    const session = await LanguageModel.create({
      temperature: 1,
      topK: 1,
      initialPrompts: [{ role: 'system', content: 'Answer in few words.' }],
      monitor: (target) =>
        target.addEventListener('downloadprogress', (event) => progress.push((event as ProgressEvent).loaded)),
    });
    const answer = await session.prompt('who ?', { responseConstraint: /(yes|no){1,3}/ });
    const reader = session
      .promptStreaming('why ?', {
        responseConstraint: {
          type: 'object',
          properties: { a: { type: 'boolean' } },
          required: ['a'],
          additionalProperties: false,
        },
      })
      .getReader();
    let json = '';
    for (let next = await reader.read(); !next.done; next = await reader.read()) json += next.value;
    const { contextUsage, contextWindow } = session;
    const failure = await session
      .prompt([{ role: 'system', content: 'x' }])
      .catch((error: unknown) => (error as DOMException).name);
    session.destroy();
    return {
      set,
      again,
      before,
      after: await LanguageModel.availability(),
      progress,
      answer,
      json,
      contextUsage,
      contextWindow,
      failure,
    };
  });
  expect(got).toMatchObject({
    set: true,
    again: false,
    before: 'downloadable',
    after: 'available',
    failure: 'TypeError',
  });
  expect(got.progress[0]).toBe(0);
  expect(got.progress.at(-1)).toBe(1);
  expect(got.answer).toMatch(/^(yes|no){1,3}$/);
  expect(typeof (JSON.parse(got.json) as { a: unknown }).a).toBe('boolean');
  expect(got.contextUsage).toBeGreaterThan(0);
  expect(got.contextUsage).toBeLessThanOrEqual(got.contextWindow);
});
