import { readFileSync } from 'node:fs';
import { expect, type Page, test } from '@playwright/test';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { QUESTIONS } from '../../models/example.js';
import { checkAccessibility } from '../support/accessibility.js';
import { chatOf } from '../support/chat_page.js';

// The chat page: conversations that this browser keeps, around the element.

const side = (page: Page) => page.getByRole('complementary', { name: 'Conversations' });
const titles = (page: Page) => side(page).locator('.open > span:first-child');

test('conversations are kept, found, renamed, deleted and brought back; reload and Back lose nothing', async ({
  page,
}) => {
  const problems: string[] = [];
  page.on('pageerror', ({ message }) => problems.push(message));
  await page.goto('/chat.html?autostart&no-self-test');
  const { chat, status, answers, ask, button, field } = chatOf(page);
  const answered = async (text: string): Promise<void> => {
    await expect(answers).toHaveText(text);
    await expect(answers).toHaveAttribute('aria-busy', 'false');
  };
  // Asked before the model is there.
  await ask(QUESTIONS[0].question);
  await answered(QUESTIONS[0].answer);
  await expect(titles(page)).toHaveText([QUESTIONS[0].question]);
  await expect(page.locator('#meter')).toHaveText(/^\s*\d+ of 4,096 tokens$/);
  const first = page.url();
  // The element's own button begins another one, and loses nothing.
  await button('New conversation').click();
  await expect(answers).toHaveCount(0);
  await ask(QUESTIONS[1].question);
  await answered(QUESTIONS[1].answer);
  await expect(titles(page)).toHaveText([QUESTIONS[1].question, QUESTIONS[0].question]);
  await expect(page.getByRole('heading', { level: 2, name: QUESTIONS[1].question })).toBeVisible();
  await checkAccessibility(page);
  await page.goBack();
  expect(page.url()).toBe(first);
  await answered(QUESTIONS[0].answer);
  await field.fill('not sent yet');
  await page.reload();
  await answered(QUESTIONS[0].answer);
  await expect(field).toHaveValue('not sent yet');
  await expect(status).toHaveText('Ready');

  // By keyboard: search in what was said.
  await page.keyboard.press('ControlOrMeta+k');
  await expect(page.getByRole('searchbox')).toBeFocused();
  await page.keyboard.type('porch basket');
  await expect(titles(page)).toHaveText([QUESTIONS[1].question]);
  await expect(side(page).locator('.excerpt')).toContainText('in the porch basket');
  await page.getByRole('searchbox').fill('');
  await side(page)
    .getByRole('button', { name: `Rename “${QUESTIONS[0].question}”` })
    .click();
  await side(page).getByRole('textbox', { name: 'Title' }).fill('Needles');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 2, name: 'Needles' })).toBeVisible();

  // What is shown may go, too, and come back.
  await side(page).getByRole('button', { name: 'Delete “Needles”' }).click();
  await expect(titles(page)).toHaveText([QUESTIONS[1].question]);
  await expect(answers).toHaveCount(0);
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(titles(page)).toHaveText([QUESTIONS[1].question, 'Needles']);
  await answered(QUESTIONS[0].answer);

  // All of it as a file, into a browser that has none of it.
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export all' }).click();
  const file = await (await download).path();
  expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ conversations: [{}, { title: 'Needles' }] });
  await page.evaluate(() => localStorage.clear());
  await page.goto('/chat.html');
  const choosing = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Import…' }).click();
  await (await choosing).setFiles(file);
  await expect(side(page).getByRole('status')).toHaveText('2 were added.');
  await titles(page).last().click();
  await answered(QUESTIONS[0].answer);
  expect(problems).toEqual([]);
  expect(await chat.evaluate((element: SplitkvChat) => element.messages.length)).toBe(2);
});

