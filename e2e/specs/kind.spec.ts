import { expect, type Page, test } from '@playwright/test';
import { QUESTIONS } from '../../models/example.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// The test server builds dist/ before it starts; the pages here are served as plain files.

const pages = {
  'plain.html': chatPage('autostart'),
  'asks.html': chatPage(''),
  'long.html': chatPage('autostart no-self-test max-tokens="150" temperature="2" seed="7"'),
  'mla.html': chatPage('autostart no-self-test').replace('models/tiny-gqa/', 'models/tiny-mla/'),
};
const MIB = 2 ** 20;
let site: StaticSite;
/** First bytes of the ranges of weights that were asked for. */
let asked: number[] = [];
let cutFrom = Infinity;
test.beforeAll(async () => {
  site = await serveSite(pages, {
    before: (request, response) => {
      if (!request.url!.endsWith('.safetensors')) return false;
      const start = Number(/^bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
      asked.push(start);
      if (start < cutFrom) return false;
      response.destroy();
      return true;
    },
  });
});
test.afterAll(() => site.close());
test.beforeEach(() => {
  asked = [];
  cutFrom = Infinity;
});

const ready = (page: Page) => expect(chatOf(page).status).toHaveText('Ready');

test('a download that breaks off goes on where it stopped, and what is kept can be seen and deleted', async ({
  page,
}) => {
  const { problem, status } = chatOf(page);
  cutFrom = 4 * MIB;
  await page.goto(`${site.url}mla.html`);
  await expect(problem).toContainText("The model can't be downloaded");
  await expect(problem).toContainText('what has been downloaded is kept');
  expect(asked).toContain(0);
  await page.goto(`${site.url}app/chat.html?model=${site.url}models/nosuch/&autostart`);
  await page.getByRole('button', { name: 'Change the model' }).click();
  await expect(page.getByRole('listitem').filter({ hasText: 'tiny-mla' })).toContainText('4.0 MiB, not complete');

  // The page is closed and opened again, once the server is back.
  [asked, cutFrom] = [[], Infinity];
  await page.goto(`${site.url}app/chat.html?model=${site.url}models/tiny-mla/&no-self-test&autostart&context=64`);
  const kept = page.getByRole('listitem').filter({ hasText: 'tiny-mla' });
  await ready(page);
  expect(
    asked.filter((start) => start > 0).every((start) => start >= 4 * MIB),
    asked.join(),
  ).toBe(true);
  expect(asked.some((start) => start >= 4 * MIB)).toBe(true);
  await page.getByRole('button', { name: 'Change the model' }).click();
  await expect(kept).toHaveText(/tiny-mla 6\.\d MiB\s*Delete/);

  await page.getByRole('button', { name: 'Delete tiny-mla' }).click();
  await expect(page.getByText('tiny-mla was deleted. No model')).toBeVisible();
  await expect(kept).toHaveCount(0);
  await page.keyboard.press('Escape');
  await expect(status).toContainText('Ready');
});

test('a driver that computes wrongly says so before the first question', async ({ page }) => {
  await page.addInitScript(() => {
    const create = GPUDevice.prototype.createShaderModule;
    GPUDevice.prototype.createShaderModule = function (descriptor) {
      return create.call(this, { ...descriptor, code: descriptor.code.replaceAll('exp(', '-exp(') });
    };
  });
  await page.goto(`${site.url}plain.html`);
  const { problem, button, status, send } = chatOf(page);
  await expect(problem).toContainText('This GPU computes incorrectly');
  await problem.getByText('What was reported').click();
  await expect(problem).toContainText(/it answers a stored prompt with the tokens [\d ]+ instead of 706 331 861/);
  await expect(send).toHaveAttribute('aria-disabled', 'true');
  await button('Use it anyway').click();
  await expect(status).toContainText('Ready');
});

/** The answer to a question that takes a while; `during` runs once it has begun. */
async function answer(page: Page, during?: () => Promise<unknown>): Promise<string> {
  const { field, answers } = chatOf(page);
  const before = await answers.count();
  await field.fill('tell me more');
  await field.press('Enter');
  const own = answers.nth(before);
  await expect(own).toHaveText(/\w+ \w+/);
  await during?.();
  await expect(own).toHaveAttribute('aria-busy', 'false');
  return (await own.textContent())!;
}

test('after a lost GPU, and in a hidden tab, the same answer is written to its end', async ({ page }) => {
  await page.addInitScript(() => {
    const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (descriptor) {
      const device = await request.call(this, descriptor);
      (globalThis as unknown as { lastDevice: GPUDevice }).lastDevice = device;
      return device;
    };
  });
  await page.goto(`${site.url}long.html`);
  await ready(page);
  const { note } = chatOf(page);
  const whole = await answer(page);
  expect(whole.length).toBeGreaterThan(100);
  const afterLoss = await answer(page, () =>
    page.evaluate(() => (globalThis as unknown as { lastDevice: GPUDevice }).lastDevice.destroy()),
  );
  expect(afterLoss).toBe(whole);
  await expect(note.nth(1)).toContainText('The GPU went away and is back; the answer goes on.');

  const hide = (hidden: boolean) =>
    page.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { configurable: true, value });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  let locks: (string | undefined)[] = [];
  const hiddenAnswer = await answer(page, async () => {
    await hide(true);
    locks = await page.evaluate(async () => (await navigator.locks.query()).held!.map(({ name }) => name));
    await page.waitForTimeout(1100);
    await hide(false);
  });
  expect(hiddenAnswer).toBe(whole);
  expect(locks.join()).toMatch(/splitkv-chat-/);
});

