import { expect, type Page, test } from '@playwright/test';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { drawn } from '../../src/gpu/testing/draw.js';
import { chatOf } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// The element in pages that weren't made for it. No model need be loaded for it.

const page = (style: string, body: string, html = 'lang="en"'): string => `<!doctype html>
<html ${html}><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>A page</title>
<script type="module" src="lib/splitkv-chat.js"></script><style>${style}</style></head><body>${body}</body></html>`;
const CHAT = '<splitkv-chat></splitkv-chat>';
const VITE = `:root { font-family: system-ui, Avenir, Helvetica, Arial, sans-serif; line-height: 1.5; font-weight: 400; color-scheme: light dark;
  color: rgba(255, 255, 255, 0.87); background-color: #242424; font-synthesis: none; text-rendering: optimizeLegibility }
  body { margin: 0; display: flex; place-items: center; min-width: 320px; min-height: 100vh }
  #root { max-width: 1280px; margin: 0 auto; padding: 2rem; text-align: center }`;

interface Layout {
  readonly style?: string;
  readonly body: string;
  /** The narrowest that it may be at 1280, 390 and 320 pixels. */
  readonly least?: readonly [number, number, number];
  /** The widest that it may be. */
  readonly most?: number;
}
const PHONE = [600, 300, 240] as const;
/** Boxes that are as wide as what is in them, and others. */
const LAYOUTS: Readonly<Record<string, Layout>> = {
  'an ordinary block': { body: CHAT, least: [1200, 370, 300] },
  "Vite's template": { style: VITE, body: `<div id="root">${CHAT}</div>` },
  "Angular's template": {
    style: `.main { width: 100%; min-height: 100%; display: flex; justify-content: center; align-items: center; padding: 1rem; box-sizing: border-box }
      .content { display: flex; justify-content: space-around; width: 100%; max-width: 700px; margin-bottom: 3rem }`,
    body: `<main class="main"><div class="content">${CHAT}</div></main>`,
  },
  "SvelteKit's template": {
    style: `body { min-height: 100vh; margin: 0 } .app { display: flex; flex-direction: column; min-height: 100vh }
      main { flex: 1; display: flex; flex-direction: column; padding: 1rem; width: 100%; max-width: 64rem; margin: 0 auto; box-sizing: border-box }
      section { display: flex; flex-direction: column; justify-content: center; align-items: center; flex: 0.6 }`,
    body: `<div class="app"><main><section>${CHAT}</section></main></div>`,
  },
  "Next's template": {
    style: `html, body { max-width: 100vw; overflow-x: hidden } * { box-sizing: border-box; padding: 0; margin: 0 }
      .page { display: grid; grid-template-rows: 20px 1fr 20px; align-items: center; justify-items: center; min-height: 100svh; padding: 80px; gap: 64px }
      .page main { display: flex; flex-direction: column; gap: 32px; grid-row-start: 2 }
      @media (max-width: 600px) { .page { padding: 32px; padding-bottom: 80px } .page main { align-items: center } }`,
    body: `<div class="page"><main>${CHAT}</main></div>`,
  },
  "Astro's template": {
    style: `html, body { margin: 0; width: 100%; height: 100% } #container { font-family: Inter, Roboto, sans-serif; height: 100% }
      main { height: 100%; display: flex; justify-content: center }
      #hero { display: flex; align-items: start; flex-direction: column; justify-content: center; padding: 16px }
      @media screen and (max-width: 768px) { #container { display: flex; flex-direction: column } #hero { display: block; padding-top: 10% } }`,
    body: `<div id="container"><main><section id="hero">${CHAT}</section></main></div>`,
  },
  'a centred flex box': { style: 'body { display: flex; justify-content: center }', body: CHAT },
  'a flex box with auto margins': {
    style: 'body { display: flex } main { margin: auto }',
    body: `<main>${CHAT}</main>`,
  },
  'a flex column, centred': {
    style: 'body { display: flex; flex-direction: column; align-items: center }',
    body: `<h1>Title</h1>${CHAT}`,
  },
  'a flex row beside a list': {
    style: 'body { display: flex } aside { width: 80px }',
    body: `<aside>links</aside>${CHAT}`,
    least: [600, 200, 160],
  },
  'a flex row beside a long text, which may shrink': {
    style: 'body { display: flex }',
    body: `<aside>${'many words '.repeat(40)}</aside>${CHAT}`,
    least: [200, 200, 190],
  },
  'a flex item that grows': {
    style: 'body { display: flex } splitkv-chat { flex: 1 }',
    body: CHAT,
    least: [1200, 370, 300],
  },
  'a flex item of min-width 0': {
    style: 'body { display: flex } aside { flex: 0 0 100px } main { flex: 1; min-width: 0 }',
    body: `<aside>links</aside><main>${CHAT}</main>`,
    least: [1100, 270, 200],
  },
  'a centred grid': { style: 'body { display: grid; place-items: center; min-height: 100vh }', body: CHAT },
  'a grid of auto columns': {
    style: 'body { display: grid; grid-template-columns: auto auto; justify-content: start }',
    body: `${CHAT}<p>beside</p>`,
    least: [600, 260, 200],
  },
  'a grid of fractions': {
    style: 'body { display: grid; grid-template-columns: 1fr 2fr }',
    body: `<p>beside</p>${CHAT}`,
    least: [780, 220, 180],
  },
  'a float': { style: 'splitkv-chat { float: left }', body: CHAT },
  'in a float': { style: 'main { float: right }', body: `<main>${CHAT}</main>` },
  'an inline block': { style: 'splitkv-chat { display: inline-block }', body: `some text ${CHAT}` },
  'an absolute box': { style: 'splitkv-chat { position: absolute; inset: auto 0 0 auto }', body: CHAT },
  'in a fixed corner': { style: 'main { position: fixed; right: 1rem; bottom: 1rem }', body: `<main>${CHAT}</main>` },
  'a dialog': { body: `<dialog open>${CHAT}</dialog>` },
  'a modal dialog': { body: `<dialog id="modal">${CHAT}</dialog>` },
  'a popover': { body: `<div popover id="popover">${CHAT}</div>` },
  'a table cell': { body: `<table><tr><td>a cell</td><td>${CHAT}</td></tr></table>`, least: [600, 250, 180] },
  'fit-content': { style: 'main { width: fit-content; margin: auto }', body: `<main>${CHAT}</main>` },
  'max-content': { style: 'main { width: max-content }', body: `<main>${CHAT}</main>` },
  'a fieldset and details': {
    body: `<fieldset style="width: fit-content"><details open><summary>Ask</summary>${CHAT}</details></fieldset>`,
  },
  'a sidebar of 260 pixels': {
    style: 'body { display: flex } aside { flex: 0 0 260px } main { flex: 1 }',
    body: `<aside>${CHAT}</aside><main>text</main>`,
    least: [258, 258, 258],
    most: 260,
  },
  'a column of 260 pixels that centres': {
    style: 'aside { width: 260px; display: flex; justify-content: center }',
    body: `<aside>${CHAT}</aside>`,
    least: [258, 258, 258],
    most: 260,
  },
  'as wide as the page says': {
    style: 'body { display: flex; justify-content: center } splitkv-chat { width: 280px }',
    body: CHAT,
    least: [280, 280, 280],
    most: 280,
  },
  'narrower than it wants': {
    style: 'main { width: 120px }',
    body: `<main>${CHAT}</main>`,
    least: [120, 120, 120],
    most: 120,
  },
  'a flex box itself': { style: 'splitkv-chat { display: flex }', body: CHAT, least: [1200, 370, 300] },
  'a flex column itself': {
    style: 'splitkv-chat { display: flex; flex-direction: column; align-items: start }',
    body: CHAT,
  },
  'from right to left': { style: 'html { direction: rtl } body { display: flex; place-items: center }', body: CHAT },
};

