import { expect, type Page, test } from '@playwright/test';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { checkAccessibility } from '../support/accessibility.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// What is shown of messages, which a page may set: no model need be loaded for it.

const bare = chatPage('')
  .replace('model="models/tiny-gqa/" ', '')
  .replace('<head>', '<head><meta name="color-scheme" content="light dark">');
const pages = {
  'bare.html': bare,
  'kept.html': bare.replace('<splitkv-chat', '<splitkv-chat keep="talk" settings'),
  'picker.html': chatPage('autostart no-self-test picker memory="700MB" hub="http://127.0.0.1:9/"').replace(
    '"auto"',
    '"1"',
  ),
  'loaded.html': chatPage('autostart no-self-test keep="loaded" settings max-tokens="12"').replace(/about="[^"]*"/, ''),
};
let site: StaticSite;
test.beforeAll(async () => {
  site = await serveSite(pages, {
    before: (_request, response) => {
      response.setHeader('Content-Security-Policy', "default-src 'self'; require-trusted-types-for 'script'");
      return false;
    },
  });
});
test.afterAll(() => site.close());

/** Shows a question and this answer. */
const show = (page: Page, ...answers: string[]): Promise<void> =>
  page.locator('splitkv-chat').evaluate((element: SplitkvChat, texts) => {
    element.messages = texts.flatMap((content) => [
      { role: 'user' as const, content: 'What?' },
      { role: 'assistant' as const, content },
    ]);
  }, answers);

const MARKDOWN = `## Title

A **bold** and *slanted* and ~~struck~~ word, \`code\`, a [link](https://a.example/?a=1&b=2), https://b.example/x.
A line of its own &amp; more: 1 < 2.

1. one
   - inner
2. two

- [x] done
- [ ] open

> quoted

| name | n |
| :--- | --: |
| a | 1 |

\`\`\`js
const a = 1 < 2; // *no*
\`\`\`

---

#### Deep

End`;

