import { randomBytes } from 'node:crypto';
import { expect, type Page, test } from '@playwright/test';
import sharp from 'sharp';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { drawn } from '../../src/gpu/testing/draw.js';
import { makeRandomVision } from '../../src/model/testing/random_vision.js';
import { tone, wavOf } from '../../src/sound/testing/wav.js';
import { checkAccessibility } from '../support/accessibility.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// Pictures and texts that go with a question. The model that takes pictures is a small one of random weights.

const plain = chatPage('autostart no-self-test images max-tokens="6" keep="attached"').replace(/about="[^"]*"/, '');
const pages = {
  'bare.html': plain.replace('model="models/tiny-gqa/" ', ''),
  'words.html': plain,
  'sees.html': plain.replace('models/tiny-gqa/', 'sees/'),
  'hears.html': plain.replace('models/tiny-gqa/', 'hears/').replace(' images ', ' sound '),
  'rtl.html': plain.replace('model="models/tiny-gqa/" ', '').replace('<html lang="en"', '<html lang="ar" dir="rtl"'),
};
const models = {
  sees: makeRandomVision({ seed: 7, imageToken: 300 }).files,
  hears: makeRandomVision({ kind: 'gemma4', seed: 7, imageToken: 300, sound: { layers: 1 } }).files,
};
let site: StaticSite;
test.beforeAll(async () => {
  site = await serveSite(pages, {
    before: (request, response) => {
      // Strict: neither images nor connections by data: URLs.
      response.setHeader('Content-Security-Policy', "default-src 'self'");
      const [, model, bytes] = /^\/(sees|hears)\/(.+)$/.exec(request.url!) ?? [];
      if (bytes === undefined) return false;
      const file = models[model as keyof typeof models].get(bytes);
      if (!file) return !!response.writeHead(404).end();
      const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
      const [from, to] = range ? [Number(range[1]), Math.min(Number(range[2]) + 1, file.length)] : [0, file.length];
      response.setHeader('ETag', '"1"');
      response.writeHead(range ? 206 : 200, range ? { 'Content-Range': `bytes ${from}-${to - 1}/${file.length}` } : {});
      response.end(file.subarray(from, to));
      return true;
    },
  });
});
test.afterAll(() => site.close());