test('presets of one’s own are saved, picked, renamed and deleted', async ({ page }) => {
  await page.goto('/chat.html?model=models/nosuch/');
  const { chat, button } = chatOf(page);
  const select = page.getByRole('combobox', { name: 'How it answers' });
  await chat.evaluate((element: SplitkvChat) => (element.system = 'You rhyme.'));
  await page.getByRole('button', { name: 'Your presets' }).click();
  const dialog = page.getByRole('dialog', { name: 'Your presets' });
  await expect(dialog.getByLabel('System prompt')).toHaveValue('You rhyme.');
  await dialog.getByLabel('Name').fill('Poet');
  await dialog.getByLabel('First question').fill('A rhyme on bread?');
  await dialog.getByLabel('Name').press('Enter');
  await expect(dialog.getByRole('status')).toHaveText('“Poet” was saved.');
  await checkAccessibility(page);
  await dialog.getByRole('button', { name: 'Change “Poet”' }).click();
  await dialog.getByLabel('Name').fill('Rhymes');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog.getByRole('listitem')).toHaveText(['Rhymes']);
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await page.reload();
  await select.selectOption('As the model is');
  await expect(chat).not.toHaveAttribute('system');
  await select.selectOption('Rhymes');
  await expect(chat).toHaveAttribute('system', 'You rhyme.');
  await expect(button('A rhyme on bread?')).toBeVisible();
  await page.getByRole('button', { name: 'Your presets' }).click();
  await dialog.getByRole('button', { name: 'Delete “Rhymes”' }).click();
  await expect(dialog.getByRole('listitem')).toHaveCount(0);
  await expect(dialog.getByRole('button', { name: 'Undo' })).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(select.locator('option', { hasText: 'Rhymes' })).toHaveCount(0);
});

test('a link shares what was said, to read and to go on from; shortcuts, roles and a phone', async ({
  page,
  context,
}) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto('/chat.html?model=models/nosuch/');
  const { chat, answers, button } = chatOf(page);
  await chat.evaluate((element: SplitkvChat) => {
    element.messages = [
      { role: 'user', content: 'How?' },
      { role: 'assistant', content: 'So: \\(\\frac{a}{b}\\)\n\n```js\nconst a = "b";\n```\n' },
    ];
  });
  // Code has its colours, maths its signs.
  await expect(answers.locator('.hljs-keyword')).toHaveText('const');
  await expect(answers.locator('.hljs-string')).toHaveText('"b"');
  await expect(answers.locator('mfrac')).toHaveCount(1);
  // A role is the conversation's own.
  await page.getByRole('combobox', { name: 'How it answers' }).selectOption('Short answers');
  await expect(chat).toHaveAttribute('system', /^Answer in one or two sentences/);
  await page.getByRole('button', { name: 'Share this conversation' }).click();
  await expect(page.locator('#page-note')).toContainText('The link is copied');
  const link = await page.evaluate(() => navigator.clipboard.readText());
  expect(link).toContain('/chat.html#share=');
  await page.keyboard.press('ControlOrMeta+Shift+O');
  await expect(answers).toHaveCount(0);
  await expect(chat).not.toHaveAttribute('system');

  const other = await context.newPage();
  await other.setViewportSize({ width: 390, height: 844 });
  await other.goto(link);
  const read = other.getByRole('region', { name: 'The shared conversation' });
  await expect(read).toContainText('const a = "b"');
  await expect(read.locator('.hljs-keyword')).toHaveText('const');
  await expect(read.getByRole('button', { name: 'Regenerate' })).toHaveCount(0);
  await expect(other.locator('splitkv-chat')).toBeHidden();
  await checkAccessibility(other);
  await other.getByRole('button', { name: 'Continue from here' }).click();
  await expect(read).toHaveCount(0);
  await expect(chatOf(other).answers.locator('mfrac')).toHaveCount(1);
  await expect(other).toHaveURL(/#c=/);
  // The list is a drawer there.
  await expect(side(other)).toBeHidden();
  await other.getByRole('button', { name: 'Conversations' }).click();
  await expect(titles(other)).toHaveText(['How?']);
  await checkAccessibility(other);
  await titles(other).click();
  await expect(side(other)).toBeHidden();
  await chatOf(other).field.blur();
  await other.keyboard.press('?');
  const keys = other.getByRole('dialog', { name: 'Keyboard' });
  await expect(keys).toContainText('New conversation');
  await other.keyboard.press('Escape');
  await expect(keys).toHaveCount(0);
  await other.keyboard.press('/');
  await expect(chatOf(other).field).toBeFocused();

  // A link that was cut says so, and leaves what there is.
  await other.goto(`${link.slice(0, -8)}`);
  await other.reload();
  await expect(other.locator('#page-note')).toContainText('This link holds no whole conversation');
  await expect(button('New conversation').first()).toBeHidden();
});