const named = (name: string): string => `${name.replace(/\W+/g, '_')}.html`;
/** Every style that is inherited, as no page should have it. */
const HOSTILE = `html { text-align: right; letter-spacing: 0.3em; word-spacing: 1em; text-transform: uppercase; white-space: nowrap; font-style: italic;
  font-weight: 900; font-size: 31px; font-family: fantasy; font-variant: small-caps; font-stretch: expanded; line-height: 3; text-indent: 4em;
  text-shadow: 2px 2px red; hyphens: auto; word-break: break-all; overflow-wrap: anywhere; line-break: anywhere; cursor: wait; color: red;
  list-style: square inside; border-collapse: separate; border-spacing: 9px; caption-side: bottom; empty-cells: hide; quotes: none; tab-size: 1;
  user-select: none; orphans: 9; widows: 9; font-feature-settings: 'smcp'; font-kerning: none; text-rendering: geometricPrecision; caret-color: red;
  accent-color: red; stroke: red; fill: red; stroke-width: 9; paint-order: stroke; text-emphasis: filled red; text-underline-offset: 1em;
  font-optical-sizing: none; text-wrap: balance; image-rendering: pixelated; text-align-last: center; -webkit-text-stroke: 2px red;
  -webkit-text-fill-color: red; -webkit-font-smoothing: antialiased }
  html { font-size: 16px } body { font-size: 31px }
  * { letter-spacing: 2px; text-align: center; font-style: italic } div, p, button, textarea, li, section { line-height: 9; color: red; margin: 9px }
  button { border-radius: 8px; border: 1px solid transparent; padding: 0.6em 1.2em; font-size: 1em; background-color: #1a1a1a }
  a { font-weight: 500; color: #646cff; text-decoration: inherit }`;
