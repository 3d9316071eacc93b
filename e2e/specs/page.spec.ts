import { expect, type Page, test } from '@playwright/test';
import { QUESTIONS, STORY } from '../../models/example.js';

const ready = (page: Page) => expect(page.locator('#model-status')).toHaveText('tiny-gqa is ready.');

/** Types a question, sends it, and waits for the end of the answer. */
async function ask(page: Page, question: string): Promise<string> {
  await page.getByLabel('Question', { exact: true }).fill(question);
  await page.getByLabel('Question', { exact: true }).press('Enter');
  await expect(page.locator('#stats')).toContainText('tokens/s');
  return (await page.locator('#answer').textContent()) ?? '';
}

test('the page answers questions about the story', async ({ page }) => {
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  await page.goto('/ranks.html');
  await ready(page);
  await expect(page.getByLabel('Text', { exact: true })).toHaveValue(STORY);
  for (const { question, answer } of QUESTIONS) expect(await ask(page, question)).toBe(answer);
  await expect(page.locator('#stats')).toContainText('dispatches per token');
  await expect(page.getByRole('listitem').getByRole('heading')).toHaveText(['Rank 0 samples']);
  await expect(page.locator('#error')).toBeHidden();
  expect(problems).toEqual([]);
});

test('an answer can be stopped, and the next one is whole', async ({ page }) => {
  await page.goto('/ranks.html?model=models/tiny-gqa&max-tokens=2000');
  await ready(page);
  await page.getByLabel('Question', { exact: true }).fill('tell me a story about a fox');
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(page.locator('#answer')).not.toBeEmpty();
  await page.keyboard.press('Escape');
  await expect(page.locator('#answer')).toHaveAttribute('aria-busy', 'false');
  await page.getByLabel('Text', { exact: true }).fill(STORY);
  expect(await ask(page, QUESTIONS[0].question)).toBe(QUESTIONS[0].answer);
});

test('a model that is not there is explained in words', async ({ page }) => {
  await page.goto('/ranks.html?model=/models/nosuch');
  await expect(page.getByRole('alert')).toContainText('has no config.json; expected a model folder');
  await expect(page.locator('#model-status')).toHaveText('nosuch could not be loaded.');
  await expect(page.getByRole('button', { name: 'Send' })).toBeDisabled();
});

test('a wrong parameter in the address is named', async ({ page }) => {
  await page.goto('/ranks.html?weigths=q8');
  await expect(page.getByRole('alert')).toContainText(
    "unknown parameter 'weigths' in the address. Did you mean 'weights'?",
  );
  await page.goto('/ranks.html?weights=q5');
  await expect(page.getByRole('alert')).toContainText('weights=q5');
});

test('nothing overflows on a phone', async ({ page }) => {
  await page.setViewportSize({ width: 340, height: 700 });
  await page.goto('/ranks.html');
  await ready(page);
  await ask(page, QUESTIONS[0].question);
  const { content, view } = await page.evaluate(() => ({
    content: document.documentElement.scrollWidth,
    view: document.documentElement.clientWidth,
  }));
  expect(content).toBeLessThanOrEqual(view);
});
