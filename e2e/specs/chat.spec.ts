import { readFileSync } from 'node:fs';
import { chromium, expect, type Page, test } from '@playwright/test';
import { drawn } from '../../src/gpu/testing/draw.js';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import type { GenerateResult } from '../../src/index.js';
import { QUESTIONS, STORY } from '../../models/example.js';
import { checkAccessibility } from '../support/accessibility.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// The test server builds dist/ before it starts; the pages here are served as plain files.

const pages = {
  'plain.html': chatPage('autostart no-self-test'),
  'asks.html': chatPage(''),
  'wrong.html': chatPage('weights="q5" autostart'),
  // What frameworks do that render before the element's script has come.
  'late.html': `<!doctype html><meta charset="utf-8"><splitkv-chat></splitkv-chat><script>
    Object.assign(document.querySelector('splitkv-chat'), { model: 'models/tiny-gqa/', autostart: true, noSelfTest: '', maxTokens: 20, seed: null });
  </script><script type="module" src="lib/splitkv-chat.js"></script>`,
  'kept.html': chatPage('autostart no-self-test keep="versions" max-tokens="12"').replace(/about="[^"]*"/, ''),
  'keeps.html': chatPage('autostart no-self-test keep="kv" max-tokens="12"').replace(/about="[^"]*"/, ''),
  'seeded.html': chatPage('autostart no-self-test seed="5" max-tokens="12"'),
  'tested.html': chatPage('autostart'),
  'one.html': chatPage('autostart').replace('ranks="auto"', 'ranks="1"'),
  // Drawn so evenly, an answer has some 1,300 tokens; the likeliest one ends after 42.
  'endless.html': chatPage('autostart no-self-test temperature="3" seed="1" max-tokens="3000"').replace(
    /about="[^"]*"/,
    '',
  ),
  'long.html': chatPage('autostart no-self-test context="96" temperature="1" seed="5" max-tokens="2000"'),
};
let site: StaticSite;
test.beforeAll(async () => {
  site = await serveSite(pages);
});
test.afterAll(() => site.close());

const ready = (page: Page) => expect(chatOf(page).status).toHaveText('Ready');

for (const isolated of drawn([false, true], 1, 'isolated')) {
  test(`one script tag makes a chat, ${isolated ? 'under cross-origin isolation' : 'on any site, also one with a strict policy'}`, async ({
    page,
  }) => {
    const own = await serveSite(pages, {
      isolated,
      before: (_request, response) => {
        // WebAssembly, eval, inline styles and other origins: nothing of it is needed.
        if (!isolated) response.setHeader('Content-Security-Policy', "default-src 'self'");
        return false;
      },
    });
    const problems: string[] = [];
    const foreign: string[] = [];
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('console', (message) => {
      if (message.text().includes('Content Security Policy')) problems.push(message.text());
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(own.url) && !/^(blob|data):/.test(request.url())) foreign.push(request.url());
    });
    await page.goto(`${own.url}plain.html`);
    const { chat, field, answers, note, button, stop, ask } = chatOf(page);
    await ready(page);
    await button('About this model').click();
    await expect(chat).toContainText(
      /Weights\s*f16, 4\.1 MiB\s*Runs on\s*\S.*, which is the CPU: slowly\s*Plan\s*one GPU/,
    );
    await page.keyboard.press('Escape');
    expect(await page.evaluate(() => crossOriginIsolated)).toBe(isolated);
    await field.fill(QUESTIONS[0].question);
    await field.press('Enter');
    await expect(answers).toHaveText(QUESTIONS[0].answer);
    await expect(answers).toHaveAttribute('aria-busy', 'false');
    await expect(note).toHaveText(/tokens\/s/);
    await expect(field).toHaveValue('');
    await expect(stop).toBeHidden();
    await expect(button(QUESTIONS[1].question)).toBeHidden();
    await ask(QUESTIONS[1].question);
    await expect(answers.nth(1)).toHaveText(QUESTIONS[1].answer);
    await button('New conversation').click();
    await expect(answers).toHaveCount(0);
    await expect(field).toBeFocused();
    expect(problems).toEqual([]);
    expect(foreign).toEqual([]);
    own.close();
  });
}