test('a conversation that is open in two tabs is deleted and brought back', async ({ page, context }) => {
  await page.goto('/chat.html?model=models/nosuch/');
  const { chat, answers } = chatOf(page);
  await chat.evaluate((element: SplitkvChat) => {
    element.messages = [
      { role: 'user', content: 'How?' },
      { role: 'assistant', content: 'So.' },
    ];
  });
  await page.evaluate(() => {
    const id = location.hash.slice('#c='.length);
    localStorage.setItem('splitkv-conversations', JSON.stringify([{ id, title: 'How?', at: 1 }]));
  });
  const other = await context.newPage();
  await other.goto(page.url());
  await expect(chatOf(other).answers).toHaveText('So.');
  await side(other).getByRole('button', { name: 'Delete “How?”' }).click();
  await expect(answers).toHaveCount(0);
  await other.getByRole('button', { name: 'Undo' }).click();
  await expect(chatOf(other).answers).toHaveText('So.');
  await titles(page).click();
  await expect(answers).toHaveText('So.');
  await expect(chatOf(other).answers).toHaveText('So.');
});

test.describe('a browser that keeps nothing', () => {
  for (const [what, told] of [
    ['denied', 'This browser lets the page keep nothing'],
    ['full', 'This browser has no room for more conversations'],
  ] as const) {
    test(`storage ${what}: one converses, and is told`, async ({ page, context }) => {
      const problems: string[] = [];
      page.on('pageerror', ({ message }) => problems.push(message));
      await page.addInitScript((how) => {
        if (how === 'full') {
          Storage.prototype.setItem = () => {
            throw new DOMException('Setting the value exceeded the quota.', 'QuotaExceededError');
          };
          return;
        }
        const denied = (): never => {
          throw new DOMException('Access is denied for this document.', 'SecurityError');
        };
        for (const name of ['localStorage', 'sessionStorage', 'indexedDB', 'caches'])
          Object.defineProperty(globalThis, name, { get: denied });
        navigator.storage.getDirectory = () => Promise.reject(new DOMException('denied', 'SecurityError'));
      }, what);
      await context.grantPermissions(['clipboard-read', 'clipboard-write']);
      await page.goto('/chat.html?autostart&no-self-test');
      const { answers, ask, button } = chatOf(page);
      await ask(QUESTIONS[0].question);
      await expect(answers).toHaveText(QUESTIONS[0].answer);
      await expect(page.locator('#page-note')).toContainText(told);
      await expect(titles(page)).toHaveCount(0);
      await page.getByRole('button', { name: 'Share this conversation' }).click();
      await expect(page.locator('#page-note')).toContainText('The link is copied');
      const link = await page.evaluate(() => navigator.clipboard.readText());
      await button('New conversation').click();
      await expect(answers).toHaveCount(0);
      await page.goto(link);
      await page.reload();
      await page.getByRole('button', { name: 'Continue from here' }).click();
      await expect(answers).toHaveText(QUESTIONS[0].answer);
      await expect(page.locator('#page-note')).toContainText(told);
      await page.goto('/ranks.html');
      await expect(page.locator('#answer-figures')).toContainText(/\S/);
      expect(problems).toEqual([]);
    });
  }
});