test('a model that memory is too small for is told before and after, and runs smaller', async ({ page }) => {
  await page.addInitScript(() => {
    // A GPU of 28 MB: the model takes 29.
    const held = new WeakMap<GPUDevice, number>();
    const owners = new WeakMap<GPUBuffer, GPUDevice>();
    const create = GPUDevice.prototype.createBuffer;
    GPUDevice.prototype.createBuffer = function (descriptor) {
      held.set(this, (held.get(this) ?? 0) + descriptor.size);
      const buffer = create.call(this, descriptor);
      owners.set(buffer, this);
      return buffer;
    };
    const destroy = GPUBuffer.prototype.destroy;
    GPUBuffer.prototype.destroy = function () {
      const owner = owners.get(this);
      if (owner) held.set(owner, held.get(owner)! - this.size);
      owners.delete(this);
      destroy.call(this);
      return undefined;
    };
    const [push, pop] = [GPUDevice.prototype.pushErrorScope, GPUDevice.prototype.popErrorScope];
    const scopes = new WeakMap<GPUDevice, string[]>();
    GPUDevice.prototype.pushErrorScope = function (filter) {
      scopes.set(this, [...(scopes.get(this) ?? []), filter]);
      return push.call(this, filter);
    };
    GPUDevice.prototype.popErrorScope = async function () {
      const filter = scopes.get(this)!.pop();
      const error = await pop.call(this);
      return filter === 'out-of-memory' && held.get(this)! > 28e6 ? new GPUOutOfMemoryError('too much') : error;
    };
  });
  const { chat, problem, button } = chatOf(page);
  await page.goto(`${site.url}asks.html`);
  await expect(button('Download 4.1 MiB and start anyway')).toBeVisible();
  await expect(chat).toContainText("This model won't fit");
  await expect(chat).toContainText(/which does not fit/);
  await expect(chat).toContainText(/out of memory/);
  await button('Download 4.1 MiB and start anyway').click();
  await expect(problem).toContainText("The model doesn't fit this GPU");
  await button('Start with a context of 1,024 tokens').click();
  await ready(page);
  await button(QUESTIONS[0].question).click();
  await expect(chatOf(page).answers).toHaveText(QUESTIONS[0].answer);
});