test('before a download: size, memory, speed and plan; then it loads, checks itself and is ready', async ({ page }) => {
  const weights: string[] = [];
  page.on('request', (request) => {
    if (request.url().endsWith('.safetensors')) weights.push(request.headers()['range'] ?? 'all');
  });
  await page.goto(`${site.url}asks.html`);
  const { chat, status, button, send } = chatOf(page);
  const start = button('Download 4.1 MiB and start');
  await expect(start).toBeVisible();
  for (const text of [
    /Download\s*4\.1 MiB/,
    /GPU memory.*which fits/,
    /Expected speed\s*\d.*tokens\/s on /,
    /Plan\s*one GPU/,
  ]) {
    await expect(chat).toContainText(text);
  }
  expect(
    weights.every((range) => range === 'bytes=0-65535'),
    weights.join(),
  ).toBe(true);
  await expect(send).toHaveAttribute('aria-disabled', 'true');
  await checkAccessibility(page);
  const seen = page.evaluate(
    () =>
      new Promise<string[]>((resolve) => {
        const states: string[] = [];
        document.addEventListener('splitkv-state', (event) => {
          states.push((event as CustomEvent<{ state: string }>).detail.state);
          if (states.at(-1) === 'ready') resolve(states);
        });
      }),
  );
  await start.click();
  await ready(page);
  expect(await seen).toEqual(['loading', 'checking', 'ready']);
  await expect(status).toBeVisible();

  // The second visit finds it in the browser and need not ask.
  await page.reload();
  await ready(page);
});

test('an answer streams, can be stopped by Escape, and the next one is whole', async ({ page }) => {
  await page.goto(`${site.url}endless.html`);
  await ready(page);
  const { chat, field, button, stop, answers, note, ask } = chatOf(page);
  await field.fill('tell me a story about a fox');
  await field.press('Enter');
  await expect(answers).toHaveAttribute('aria-busy', 'true');
  await expect(answers).not.toBeEmpty();
  await expect(stop).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(answers).toHaveAttribute('aria-busy', 'false');
  await expect(note).toContainText('Stopped.');
  await expect(field).toBeFocused();
  await chat.evaluate((element, story) => {
    element.setAttribute('temperature', '0');
    element.setAttribute('about', story);
  }, STORY);
  await button('New conversation').click();
  await ask(QUESTIONS[0].question);
  await expect(answers).toHaveText(QUESTIONS[0].answer);
});

test('an edited question and another answer leave what was there, and one goes from version to version', async ({
  page,
}) => {
  await page.goto(`${site.url}kept.html`);
  await ready(page);
  const { chat, answers, button, ask } = chatOf(page);
  const texts = () => chat.evaluate((element) => (element as SplitkvChat).messages.map(({ content }) => content));
  const version = (name: string) => chat.getByRole('group', { name, exact: true });
  const whole = async (count: number): Promise<string[]> => {
    await expect(answers).toHaveCount(count);
    await expect(answers.last()).toHaveAttribute('aria-busy', 'false');
    return texts();
  };
  await ask('one day');
  await whole(1);
  await ask('the fox');
  const first = await whole(2);
  await expect(chat.locator('.versions')).toHaveCount(0);
  await button('Regenerate').first().click();
  const second = await whole(1);
  expect(second[0]).toBe('one day');
  await expect(version('Version 2 of 2')).toHaveText('2 / 2');
  await expect(button('Next version')).toHaveAttribute('aria-disabled', 'true');
  await checkAccessibility(page);
  // By keyboard; what was pressed keeps the focus.
  await button('Former version').press('Enter');
  expect(await whole(2)).toEqual(first);
  await expect(version('Version 1 of 2')).toBeVisible();
  await expect(button('Former version')).toBeFocused();
  await button('Former version').press('Enter');
  expect(await texts()).toEqual(first);

  await button('Edit').first().click();
  await chat.getByRole('textbox', { name: 'Edit' }).fill('the cat');
  await chat.getByRole('textbox', { name: 'Edit' }).press('Enter');
  const third = await whole(1);
  expect(third[0]).toBe('the cat');
  // All of it is there after a reload, and in a file.
  await page.reload();
  await ready(page);
  expect(await whole(1)).toEqual(third);
  const file = await chat.evaluate((element) => (element as SplitkvChat).export('json'));
  await button('Former version').click();
  expect(await whole(2)).toEqual(first);
  await chat.evaluate((element, json) => {
    (element as SplitkvChat).clear();
    (element as SplitkvChat).messages = JSON.parse(json) as SplitkvChat['messages'];
  }, file);
  await button('Former version').click();
  expect(await whole(2)).toEqual(first);
  await button('Next version').last().click();
  expect(await whole(1)).toEqual(second);
  await button('Former version').last().click();
  // What is said next follows what is shown, as if there were no other.
  await ask('a bird');
  const here = await whole(3);
  expect(here.slice(0, 4)).toEqual(first);
  await chat.evaluate((element, kept) => {
    (element as SplitkvChat).messages = kept.map((content, at) => ({ role: at % 2 ? 'assistant' : 'user', content }));
  }, first);
  await ask('a bird');
  expect(await whole(3)).toEqual(here);
});

