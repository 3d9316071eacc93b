import {
  cpSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@playwright/test';
import { bytesOf, MAGIC } from '../../src/loader/testing/header_bytes.js';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// Files made to keep a page busy, or to end its tab. All of them, in Node: src/engine/files/hostile_files.test.ts.

const MODEL = 'models/tiny-gqa';
const tokenizer = JSON.parse(readFileSync(`${MODEL}/tokenizer.json`, 'utf8')) as Record<string, unknown>;
const lists = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
const loops = (turns: number, body = 'x'): string =>
  `${`{% for i in range(${turns}) %}`.repeat(3)}${body}${'{% endfor %}'.repeat(3)}`;
const withTokenizer = (more: object): string => JSON.stringify({ ...tokenizer, ...more });
const safetensors = (json: string): Uint8Array => {
  const header = new TextEncoder().encode(json);
  return new Uint8Array([...bytesOf(BigInt(header.length)), ...header]);
};

/** What differs from a good model's folder, by name. */
const FOLDERS: Readonly<Record<string, Readonly<Record<string, string | Uint8Array>>>> = {
  expression: {
    'tokenizer.json': withTokenizer({
      pre_tokenizer: { type: 'Split', pattern: { Regex: '(a+)+$' }, behavior: 'Isolated', invert: false },
    }),
  },
  doubling: {
    'tokenizer.json': withTokenizer({
      normalizer: {
        type: 'Sequence',
        normalizers: Array.from({ length: 40 }, () => ({ type: 'Replace', pattern: { String: 'a' }, content: 'aa' })),
      },
    }),
  },
  id: {
    'tokenizer.json': withTokenizer({ added_tokens: [{ id: 4_294_967_290, content: '<x>', special: true }] }),
  },
  config: { 'config.json': `{"x":${lists(200_000)}}` },
  header: { 'model.safetensors': safetensors(`{"a":{"dtype":${lists(200_000)},"shape":[],"data_offsets":[0,0]}}`) },
  loops: { 'chat_template.jinja': loops(3000) },
  // Long, but within what a template may take.
  slow: {
    'chat_template.jinja': `${loops(22, '')}{{ '<|begin|>' }}{% for m in messages %}{{ '<|user|>' ~ m.content }}{% endfor %}{{ '<|assistant|>' }}`,
  },
};

let site: StaticSite;
let scratch: string;
test.beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'splitkv-hostile-'));
  for (const [name, files] of Object.entries(FOLDERS)) {
    cpSync(MODEL, join(scratch, name), { recursive: true });
    for (const [file, content] of Object.entries(files)) writeFileSync(join(scratch, name, file), content);
  }
  // A list of 512 Mi bytes, of which the disk holds none.
  mkdirSync(join(scratch, 'gguf'));
  const file = openSync(join(scratch, 'gguf/m.gguf'), 'w');
  writeSync(file, bytesOf(MAGIC, 3, 0n, 1n, 'k', 9, 0, 2n ** 29n));
  ftruncateSync(file, 513 * 1024 * 1024);
  const asking = (name: string, more = ''): string =>
    chatPage(`autostart no-self-test ${more}`)
      .replace('models/tiny-gqa/', `hostile/${name}/`)
      .replace(/about="[^"]*"/, '');
  site = await serveSite(
    {
      'empty.html': '<!doctype html><title>A page</title>',
      'loops.html': asking('loops'),
      'slow.html': asking('slow', 'max-tokens="3000"'),
      'expression.html': asking('expression'),
    },
    { more: { '/hostile': scratch } },
  );
});
test.afterAll(() => {
  site.close();
  rmSync(scratch, { recursive: true });
});

test('hostile files end in an error of ours, and the page lives on', async ({ page }) => {
  await page.goto(`${site.url}empty.html`);
  const names = ['expression', 'doubling', 'id', 'config', 'header', 'gguf/m.gguf'];
  const ends = await page.evaluate(
    async ([base, all]) => {
      const { load, SplitkvError } = (await import(`${base}lib/splitkv.js`)) as typeof import('../../src/index.js');
      const codes: [string, string][] = [];
      for (const name of all) {
        const error: unknown = await load(`${base}hostile/${name}`, { cache: false }).catch(
          (reason: unknown) => reason,
        );
        codes.push([name, error instanceof SplitkvError ? error.code : String(error)]);
      }
      return codes;
    },
    [site.url, names] as const,
  );
  expect(ends).toEqual(names.map((name) => [name, name === 'config' ? 'config' : 'format']));
});

test('a template that loops: the question comes back with an error, Stop or not, and the chat goes on', async ({
  page,
}) => {
  await page.goto(`${site.url}loops.html`);
  const { status, field, chat, ask, stop } = chatOf(page);
  await expect(status).toHaveText('Ready');
  await ask('hello');
  await expect(chat).toContainText(/chat template takes more than [\d.]+ steps/);
  await expect(status).toHaveText('Ready');
  await expect(field).toHaveValue('hello');
  await expect(stop).toBeHidden();
  // Escape is what a person presses meanwhile.
  await field.press('Enter');
  await page.keyboard.press('Escape');
  await expect(status).toHaveText('Ready');
  await expect(stop).toBeHidden();
  await expect(field).toBeEditable();
});

test('a template that takes long: Stop ends the answer', async ({ page }) => {
  await page.goto(`${site.url}slow.html`);
  const { status, field, answers, note, stop, ask } = chatOf(page);
  await expect(status).toHaveText('Ready');
  await ask('tell me a story about a fox');
  await stop.click();
  await expect(note).toContainText('Stopped.');
  await expect(answers).toHaveAttribute('aria-busy', 'false');
  await expect(field).toBeFocused();
});

test('a tokenizer that could take for ever: the element says so, and opens another model', async ({ page }) => {
  await page.goto(`${site.url}expression.html`);
  const { chat, status, problem } = chatOf(page);
  await expect(problem).toContainText('could take for ever');
  await chat.evaluate((element) => element.setAttribute('model', 'models/tiny-gqa/'));
  await expect(status).toHaveText('Ready');
});