/** Noise, which no format makes small. */
const pngOf = (width: number, height: number): Promise<Buffer> =>
  sharp(randomBytes(width * height * 3), { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer();

/** What a person has on the clipboard or drags here. */
type Given = { readonly name: string; readonly type: string; readonly base64: string } | { readonly text: string };
const give = (page: Page, how: 'paste' | 'drop', given: readonly Given[]): Promise<void> =>
  page.locator('splitkv-chat').evaluate(
    (element, [kind, list]) => {
      const data = new DataTransfer();
      for (const one of list) {
        if ('text' in one) data.setData('text/plain', one.text);
        else {
          const bytes = Uint8Array.from(atob(one.base64), (letter) => letter.charCodeAt(0));
          data.items.add(new File([bytes], one.name, { type: one.type }));
        }
      }
      const options = { bubbles: true, cancelable: true };
      const target = element.shadowRoot!.querySelector(kind === 'paste' ? '#message' : '.chat')!;
      target.dispatchEvent(
        kind === 'paste'
          ? new ClipboardEvent('paste', { ...options, clipboardData: data })
          : new DragEvent('drop', { ...options, dataTransfer: data }),
      );
    },
    [how, given] as const,
  );

const tray = (page: Page) => page.locator('splitkv-chat .tray');

test('pictures and texts are attached by button, paste and drop, seen before they are sent, and taken away', async ({
  page,
}) => {
  const problems: string[] = [];
  page.on('console', (message) => {
    // The icon that no page asked for.
    if (message.type() === 'error' && !message.text().includes('404')) problems.push(message.text());
  });
  for (const name of drawn(['bare.html', 'rtl.html'], 1, 'directions of an attachment')) {
    await page.goto(site.url + name);
    const { chat, field, button } = chatOf(page);
    const choosing = page.waitForEvent('filechooser');
    await button('Attach pictures or text files').click();
    await (
      await choosing
    ).setFiles([
      { name: 'red.png', mimeType: 'image/png', buffer: await pngOf(40, 20) },
      { name: 'notes.md', mimeType: 'text/markdown', buffer: Buffer.from('# Title\n') },
    ]);
    await expect(tray(page).getByRole('img', { name: 'red.png' })).toBeVisible();
    await expect(tray(page)).toContainText(/notes\.md\s*8 B/);
    await give(page, 'paste', [
      { name: 'blue.png', type: 'image/png', base64: (await pngOf(8, 8)).toString('base64') },
    ]);
    await expect(tray(page).getByRole('img', { name: 'blue.png' })).toBeVisible();
    // A long text; a short one is the field's own matter.
    await give(page, 'paste', [{ text: 'long '.repeat(500) }]);
    await expect(tray(page)).toContainText(/Pasted text\.txt\s*2\.4 KiB/);
    await give(page, 'paste', [{ text: 'short' }]);
    await give(page, 'drop', [{ name: 'app.zip', type: '', base64: 'UEsDBAAAAAA=' }]);
    await expect(tray(page)).toContainText('app.zip is no picture (PNG, JPEG, WebP or GIF), no recording and no text.');
    await give(page, 'drop', [{ name: 'cut.png', type: 'image/png', base64: 'iVBORw0KGgo=' }]);
    await expect(tray(page)).toContainText('cut.png: ');
    await expect(tray(page).getByRole('listitem')).toHaveCount(4);
    await page.setViewportSize({ width: 340, height: 640 });
    await checkAccessibility(page);
    // By keyboard: the field has the focus again.
    await button('Remove red.png').focus();
    await page.keyboard.press('Enter');
    await expect(field).toBeFocused();
    await expect(tray(page).getByRole('listitem')).toHaveCount(3);
    expect(await chat.evaluate((element: SplitkvChat) => element.messages)).toEqual([]);
  }
  expect(problems).toEqual([]);
});

test('a model that takes pictures is shown them; they are there after a reload, large ones as copies', async ({
  page,
}) => {
  await page.goto(`${site.url}sees.html`);
  const { chat, status, answers, ask, field, button } = chatOf(page);
  const question = chat.getByRole('article', { name: 'You' });
  const done = async (count: number): Promise<void> => {
    await expect(answers).toHaveCount(count);
    await expect(answers.last()).toHaveAttribute('aria-busy', 'false');
  };
  await expect(status).toHaveText('Ready');
  const large = await pngOf(200, 150);
  await give(page, 'paste', [{ name: 'large.png', type: 'image/png', base64: large.toString('base64') }]);
  await give(page, 'paste', [{ text: 'word '.repeat(401) }]);
  await expect(tray(page).getByRole('listitem')).toHaveCount(2);
  await button('Remove Pasted text.txt').click();
  await ask('What is this?');
  await done(1);
  await expect(tray(page)).toBeHidden();
  await expect(question.getByRole('button', { name: 'large.png' })).toBeVisible();
  // The same as by the library.
  const image = `data:image/png;base64,${large.toString('base64')}`;
  const expected = await chat.evaluate(async (element: SplitkvChat, url) => {
    const talk = element.engine!.conversation();
    const content = [{ type: 'image', image: url } as const, { type: 'text', text: 'What is this?' } as const];
    return (await talk.send(content, { ...element.engine!.info.sampling, maxTokens: 6 }).result).text.trim();
  }, image);
  expect(await chat.evaluate((element: SplitkvChat) => element.messages[1]!.content)).toBe(expected);
  await checkAccessibility(page);
  // Another one is about the picture, too, and the question may be edited.
  await button('Edit').click();
  await chat.getByRole('textbox', { name: 'Edit' }).fill('And this?');
  await chat.getByRole('textbox', { name: 'Edit' }).press('Enter');
  await expect(question).toHaveText('And this?');
  await done(1);
  expect(await chat.evaluate((element: SplitkvChat) => element.messages[0]!.attached)).toMatchObject([
    { name: 'large.png', image },
  ]);
  // A picture alone.
  await give(page, 'paste', [{ name: 'small.png', type: 'image/png', base64: (await pngOf(8, 8)).toString('base64') }]);
  await expect(tray(page).getByRole('img')).toHaveCount(1);
  await field.press('Enter');
  await done(2);

  await page.reload();
  await expect(question.getByRole('button', { name: 'large.png: a smaller copy was kept' })).toBeVisible();
  await expect(question.getByRole('button', { name: 'small.png' })).toBeVisible();
  await expect(status).toHaveText('Ready');
  await ask('Again?');
  await done(3);
  // With a model for text alone the conversation goes on without them, and says so.
  await chat.evaluate((element: SplitkvChat) => (element.model = 'models/tiny-gqa/'));
  await expect(chat.getByRole('heading', { name: 'tiny-gqa' })).toBeVisible();
  await expect(status).toHaveText('Ready');
  await ask('and now ?');
  await done(4);
  await button('Regenerate').first().click();
  await expect(answers).toHaveCount(1);
  await done(1);
  await expect(chat.locator('.log .note')).toContainText('The pictures or recordings were left out');
});

test('a model for text alone reads texts, says that it takes no pictures; what is typed before it is ready waits', async ({
  page,
}) => {
  let go = (): void => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route('**/tiny-gqa/model.safetensors', async (route) => {
    await held;
    await route.continue();
  });
  await page.goto(`${site.url}words.html`);
  const { chat, status, answers, ask, field, send } = chatOf(page);
  await expect(chat.getByRole('heading', { name: 'tiny-gqa' })).toBeVisible();
  await ask('one day');
  await expect(tray(page)).toHaveText('It is sent once the model is ready.');
  await expect(field).toHaveValue('one day');
  // What is typed further is not sent by itself.
  await field.press('End');
  await page.keyboard.type(' the');
  await expect(tray(page)).toBeHidden();
  await page.keyboard.press('Enter');
  await expect(tray(page)).toBeVisible();
  go();
  await expect(answers).toHaveAttribute('aria-busy', 'false');
  await expect(chat.getByRole('article', { name: 'You' })).toHaveText('one day the');
  await expect(field).toHaveValue('');

  await give(page, 'drop', [
    { name: 'story.txt', type: 'text/plain', base64: Buffer.from('the fox').toString('base64') },
  ]);
  await give(page, 'paste', [{ name: 'p.png', type: 'image/png', base64: (await pngOf(8, 8)).toString('base64') }]);
  await expect(tray(page)).toContainText(
    "tiny-gqa doesn't take pictures here. Choose a model that does, such as SmolVLM",
  );
  await ask('what ?');
  await expect(field).toHaveValue('what ?');
  await expect(answers).toHaveCount(1);
  await chat.getByRole('button', { name: 'Remove p.png' }).click();
  await send.click();
  await expect(answers).toHaveCount(2);
  await expect(answers.last()).toHaveAttribute('aria-busy', 'false');
  const told = await chat.evaluate((element: SplitkvChat) => element.messages[2]);
  expect(told).toMatchObject({ content: 'what ?', attached: [{ name: 'story.txt', text: 'the fox' }] });
  const file = chat.getByRole('article', { name: 'You' }).last().locator('details');
  await file.locator('summary').click();
  await expect(file.locator('pre')).toHaveText('the fox');

  // What was typed and not sent is there after a reload, and what is too long says by how much.
  await field.fill('unsent');
  await page.reload();
  await expect(field).toHaveValue('unsent');
  await expect(status).toHaveText('Ready');
  await chat.evaluate((element: SplitkvChat) => (element.context = 256));
  await expect(status).not.toHaveText('Ready');
  await expect(status).toHaveText('Ready');
  await ask('the fox and the bird '.repeat(60));
  const problem = chat.getByRole('alert');
  await expect(problem).toContainText(/has \d+ tokens, \d+ more than the context of 256 holds/);
  await problem.getByRole('button', { name: /^Start with a context of/ }).click();
  await expect(answers).toHaveCount(3);
  await expect(field).toHaveValue('');
});

test('a model that hears is given recordings, attached or from the microphone', async ({ page }) => {
  // A tone in place of a microphone.
  await page.addInitScript(() => {
    navigator.mediaDevices.getUserMedia = async () => {
      const context = new AudioContext();
      const oscillator = context.createOscillator();
      const out = context.createMediaStreamDestination();
      oscillator.connect(out);
      oscillator.start();
      await context.resume();
      return out.stream;
    };
  });
  await page.goto(`${site.url}hears.html`);
  const { chat, status, answers, ask, button } = chatOf(page);
  await expect(status).toHaveText('Ready');
  const wav = Buffer.from(wavOf(tone(4000, 500, 8000), { rate: 8000 })).toString('base64');
  await give(page, 'drop', [{ name: 'low.wav', type: 'audio/wav', base64: wav }]);
  await give(page, 'drop', [{ name: 'bad.wav', type: 'audio/wav', base64: btoa('RIFFxxxxWAVE') }]);
  await expect(tray(page)).toContainText('bad.wav: a WAV file without a format');
  await expect(tray(page).getByRole('listitem')).toHaveCount(1);
  await button('Record sound').click();
  await expect(button('Record sound')).toHaveAttribute('aria-pressed', 'true');
  await page.waitForTimeout(700);
  await button('Record sound').click();
  await expect(tray(page).getByRole('listitem')).toHaveCount(2);
  await expect(button('Record sound')).toHaveAttribute('aria-pressed', 'false');
  await checkAccessibility(page);
  await ask('What is said?');
  await expect(answers).toHaveCount(1);
  await expect(answers.last()).toHaveAttribute('aria-busy', 'false');
  // The same as by the library.
  const { attached = [], content } = await chat.evaluate((element: SplitkvChat) => ({
    attached: element.messages[0]!.attached,
    content: element.messages[1]!.content,
  }));
  expect(attached.map(({ name }) => name)).toEqual(['low.wav', 'Recording']);
  const expected = await chat.evaluate(
    async (element: SplitkvChat, sounds) => {
      const parts = sounds.map((audio) => ({ type: 'audio', audio: audio! }) as const);
      const asked = [...parts, { type: 'text', text: 'What is said?' } as const];
      const talk = element.engine!.conversation();
      return (await talk.send(asked, { ...element.engine!.info.sampling, maxTokens: 6 }).result).text.trim();
    },
    attached.map(({ audio }) => audio),
  );
  expect(content).toBe(expected);
  // A model for text alone has no such button, and says what it can't take.
  await page.reload();
  await expect(chat.getByRole('article', { name: 'You' })).toContainText('low.wav: not kept');
  await chat.evaluate((element: SplitkvChat) => (element.model = 'models/tiny-gqa/'));
  await expect(chat.getByRole('heading', { name: 'tiny-gqa' })).toBeVisible();
  await expect(status).toHaveText('Ready');
  await expect(button('Record sound')).toBeHidden();
  await give(page, 'drop', [{ name: 'low.wav', type: 'audio/wav', base64: wav }]);
  await expect(tray(page)).toContainText("tiny-gqa doesn't take recordings here");
});