const INNER = `<div style="width: 700px">${CHAT}</div>`;

const pages: Record<string, string> = {
  'clean.html': page('', INNER),
  'hostile.html': page(HOSTILE, INNER),
  'ltr.html': page(':root { color-scheme: light dark }', CHAT),
  'rtl.html': page(':root { color-scheme: light dark }', CHAT, 'lang="ar" dir="rtl"'),
  ...Object.fromEntries(
    Object.entries(LAYOUTS).map(([name, { style = '', body }]) => [named(name), page(style, body)]),
  ),
};

let site: StaticSite;
test.beforeAll(async () => {
  site = await serveSite(pages);
});
test.afterAll(() => site.close());

test('the element has a width in every box', async ({ page }) => {
  for (const [name, { least = PHONE, most }] of drawn(Object.entries(LAYOUTS), 5, 'layouts')) {
    await page.setViewportSize({ width: 1280, height: 700 });
    await page.goto(site.url + named(name));
    const { chat } = chatOf(page);
    await page.evaluate(() => {
      document.querySelector<HTMLDialogElement>('#modal')?.showModal();
      document.querySelector<HTMLElement>('#popover')?.showPopover();
    });
    await expect(chat.getByText('No model yet'), name).toBeVisible({ timeout: 20_000 });
    for (const [at, width] of [1280, 390, 320].entries()) {
      await page.setViewportSize({ width, height: 700 });
      const box = await chat.boundingBox();
      const said = `${name}, ${width}: ${JSON.stringify(box)}`;
      expect.soft(box!.width, said).toBeGreaterThanOrEqual(least[at]!);
      expect.soft(box!.width, said).toBeLessThanOrEqual(most ?? width);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect.soft(wide, `${said}: nothing is wider than the page`).toBeLessThanOrEqual(width);
      expect.soft(box!.height, said).toBeGreaterThan(250);
      const inner = await chat.locator('.chat').boundingBox();
      expect.soft(Math.abs(inner!.width - box!.width), `${said}: what is in it fills it`).toBeLessThan(1);
    }
  }
});

/** The computed styles of every node in the shadow tree. */
const stylesOf = (page: Page): Promise<Record<string, string>[]> =>
  page.locator('splitkv-chat').evaluate((element) =>
    [...element.shadowRoot!.querySelectorAll('*')].map((node) => {
      const style = getComputedStyle(node);
      return {
        node: `${node.localName}.${node.getAttribute('class') ?? ''}`,
        ...Object.fromEntries([...style].map((name) => [name, style.getPropertyValue(name)])),
      };
    }),
  );

test("the page's text styles don't come in", async ({ page }) => {
  const found: Record<string, string>[][] = [];
  for (const name of ['clean.html', 'hostile.html']) {
    await page.goto(site.url + name);
    const { chat, answers } = chatOf(page);
    await chat.evaluate((element: SplitkvChat) => {
      element.settings = element.picker = true;
      element.suggestions = 'one|two';
      element.about = 'a text';
      element.messages = [
        { role: 'user', content: 'What?' },
        {
          role: 'assistant',
          content: '# A\n\ntext `code`\n\n- one\n\n| a |\n| - |\n| b |\n\n```\ncode\n```',
          reasoning: 'so',
        },
      ];
    });
    await expect(answers.locator('figure')).toBeVisible();
    await chat.getByRole('button', { name: 'Settings' }).click();
    await expect(chat.getByRole('dialog')).toBeVisible();
    // The button that was pressed lies under the pointer, and looks so until Chromium thinks of it again.
    await page.mouse.move(0, 0);
    await expect(chat.locator('button:hover')).toHaveCount(0);
    await chat.evaluate((element) =>
      Promise.all(element.shadowRoot!.getAnimations().map(({ finished }) => finished.catch(() => {}))),
    );
    found.push(await stylesOf(page));
  }
  const [clean, hostile] = found as [Record<string, string>[], Record<string, string>[]];
  expect(hostile.length).toBe(clean.length);
  const different = clean.flatMap((style, at) =>
    Object.keys(style)
      .filter((name) => style[name] !== hostile[at]![name])
      .map((name) => `${style['node']}: ${name}: ${style[name]} became ${hostile[at]![name]}`),
  );
  expect(different).toEqual([]);
});