test('an answer is rendered: text, lists, tables, code and links, and axe finds nothing', async ({ page }) => {
  await page.goto(`${site.url}bare.html`);
  const { chat, answers } = chatOf(page);
  await show(page, MARKDOWN);
  await expect(answers.locator('h3')).toHaveText('Title');
  await expect(answers.locator('h4')).toHaveText('Deep'); // no level is left out
  await expect(answers.locator('p').first()).toHaveText(
    'A bold and slanted and struck word, code, a link, https://b.example/x.A line of its own & more: 1 < 2.',
  );
  for (const [tag, text] of [
    ['strong', 'bold'],
    ['em', 'slanted'],
    ['del', 'struck'],
    ['p > code', 'code'],
    ['ol > li > ul > li', 'inner'],
    ['blockquote', 'quoted'],
    ['thead th >> nth=1', 'n'],
    ['tbody td >> nth=1', '1'],
    ['figure figcaption span', 'js'],
    ['figure pre code', 'const a = 1 < 2; // *no*'],
  ] as const) {
    await expect(answers.locator(tag), tag).toHaveText(text);
  }
  await expect(answers.locator('br')).toHaveCount(1);
  await expect(answers.locator('hr')).toHaveCount(1);
  await expect(answers.locator('tbody td').nth(1)).toHaveCSS('text-align', 'right');
  expect(
    await answers.locator('a').evaluateAll((links) => links.map((link) => (link as HTMLAnchorElement).href)),
  ).toEqual(['https://a.example/?a=1&b=2', 'https://b.example/x']);
  expect(
    await answers.getByRole('checkbox').evaluateAll((boxes) => boxes.map((box) => (box as HTMLInputElement).checked)),
  ).toEqual([true, false]);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await answers.getByRole('button', { name: 'Copy' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('const a = 1 < 2; // *no*');
  await chat.locator('.turn > .under:last-child').getByRole('button', { name: 'Copy' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(MARKDOWN);
  await checkAccessibility(page);
  await page.setViewportSize({ width: 340, height: 640 });
  await checkAccessibility(page);
});

test('all of a conversation is printed, whatever height the page gives the chat', async ({ page }) => {
  await page.goto(`${site.url}bare.html`);
  await page.locator('splitkv-chat').evaluate((element) => (element.style.height = '300px'));
  await show(page, ...Array.from({ length: 60 }, (_, at) => `Answer ${at}`));
  await page.emulateMedia({ media: 'print' });
  const { chat, answers, field, button } = chatOf(page);
  const [outer, last] = [(await chat.boundingBox())!, (await answers.last().boundingBox())!];
  expect(last.y + last.height).toBeLessThanOrEqual(outer.y + outer.height);
  expect(last.y).toBeGreaterThan(2000);
  await expect(field).toBeHidden();
  await expect(button('Copy').first()).toBeHidden();
  const pages = (await page.pdf()).toString('latin1').match(/\/Type\s*\/Page\b/g)!;
  expect(pages.length).toBeGreaterThan(2);
});

test('hostile text stays text, loads nothing, runs nothing and takes no time', async ({ page }) => {
  const foreign: string[] = [];
  const problems: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(site.url)) foreign.push(request.url());
  });
  page.on('pageerror', (error) => problems.push(error.message));
  await page.goto(`${site.url}bare.html`);
  const { answers } = chatOf(page);
  await show(
    page,
    '<img src=https://evil.example/a onerror="globalThis.run = 1"> <script>globalThis.run = 1</script>',
    '<div onclick="globalThis.run = 1">\nblock\n</div>\n\n<style>* { display: none }</style>',
    '[a](javascript:globalThis.run=1) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](&#106;avascript:1) [e](//evil.example) [f](/here) [g](blob:x)',
    '![image](https://evil.example/b.png) ![x](javascript:1)',
    `${'*a_'.repeat(30_000)}`,
    `${'> '.repeat(5000)}deep`,
    `${'['.repeat(20_000)}${'](b)'.repeat(20_000)}`,
    Array.from({ length: 500 }, (_, depth) => `${'  '.repeat(depth)}- a`).join('\n'),
    '```\nnever closed <b>',
    'x'.repeat(300_000),
    '\u0000\uFFFF\u202Ea',
  );
  await expect(answers).toHaveCount(11);
  await expect(answers.nth(0)).toContainText('<script>globalThis.run = 1</script>');
  await expect(answers.nth(1)).toContainText('<div onclick=');
  await expect(answers.nth(2)).toHaveText('a b c d e f g');
  await expect(answers.nth(8).locator('pre')).toHaveText('never closed <b>');
  const found = await page.locator('splitkv-chat').evaluate((element) => ({
    run: (globalThis as { run?: number }).run,
    forbidden: element.shadowRoot!.querySelectorAll(
      '.message :is(script, style, img, iframe, object, embed, [onclick], [onerror], [srcdoc])',
    ).length,
    links: [...element.shadowRoot!.querySelectorAll<HTMLAnchorElement>('.message a')].map(({ href }) => href),
  }));
  expect(found).toEqual({ run: undefined, forbidden: 0, links: ['https://evil.example/b.png'] });
  expect(foreign).toEqual([]);
  expect(problems).toEqual([]);
});

test('`plain` shows what was written, and JSON is shown as such', async ({ page }) => {
  await page.goto(`${site.url}bare.html`);
  const { chat, answers } = chatOf(page);
  await show(page, '{"a": [1, 2]}', '[see] this', '{not json');
  await expect(answers.nth(0).locator('pre')).toHaveText('{\n  "a": [\n    1,\n    2\n  ]\n}');
  await expect(answers.nth(1)).toHaveText('[see] this');
  await expect(answers.nth(1).locator('pre')).toHaveCount(0);
  await expect(answers.nth(2)).toHaveText('{not json');
  await chat.evaluate((element) => element.setAttribute('plain', ''));
  await show(page, '**a** <b>');
  await expect(answers).toHaveText('**a** <b>');
  await expect(answers.locator('strong')).toHaveCount(0);
});

test('highlighting is the page’s: by a function, whose failure changes nothing', async ({ page }) => {
  await page.goto(`${site.url}bare.html`);
  const { chat, answers } = chatOf(page);
  await chat.evaluate((element: SplitkvChat) => {
    element.highlight = (text, language) => {
      if (language === 'bad') throw new Error('no');
      const mark = document.createElement('mark');
      mark.textContent = `${language}:${text}`;
      return mark;
    };
  });
  await show(page, '```ts\na\n```\n\n```bad\nb\n```');
  await expect(answers.locator('mark')).toHaveText('ts:a');
  await expect(answers.locator('pre').nth(1)).toHaveText('b');
});

const MATHS = String.raw`Area \(a_1*b^2*c_2\) and $E = mc^2$, **so $x_i * y_i$ holds**, at $5 and $6 or $7-$8.

1. First \(x^2\,dx\):
   \[
   a = b
   + c \\
   > d
   \]
2. Second

Then
$$
\sum_{i=1}^n i
= 1
$$

| a | b |
| - | - |
| \(a_i\) | $b\_j$ |

No maths: ${'`'}\(c\) $d$${'`'}, \*stars\*, \[x\](y).

${'```'}
\[ e \] $f$
${'```'}`;

test('maths stays as it was written, or is shown by the page, also in half', async ({ page }) => {
  await page.goto(`${site.url}bare.html`);
  const { chat, answers } = chatOf(page);
  await show(page, MATHS);
  const spans = answers.locator('.math');
  const raw = [
    String.raw`\(a_1*b^2*c_2\)`,
    '$E = mc^2$',
    '$x_i * y_i$',
    String.raw`\(x^2\,dx\)`,
    '\\[\na = b\n+ c \\\\\n> d\n\\]',
    '$$\n\\sum_{i=1}^n i\n= 1\n$$',
    String.raw`\(a_i\)`,
    String.raw`$b\_j$`,
  ];
  await expect(spans.first()).toBeVisible();
  expect(await spans.evaluateAll((nodes) => nodes.map(({ textContent }) => textContent))).toEqual(raw);
  expect(await answers.locator('.display').count()).toBe(2);
  await expect(answers.locator('strong')).toHaveText('so $x_i * y_i$ holds');
  await expect(answers.locator('p').first()).toContainText('at $5 and $6 or $7-$8.');
  await expect(answers.locator('p').last()).toHaveText(String.raw`No maths: \(c\) $d$, *stars*, [x](y).`);
  await expect(answers.locator('figure pre')).toHaveText(String.raw`\[ e \] $f$`);
  await expect(answers.locator('em, h3, blockquote, li li')).toHaveCount(0);
  await chat.evaluate((element: SplitkvChat) => {
    element.math = (tex, display) => {
      if (tex.includes('E =')) throw new Error('not this one');
      if (tex.includes('x_i')) return undefined;
      return Object.assign(document.createElement('b'), { textContent: `${display}:${tex.trim()}` });
    };
  });
  await expect(spans.first()).toHaveText('false:a_1*b^2*c_2');
  await expect(spans.nth(1)).toHaveText('$E = mc^2$');
  await expect(spans.nth(2)).toHaveText('$x_i * y_i$');
  await expect(answers.locator('.display b').last()).toHaveText('true:\\sum_{i=1}^n i\n= 1');
});

test('messages are kept over a reload, exported, and wrong ones refused', async ({ page }) => {
  await page.goto(`${site.url}kept.html`);
  const { chat, answers, button } = chatOf(page);
  await show(page, 'One.', 'Two.');
  await page.reload();
  await expect(answers).toHaveText(['One.', 'Two.']);
  const told = await chat.evaluate((element: SplitkvChat) => {
    let problem = '';
    try {
      element.messages = [{ role: 'assistant', content: 'x' }];
    } catch (error) {
      problem = (error as Error).message;
    }
    return { problem, markdown: element.export(), json: JSON.parse(element.export('json')) as unknown };
  });
  expect(told.problem).toContain('messages: expected a list');
  expect(told.markdown).toBe('**You**\n\nWhat?\n\n**Answer**\n\nOne.\n\n**You**\n\nWhat?\n\n**Answer**\n\nTwo.\n');
  expect(told.json).toHaveLength(4);
  await button('New conversation').click();
  await page.reload();
  await expect(chat.getByText('No model yet')).toBeVisible();
  await expect(answers).toHaveCount(0);
});

test('two tabs that keep one conversation lose nothing of it, also with different models', async ({
  page,
  context,
}) => {
  const other = await context.newPage();
  const tabs = [chatOf(page), chatOf(other)] as const;
  await page.goto(`${site.url}loaded.html`);
  await other.goto(`${site.url}loaded.html`);
  await tabs[1].chat.evaluate((element: SplitkvChat) => (element.model = 'models/tiny-mla/'));
  for (const { status } of tabs) await expect(status).toHaveText('Ready');
  const questions = ({ chat }: (typeof tabs)[number]) => chat.getByRole('article', { name: 'You' });
  const asked = ['one ?', 'two ?', 'three ?', 'four ?'];
  for (const [at, text] of asked.entries()) {
    const tab = tabs[at % 2]!;
    await tab.ask(text);
    for (const each of tabs) await expect(questions(each)).toHaveText(asked.slice(0, at + 1));
    await expect(tab.status).toHaveText('Ready');
  }
  // Both at once.
  await Promise.all([tabs[0].ask('five ?'), tabs[1].ask('five ?')]);
  for (const each of tabs) await expect(questions(each)).toHaveText([...asked, 'five ?', 'five ?']);
  await page.reload();
  await other.reload();
  for (const each of tabs) await expect(questions(each)).toHaveText([...asked, 'five ?', 'five ?']);
  await tabs[0].button('New conversation').click();
  await expect(questions(tabs[1])).toHaveCount(0);
  await other.reload();
  await expect(tabs[1].status).toHaveText('Ready');
  await expect(questions(tabs[1])).toHaveCount(0);
});

test('texts are the page’s to change', async ({ page }) => {
  await page.goto(`${site.url}bare.html`);
  const { chat } = chatOf(page);
  await chat.evaluate((element: SplitkvChat) => {
    element.strings = { send: 'Senden', no_model: 'Noch kein Modell', state_empty: 'Kein Modell' };
  });
  await expect(chat.getByRole('button', { name: 'Senden' })).toBeVisible();
  await expect(chat.getByText('Noch kein Modell')).toBeVisible();
  await expect(chat.getByRole('status')).toHaveText('Kein Modell');
  await expect(chat.getByRole('button', { name: 'Stop' })).toBeHidden();
});

test('a conversation can be worked with: edited, asked again, set, restored, and settings changed', async ({
  page,
}) => {
  await page.goto(`${site.url}loaded.html`);
  const { chat, answers, button, ask, status } = chatOf(page);
  const ready = () => expect(status).toHaveText('Ready');
  const texts = () => chat.evaluate((element: SplitkvChat) => element.messages.map(({ content }) => content));
  await ready();
  await ask('one day');
  await expect(answers.first()).toHaveAttribute('aria-busy', 'false');
  await ask('the fox');
  await expect(answers.nth(1)).toHaveAttribute('aria-busy', 'false');
  const [, first, , second] = await texts();

  // The same question again is drawn, as the likeliest tokens would be the same; then the first one is asked otherwise.
  await button('Regenerate').nth(1).click();
  await expect(answers.nth(1)).toHaveAttribute('aria-busy', 'false');
  expect((await texts()).slice(0, 3)).toEqual(['one day', first, 'the fox']);
  await button('Edit').first().click();
  const edit = chat.getByRole('textbox', { name: 'Edit' });
  await expect(edit).toHaveValue('one day');
  await edit.fill('the fox');
  await edit.press('Enter');
  await expect(answers).toHaveCount(1);
  await expect(answers).toHaveAttribute('aria-busy', 'false');
  expect((await texts())[0]).toBe('the fox');

  // What a page sets goes on as if it had been said: the same bits, as the tokens are the same.
  await chat.evaluate(
    (element: SplitkvChat, [question, answer]) => {
      element.messages = [
        { role: 'user', content: question! },
        { role: 'assistant', content: answer! },
      ];
    },
    ['one day', first] as const,
  );
  await page.reload();
  await ready();
  await expect(answers).toHaveCount(1);
  await ask('the fox');
  await expect(answers.nth(1)).toHaveAttribute('aria-busy', 'false');
  expect((await texts())[3]).toBe(second);

  await button('Settings').click();
  const sheet = chat.getByRole('dialog', { name: 'Settings' });
  await checkAccessibility(page);
  await sheet.getByLabel('Longest answer, tokens').fill('3');
  await sheet.getByLabel('Temperature').fill('0.5');
  await sheet.getByRole('button', { name: 'Apply' }).click();
  await expect(sheet).toHaveCount(0);
  await expect(chat).toHaveAttribute('max-tokens', '3');
  await expect(chat).toHaveAttribute('temperature', '0.5');
  await ready();
  await ask('again');
  await expect(chat.locator('.log .note').last()).toContainText('Cut at the token limit.');
  await button('Settings').click();
  await sheet.getByRole('button', { name: 'Reset' }).click();
  await sheet.getByRole('button', { name: 'Apply' }).click();
  await expect(chat).not.toHaveAttribute('temperature', /./);
});

test('an answer that was cut goes on, also after a reload, to what it would have been', async ({ page }) => {
  await page.goto(`${site.url}loaded.html`);
  const { chat, answers, button, ask, status, note } = chatOf(page);
  await expect(status).toHaveText('Ready');
  const set = (tokens: string) => chat.evaluate((element, value) => element.setAttribute('max-tokens', value), tokens);
  const told = () => chat.evaluate((element: SplitkvChat) => element.messages);
  const goOn = async (): Promise<void> => {
    const answered = chat.evaluate(
      (element) =>
        new Promise<void>((done) => element.addEventListener('splitkv-answer', () => done(), { once: true })),
    );
    await button('Continue').click();
    await answered;
  };
  await set('40');
  await ask('tell me a story about a fox');
  await expect(answers).toHaveAttribute('aria-busy', 'false');
  const [, whole] = await told();
  await set('9');
  await button('New conversation').click();
  await ask('tell me a story about a fox');
  await expect(note).toContainText('Cut at the token limit.');
  await goOn();
  const [, part] = await told();
  expect(whole!.content.startsWith(part!.content)).toBe(true);
  expect(part!.content.length).toBeLessThan(whole!.content.length);
  await page.reload();
  await expect(status).toHaveText('Ready');
  await set('22');
  await goOn();
  expect(await told()).toEqual([{ role: 'user', content: 'tell me a story about a fox' }, whole]);
  await expect(answers).toHaveText(whole!.content);
  await expect(answers).toHaveCount(1);
  // After another question only its answer can go on.
  await set('3');
  await ask('one day');
  await expect(answers.nth(1)).toHaveAttribute('aria-busy', 'false');
  await expect(button('Continue')).toHaveCount(1);
});

test('people may choose a model that fits, and delete what is kept', async ({ page }) => {
  await page.goto(`${site.url}picker.html`);
  const { chat, button, status } = chatOf(page);
  await expect(status).toHaveText('Ready');
  await page.evaluate(async () => {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle('splitkv-kv-kept', { create: true });
    const file = await (await folder.getFileHandle('a.k', { create: true })).createWritable();
    await file.write(new Uint8Array(3 * 1024));
    await file.close();
  });
  await button('Change the model').click();
  const dialog = chat.getByRole('dialog', { name: 'Choose a model' });
  const row = (name: string) => dialog.locator('.model', { hasText: name });
  // Of 700 MB: what fits, and what not, by how much.
  await expect(row('smollm2-135m')).toContainText(
    /Fits\s*135 M parameters · 101 MiB download · ~[345]\d\d MiB of GPU memory/,
  );
  await expect(row('qwen3-1.7b')).toContainText(/1\.\d GiB too large/);
  await expect(dialog.getByRole('button', { name: /qwen3-1.7b/ })).toHaveCount(0);
  await checkAccessibility(page);
  await expect(dialog.getByText('tiny-gqa 4.1 MiB')).toBeVisible();
  await dialog.getByRole('button', { name: 'Delete tiny-gqa' }).click();
  await expect(dialog.getByText('tiny-gqa was deleted. 3.0 KiB in all')).toBeVisible();
  await dialog.getByRole('button', { name: 'Delete Keys and values of conversations (kept)' }).click();
  await expect(dialog.getByText('(kept) was deleted. No model')).toBeVisible();
  await dialog.getByLabel("Or the Hub's name").fill('models/tiny-mla/');
  await dialog.getByRole('button', { name: 'Use it' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(chat).toHaveAttribute('model', 'models/tiny-mla/');
  await expect(chat.getByRole('heading', { name: 'tiny-mla' })).toBeVisible();
  await expect(status).toHaveText('Ready');
  await button('Change the model').click();
  await dialog.getByRole('button', { name: /lfm2.5-350m/ }).click();
  await expect(chat).toHaveAttribute('model', 'lfm2.5-350m');
});

test('a full context gives the question back, and can forget the oldest turns', async ({ page }) => {
  await page.goto(`${site.url}loaded.html`);
  const { chat, field, answers, button, ask, problem, status } = chatOf(page);
  await expect(status).toHaveText('Ready');
  await chat.evaluate((element) => element.setAttribute('context', '96'));
  await expect(status).not.toHaveText('Ready');
  await expect(status).toHaveText('Ready');
  const long = 'the fox and the bird '.repeat(4).trim();
  for (let turns = 1; (await problem.count()) === 0 && turns < 10; turns++) {
    await ask(long);
    await expect(
      answers
        .nth(turns - 1)
        .or(problem)
        .last(),
    ).toBeVisible();
    await expect(status).toHaveText('Ready');
  }
  await expect(problem).toContainText('The conversation is too long');
  await expect(field).toHaveValue(long);
  const before = await answers.count();
  await button('Forget the oldest turns').click();
  await expect(answers).toHaveCount(before + 1);
  await expect(answers.last()).toHaveAttribute('aria-busy', 'false');
  await expect(problem).toBeHidden();
});

test('a dropped file is opened', async ({ page }) => {
  await page.goto(`${site.url}bare.html`);
  const { chat, problem } = chatOf(page);
  await expect(chat.getByText('Open a .gguf file')).toBeVisible();
  await chat.evaluate((element) => {
    const data = new DataTransfer();
    data.items.add(new File(['GGUF nonsense'], 'small.gguf'));
    element
      .shadowRoot!.querySelector('.chat')!
      .dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true }));
  });
  await expect(problem).toContainText("The model's files can't be read");
  await expect(chat.getByRole('heading', { name: 'small.gguf' })).toBeVisible();
});

test('tools of the page are called, and their results told to the model; thoughts are folded away', async ({
  page,
}) => {
  await page.goto(`${site.url}loaded.html`);
  const { chat, answers, ask, status } = chatOf(page);
  await expect(status).toHaveText('Ready');
  await chat.evaluate((element: SplitkvChat) => {
    // A model that calls tools is larger than a test's: this one says what such a model would.
    const asked: { messages: unknown; tools: unknown }[] = [];
    const said = [
      [
        { text: '', reasoning: 'I add ' },
        { text: '', reasoning: 'them.' },
        { text: 'Let me see.' },
        { text: '', toolCalls: [{ index: 0, id: 'c1', name: 'add', arguments: '' }] },
      ],
      [{ text: 'It is **3**.' }],
    ];
    const calls = [{ id: 'c1', type: 'function' as const, function: { name: 'add', arguments: '{"a":1,"b":2}' } }];
    Object.defineProperty(element.engine!, 'generate', {
      value: (prompt: { messages: unknown }, { tools }: { tools: unknown }) => {
        const part = asked.push({ messages: prompt.messages, tools }) - 1;
        const result = {
          text: part === 0 ? 'Let me see.' : 'It is **3**.',
          ...(part === 0 && { tool_calls: calls, reasoning: 'I add them.' }),
          finish_reason: part === 0 ? 'tool_calls' : 'stop',
          finish_detail: 'eos',
          stats: { tokens_per_second: 1 },
        };
        return {
          result: Promise.resolve(result),
          async *deltas() {
            yield* said[part]!;
          },
        };
      },
    });
    Object.assign(globalThis, { asked });
    element.tools = {
      add: {
        description: 'adds',
        parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } } },
        run: ({ a, b }) => ({ sum: Number(a) + Number(b) }),
      },
    };
  });
  await ask('1 + 2 ?');
  await expect(answers).toHaveAttribute('aria-busy', 'false');
  await expect(answers.locator('p')).toHaveText(['Let me see.', 'It is 3.']);
  await expect(chat.locator('.call')).toHaveText('Called add');
  await expect(chat.locator('.thought summary')).toHaveText(/^Thought for \d+ s$/);
  await expect(chat.getByText('I add them.')).toBeHidden();
  await chat.locator('.thought summary').click();
  await expect(chat.getByText('I add them.')).toBeVisible();
  await checkAccessibility(page);
  const asked = await page.evaluate(() => (globalThis as unknown as { asked: { messages: unknown[] }[] }).asked);
  expect(asked.map(({ messages }) => messages.length)).toEqual([1, 3]);
  expect(asked[1]!.messages.slice(1)).toEqual([
    { role: 'assistant', content: 'Let me see.', tool_calls: [expect.objectContaining({ id: 'c1' })] },
    { role: 'tool', content: '{"sum":3}', tool_call_id: 'c1', name: 'add' },
  ]);
  // It is there after a reload.
  await page.reload();
  await expect(chat.locator('.call')).toHaveText('Called add');
  await expect(answers.locator('p')).toHaveText(['Let me see.', 'It is 3.']);
});