test("the sampling that a model's makers recommend is the default, and an attribute wins", async ({ page }) => {
  const own = await serveSite(pages, {
    before: (request, response) => {
      if (!request.url?.endsWith('generation_config.json')) return false;
      response.end(JSON.stringify({ bos_token_id: 1, eos_token_id: 2, do_sample: true, temperature: 1.9, top_k: 60 }));
      return true;
    },
  });
  try {
    await page.goto(`${own.url}seeded.html`);
    await ready(page);
    const { chat, answers, ask } = chatOf(page);
    /** The element's answer, and what its model gives with these options. */
    const both = async (index: number, options: object): Promise<[string, string]> => {
      await ask(QUESTIONS[0].question);
      await expect(answers.nth(index)).toHaveAttribute('aria-busy', 'false');
      const expected = await chat.evaluate(async (element, given) => {
        const { engine, messages } = element as SplitkvChat;
        const content = `${element.getAttribute('about')!.trim()} ${messages.findLast(({ role }) => role === 'user')!.content}`;
        const asked = { messages: [{ role: 'user' as const, content }] };
        return (await engine!.generate(asked, { seed: 5, maxTokens: 12, ...given }).result).text.trim();
      }, options);
      return [(await answers.nth(index).textContent())!.trim(), expected];
    };
    expect(await chat.evaluate((element) => (element as SplitkvChat).engine!.info.sampling)).toEqual({
      temperature: 1.9,
      topK: 60,
    });
    const [drawn, recommended] = await both(0, { temperature: 1.9, topK: 60 });
    expect(drawn).toBe(recommended);
    await chat.evaluate((element) => element.setAttribute('temperature', '0'));
    const [greedy, likeliest] = await both(1, {});
    expect(greedy).toBe(likeliest);
    expect(greedy).not.toBe(drawn);
  } finally {
    own.close();
  }
});

const degrees = [
  ['tensor="2" token="2" virtual', 'tp x token', 4],
  [`data="2" virtual attention-dp-config='{"enable_balance": true, "mode": "trtllm", "timeout_iters": 2}'`, 'adp', 2],
] as const;
for (const [attributes, policy, ranks] of drawn(degrees, 1, "an element's degrees")) {
  test(`degrees of an element name its plan, and the answer is one rank's: ${attributes}`, async ({ page }) => {
    const common = 'autostart no-self-test max-tokens="12" temperature="0"';
    const own = await serveSite({
      'one.html': chatPage(common).replace('ranks="auto"', 'ranks="1"'),
      'degrees.html': chatPage(`${common} ${attributes}`).replace('ranks="auto"', ''),
    });
    const { chat, answers, ask } = chatOf(page);
    const answerOf = async (file: string): Promise<string | null> => {
      await page.goto(own.url + file);
      await ready(page);
      await ask(QUESTIONS[0].question);
      await expect(answers).toHaveAttribute('aria-busy', 'false');
      return answers.textContent();
    };
    try {
      const many = await answerOf('degrees.html');
      const plan = await chat.evaluate((element) => (element as SplitkvChat).engine!.info.plan);
      expect([plan.policy, plan.worldSize]).toEqual([policy, ranks]);
      expect(many).not.toBe('');
      expect(await answerOf('one.html')).toBe(many);
    } finally {
      own.close();
    }
  });
}