test('what a page says of the whole still holds: hidden, not to be pressed, dark, from right to left', async ({
  page,
}) => {
  await page.goto(`${site.url}rtl.html`);
  const { chat } = chatOf(page);
  const send = chat.locator('button.main').first();
  await expect(send).toHaveCSS('direction', 'rtl');
  await page.emulateMedia({ colorScheme: 'dark' });
  await expect(chat.locator('.chat')).toHaveCSS('background-color', 'rgb(27, 29, 34)');
  await chat.evaluate((element) => Object.assign(element.style, { visibility: 'hidden', pointerEvents: 'none' }));
  await expect(send).toHaveCSS('visibility', 'hidden');
  await expect(send).toHaveCSS('pointer-events', 'none');
  await chat.evaluate((element) => element.setAttribute('lang', 'ja'));
  expect(await send.evaluate((node) => getComputedStyle(node).getPropertyValue('-webkit-locale'))).toBe('"ja"');
});

const MIXED = `## مقدمة عن \`WebGPU\`

\`WebGPU\` هي واجهة برمجة، أليس كذلك؟

An English paragraph, is it not?

1. الأول: استخدم \`let a = 1;\`
2. second, in English

- فقرة في قائمة

  فقرة ثانية!

> اقتباس من كتاب.

| الاسم | العدد |
| --- | --- |
| תפוח | 3 |
| pear | 4 |

\`\`\`js
let a = 1; // تعليق
\`\`\``;

test('each part is laid out as its own letters are read, whichever way the page is', async ({ page }) => {
  for (const name of ['ltr.html', 'rtl.html']) {
    await page.goto(site.url + name);
    const { chat, field, answers } = chatOf(page);
    await chat.evaluate((element: SplitkvChat, content) => {
      element.messages = [
        { role: 'user', content: 'ما هي WebGPU؟' },
        { role: 'assistant', content, reasoning: 'פירות' },
        { role: 'user', content: 'And in English?' },
        { role: 'assistant', content: 'Yes.' },
      ];
    }, MIXED);
    await expect(answers.locator('figure')).toBeVisible();
    const questions = chat.getByRole('article', { name: 'You' });
    for (const [node, direction] of [
      [questions.first(), 'rtl'],
      [questions.last(), 'ltr'],
      [chat.locator('.thought p').first(), 'rtl'],
      [answers.locator('h3'), 'rtl'],
      [answers.first().locator('> p').first(), 'rtl'],
      [answers.first().locator('> p').nth(1), 'ltr'],
      [answers.locator('ol > li').first(), 'rtl'],
      [answers.locator('ol > li').last(), 'ltr'],
      [answers.locator('ul > li'), 'rtl'],
      [answers.locator('blockquote'), 'rtl'],
      [answers.locator('.table'), 'rtl'],
      [answers.locator('td').first(), 'rtl'],
      [answers.locator('td >> nth=2'), 'ltr'],
      [answers.locator('pre'), 'ltr'],
      [answers.locator('li code'), 'ltr'],
    ] as const) {
      await expect(node, name).toHaveCSS('direction', direction);
    }
    await expect(answers.locator('li code')).toHaveCSS('unicode-bidi', 'isolate');
    await field.fill('سؤال');
    await expect(field).toHaveCSS('direction', 'rtl');
    await field.fill('question');
    await expect(field).toHaveCSS('direction', 'ltr');
    await field.fill('');
    await expect(field).toHaveCSS('direction', name === 'rtl.html' ? 'rtl' : 'ltr');
    // A list's marks stand inside of the answer, on whichever side they are.
    const { x, width } = (await answers.first().boundingBox())!;
    for (const item of await answers.locator('li').all()) {
      const box = (await item.boundingBox())!;
      const isRtl = (await item.evaluate((node) => getComputedStyle(node).direction)) === 'rtl';
      const room = isRtl ? x + width - box.x - box.width : box.x - x;
      expect(room, name).toBeGreaterThan(20);
    }
    for (const size of [1280, 390]) {
      await page.setViewportSize({ width: size, height: 900 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(wide, `${name}, ${size}`).toBeLessThanOrEqual(size);
    }
  }
});