test('an element keeps its model when it moves or answers otherwise, and ends all when it goes', async ({ page }) => {
  await page.goto(`${site.url}plain.html`);
  await ready(page);
  const { chat, field, answers, button } = chatOf(page);
  await page.evaluate(() => {
    const seen: string[] = [];
    Object.assign(globalThis, { seen, own: document.querySelector('splitkv-chat') });
    document.addEventListener('splitkv-state', (event) =>
      seen.push((event as CustomEvent<{ state: string }>).detail.state),
    );
  });
  await chat.evaluate((element) => {
    element.setAttribute('max-tokens', '2');
    element.setAttribute('temperature', '0');
    document.querySelector('main')!.append(document.createElement('div'));
    document.querySelector('main > div')!.append(element);
  });
  await button(QUESTIONS[0].question).click();
  await expect(answers).toHaveAttribute('aria-busy', 'false');
  expect((await answers.textContent())!.split(' ').length).toBeLessThan(4);
  const seen = () => page.evaluate(() => (globalThis as unknown as { seen: string[] }).seen);
  expect(await seen()).toEqual(['answering', 'ready']);

  // In another document, such as a picture-in-picture window's, and back.
  const looks = (): Promise<string> =>
    chat.evaluate((element) => getComputedStyle(element.shadowRoot!.querySelector('.chat')!).position);
  const text = await answers.innerText();
  await page.evaluate(async () => {
    const frame = document.createElement('iframe');
    const loaded = new Promise((resolve) => (frame.onload = resolve));
    frame.srcdoc = '<p>another document</p>';
    document.body.append(frame);
    await loaded;
    const { own } = globalThis as unknown as { own: SplitkvChat };
    frame.contentDocument!.body.append(own);
    if (!own.shadowRoot!.ownerDocument.defaultView!.frameElement) throw new Error('it is where it was');
    if (getComputedStyle(own).display !== 'block') throw new Error('it has lost its style');
    document.querySelector('main')!.append(own);
  });
  expect(await looks()).toBe('relative');
  expect(await answers.innerText()).toBe(text);
  expect(await seen()).toEqual(['answering', 'ready']);

  // A conversation that is left in the middle of an answer leaves nothing behind; an element that is taken away, neither.
  await chat.evaluate((element) => {
    element.setAttribute('max-tokens', '3000');
    element.setAttribute('temperature', '2');
    element.removeAttribute('about');
  });
  await field.fill('tell me a story about a fox');
  await field.press('Enter');
  await expect(answers.nth(1)).not.toBeEmpty();
  await button('New conversation').click();
  await ready(page);
  expect(await chat.evaluate((element) => (element as SplitkvChat).messages)).toEqual([]);
  await field.fill('tell me a story about a fox');
  await field.press('Enter');
  await expect(answers).not.toBeEmpty();
  const left = await page.evaluate(async () => {
    const { own } = globalThis as unknown as { own: SplitkvChat };
    own.remove();
    while (own.state !== 'empty') await new Promise((resolve) => setTimeout(resolve, 10));
    await new Promise((resolve) => setTimeout(resolve, 300));
    return own.state === 'empty' && own.engine === undefined;
  });
  expect(left).toBe(true);
});

test('properties are attributes, also those set before the element is defined', async ({ page }) => {
  await page.goto(`${site.url}late.html`);
  await ready(page);
  const state = () =>
    page.locator('splitkv-chat').evaluate((element: SplitkvChat) => ({
      own: Object.keys(element),
      model: element.model,
      attribute: element.getAttribute('model'),
      maxTokens: [element.maxTokens, element.getAttribute('max-tokens')],
      noSelfTest: [element.noSelfTest, element.getAttribute('no-self-test')],
      seed: [element.seed, element.getAttribute('seed')],
      name: element.engine?.info.name,
    }));
  expect(await state()).toEqual({
    own: [],
    model: 'models/tiny-gqa/',
    attribute: 'models/tiny-gqa/',
    maxTokens: [20, '20'],
    noSelfTest: [true, ''],
    seed: [undefined, null],
    name: 'tiny-gqa',
  });
  await page.locator('splitkv-chat').evaluate((element: SplitkvChat) => {
    element.maxTokens = undefined;
    element.seed = 7;
    element.noSelfTest = false;
    element.model = new URL('models/tiny-mla/', document.baseURI);
  });
  await ready(page);
  await expect.poll(async () => (await state()).name).toBe('tiny-mla');
  expect(await state()).toMatchObject({
    model: `${site.url}models/tiny-mla/`,
    maxTokens: [undefined, null],
    noSelfTest: [false, null],
    seed: [7, '7'],
  });
});

test('keyboard alone, a phone, dark and light: nothing is out of reach, and axe finds nothing', async ({ page }) => {
  await page.setViewportSize({ width: 340, height: 640 });
  await page.goto(`${site.url}plain.html`);
  await ready(page);
  const { field, send, answers } = chatOf(page);
  await field.focus();
  await page.keyboard.type(QUESTIONS[2].question);
  await page.keyboard.press('Tab');
  await expect(send).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(answers).toHaveText(QUESTIONS[2].answer);
  await checkAccessibility(page);
});

test('what goes wrong is explained, with what to do', async ({ page }) => {
  const { chat, problem, button, status } = chatOf(page);
  await page.goto(`${site.url}wrong.html`);
  await expect(problem).toContainText('The chat is set up wrongly');
  await problem.getByText('What was reported').click();
  await expect(problem).toContainText('weights="q5": expected auto, f32, f16, q8, q4.');
  await checkAccessibility(page);

  // Another model, by its attribute; it isn't there.
  await page.locator('splitkv-chat').evaluate((element) => {
    element.removeAttribute('weights');
    element.setAttribute('model', 'models/nosuch/');
  });
  await expect(problem).toContainText("The model can't be downloaded");
  await expect(problem).toContainText('has no config.json');
  await expect(button('Try again')).toBeVisible();

  // A wrong attribute ends what there is; put right, all is well again.
  const set = (name: string, value: string) =>
    page.locator('splitkv-chat').evaluate((element, change) => element.setAttribute(...change), [name, value] as const);
  await set('model', 'models/tiny-gqa/');
  await ready(page);
  await set('top-p', '2');
  await expect(problem).toContainText('The chat is set up wrongly');
  expect(await chat.evaluate((element) => (element as SplitkvChat).state)).toBe('failed');
  expect(await chat.evaluate((element) => (element as SplitkvChat).engine === undefined)).toBe(true);
  await set('top-p', '1');
  await ready(page);

  await page.goto(`${site.url}long.html`);
  await ready(page);
  await button(QUESTIONS[0].question).click();
  await expect(problem).toContainText('The conversation is too long');
  await button('New conversation').last().click();
  await expect(problem).toBeHidden();
  await expect(status).toContainText('Ready');
});

test('a download that came damaged is told from a broken GPU, and can be made again', async ({ page }) => {
  const weights = readFileSync('models/tiny-gqa/model.safetensors');
  let spoilt = true;
  let deleted = 0;
  const own = await serveSite(pages, {
    before: (request, response) => {
      if (!request.url!.endsWith('.safetensors')) return false;
      const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range!)!;
      const [start, end] = [Number(range[1]), Math.min(Number(range[2]) + 1, weights.byteLength)];
      const bytes = Buffer.from(weights.subarray(start, end));
      if (spoilt) {
        // A megabyte behind the header: all else is as it should be.
        for (let at = Math.max(start, 1_000_000); at < Math.min(end, 2_000_000); at++) bytes[at - start]! ^= 255;
      }
      if (end > 2_000_000 && start < 1_000_000) {
        spoilt = false;
        deleted++;
      }
      response.writeHead(206, {
        ETag: '"the same"',
        'Content-Range': `bytes ${start}-${end - 1}/${weights.byteLength}`,
        'Content-Length': bytes.length,
      });
      response.end(bytes);
      return true;
    },
  });
  const reported: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && message.text().includes('<splitkv-chat>')) reported.push(message.text());
  });
  await page.goto(`${own.url}tested.html`);
  const { problem, button } = chatOf(page);
  await expect(problem).toContainText('The download is damaged');
  await expect(problem).not.toContainText('GPU');
  expect(reported).toEqual([expect.stringContaining('is damaged')]);
  await checkAccessibility(page);
  // As long as its server can't be reached, what there is stays.
  await page.context().setOffline(true);
  await button('Download again').click();
  await expect(problem).toContainText("The model can't be downloaded: you are offline");
  await page.context().setOffline(false);
  await page.reload();
  await expect(problem).toContainText('The download is damaged');
  expect(deleted).toBe(1);
  await button('Download again').click();
  await ready(page);
  expect(deleted).toBe(2);
  await page.reload();
  await ready(page);
  expect(deleted).toBe(2);
  own.close();
});

test('a page that is neither on https nor on localhost is told so', async () => {
  const { launchOptions } = test.info().project.use;
  const browser = await chromium.launch({
    ...launchOptions,
    args: [...(launchOptions?.args ?? []), '--host-resolver-rules=MAP insecure.test 127.0.0.1'],
  });
  try {
    const page = await browser.newPage();
    for (const name of ['plain.html', 'asks.html', 'one.html']) {
      await page.goto(`${site.url.replace('127.0.0.1', 'insecure.test')}${name}`);
      const { problem } = chatOf(page);
      await expect(problem).toContainText('This page must be served over https or from localhost');
      await expect(problem).not.toContainText('driver');
    }
  } finally {
    await browser.close();
  }
});

test('a download that is stopped on purpose is no alarm, and goes on', async ({ page }) => {
  let held = true;
  const own = await serveSite(pages, {
    before: (request) => held && request.url!.endsWith('.safetensors') && request.headers.range !== 'bytes=0-65535',
  });
  await page.goto(`${own.url}plain.html`);
  const { chat, status, stop, problem, button } = chatOf(page);
  await expect(status).toHaveText(/^Loading…/);
  await stop.click();
  await expect(status).toHaveText('Stopped');
  await expect(chat).toContainText('What has been downloaded is kept.');
  await expect(problem).toBeHidden();
  held = false;
  await button('Continue').click();
  await ready(page);
  own.close();
});

for (const denied of drawn([false, true], 1, 'keep')) {
  test(`keep: after a reload ${denied ? 'all is computed where storage is denied' : 'what is new is computed'}`, async ({
    page,
  }) => {
    if (denied) {
      await page.addInitScript(() => {
        navigator.storage.getDirectory = () => Promise.reject(new DOMException('denied here', 'SecurityError'));
        // As in a frame of another site.
        LockManager.prototype.request = () =>
          Promise.reject(new DOMException('The request was denied.', 'SecurityError'));
      });
    }
    const told: string[] = [];
    page.on('console', (message) => told.push(message.text()));
    const { chat, ask } = chatOf(page);
    /** How many tokens of the prompt were computed before, and how many there are. */
    const answer = async (question: string): Promise<readonly [cached: number, all: number]> => {
      const ended = chat.evaluate(
        (element) =>
          new Promise<GenerateResult>((resolve) => {
            const heard = (event: Event): void =>
              resolve((event as CustomEvent<{ result: GenerateResult }>).detail.result);
            element.addEventListener('splitkv-answer', heard, { once: true });
          }),
      );
      await ask(question);
      const { stats, prompt_tokens: all } = await ended;
      return [stats.cached_tokens!, all];
    };
    await page.goto(`${site.url}keeps.html`);
    await ready(page);
    expect((await answer(STORY))[0]).toBe(0);
    const [cached, before] = await answer(QUESTIONS[0].question);
    expect(cached).toBeGreaterThan(64);
    const pieces = (): Promise<number> =>
      page.evaluate(async () => {
        const root = await navigator.storage.getDirectory();
        const folder = await root.getDirectoryHandle('splitkv-kv-kept', { create: true });
        let count = 0;
        for await (const _ of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) count++;
        return count;
      });
    if (!denied) await expect.poll(pieces).toBeGreaterThanOrEqual(Math.floor(before / 64));
    await page.reload();
    await ready(page);
    const [again, all] = await answer(QUESTIONS[1].question);
    expect(all).toBeGreaterThan(before);
    expect(again).toBe(denied ? 0 : Math.floor(before / 64) * 64);
    await expect(chatOf(page).answers).toHaveCount(3);
    if (denied) {
      const warnings = await chat.evaluate((element) => element.shadowRoot!.textContent);
      expect([...told, warnings].join(' ').match(/kept can't be read \(denied here\)/g)).toHaveLength(1);
    }
  });
}
