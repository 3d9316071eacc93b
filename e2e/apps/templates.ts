import { cpSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Browser, Page } from '@playwright/test';
import { freePort } from '../support/free_port.js';
import type { App } from './apps.js';
import { packPackage, type Ran, run, serve } from './run_app.js';

const PAGE_MS = 120_000;
/** What extensions' pages have; of it what is used here. */
declare const chrome: {
  readonly runtime: { getContexts(filter: { contextTypes: string[] }): Promise<unknown[]> };
  readonly tabs: { query(filter: object): Promise<{ readonly id: number }[]> };
  readonly scripting: { executeScript(options: object): Promise<unknown> };
};

const MODEL = '/models/tiny-gqa/';
const QUESTION = 'Where was the lion?';

interface Template {
  readonly serve: App['serve'];
  /** The folder that the app serves as it is. */
  readonly public: string;
  /** Default: a chat that a click starts. */
  readonly ask?: (page: Page) => Promise<void>;
  readonly model?: string;
}

const built = { serve: { folder: 'dist' }, public: 'public' } as const;

/** Each template of create-splitkv. */
export const TEMPLATES: Readonly<Record<string, Template>> = {
  vanilla: built,
  'vite-react': built,
  vue: built,
  svelte: built,
  next: { serve: { command: 'next start --hostname 127.0.0.1 --port' }, public: 'public' },
  extension: {
    serve: { extension: 'extension' },
    public: 'extension',
    model: 'models/tiny-gqa/',
    ask: async (page) => {
      await chat(page);
      await clients(page);
    },
  },
  'node-server': {
    serve: { command: 'node start_at.js' },
    public: '.',
    model: './models/tiny-gqa',
    ask: async (page) => {
      await page.getByRole('textbox', { name: 'Question' }).fill(QUESTION);
      await page.keyboard.press('Enter');
      await words(page, '#answer');
    },
  },
  rag: {
    ...built,
    ask: async (page) => {
      await page.getByRole('button').click();
      await page.getByText('Ready').waitFor({ timeout: PAGE_MS });
      await page.getByRole('textbox', { name: 'Question' }).fill('When does the library close on Thursdays?');
      await page.keyboard.press('Enter');
      await words(page, '#answer');
      const count = await page.locator('#sources li').count();
      if (count !== 2) throw new Error(`${count} passages are shown, not 2`);
    },
  },
  ranks: {
    ...built,
    ask: async (page) => {
      await chat(page);
      const ranks = await page.locator('#ranks li').allInnerTexts();
      if (ranks.length !== 2 || !ranks.every((text) => /Rank \d on .+ MiB of weights/.test(text)))
        throw new Error(`of two ranks the page says: ${ranks.join(' | ')}`);
      await page.getByRole('button', { name: /second device/ }).click();
      await page.getByText(/\btp\b.*\n/).waitFor({ timeout: PAGE_MS });
    },
  },
};

/** Waits for an answer, and for its end. */
async function words(page: Page, selector: string): Promise<void> {
  const text = (): Promise<string> => page.locator(selector).innerText();
  await page.waitForFunction(
    (of) => !['', '…'].includes(document.querySelector(of)?.textContent?.trim() ?? ''),
    selector,
    { timeout: PAGE_MS },
  );
  for (let last = ''; last !== (last = await text());) await page.waitForTimeout(1000);
  if (/^No answer|error/i.test(await text())) throw new Error(await text());
}

async function chat(page: Page): Promise<void> {
  const element = page.locator('splitkv-chat');
  await element.getByRole('button', { name: /and start/ }).click({ timeout: PAGE_MS });
  await element.getByText('Ready', { exact: true }).waitFor({ timeout: PAGE_MS });
  await element.getByRole('textbox', { name: 'Message' }).fill(QUESTION);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => {
    const { state, messages = [] } = document.querySelector('splitkv-chat') ?? {};
    return state === 'ready' && messages.length === 2 && messages[1]!.content.trim() !== '';
  });
  const box = await element.boundingBox();
  if (!box || box.width < 300 || box.height < 250)
    throw new Error(`the chat is ${box?.width} by ${box?.height} pixels`);
}

/** The extension's other pages, once its panel has a model: all ask that one, and it stays when the panel closes. */
async function clients(panel: Page): Promise<void> {
  const context = panel.context();
  const popup = await context.newPage();
  await popup.goto(panel.url().replace('panel.html', 'popup.html'));
  await popup.waitForFunction(
    async () => (await chrome.runtime.getContexts({ contextTypes: ['OFFSCREEN_DOCUMENT'] })).length === 1,
  );
  await panel.close();
  const site = 'http://page.invalid/';
  await context.route(site, (route) =>
    route.fulfill({ contentType: 'text/html', body: '<p>the lion was in the garden .</p>' }),
  );
  const page = await context.newPage();
  await page.goto(site);
  await page.evaluate(() => getSelection()!.selectAllChildren(document.body));
  await page.bringToFront();
  await popup.evaluate(() => document.querySelector<HTMLButtonElement>('#sum')!.click());
  await words(popup, '#answer');
  await popup.evaluate(async () => {
    const [tab] = await chrome.tabs.query({ active: true, currentWindow: true });
    await chrome.scripting.executeScript({ target: { tabId: tab!.id }, files: ['content.js'] });
  });
  await page.locator('splitkv-box[data-done]').waitFor({ timeout: PAGE_MS });
  await words(page, 'splitkv-box');
  const models = await popup.evaluate(async () => {
    const { held = [] } = await navigator.locks.query();
    return held.filter(({ name }) => name!.startsWith('splitkv-share')).length;
  });
  if (models !== 1) throw new Error(`the extension's pages have ${models} models, not 1`);
}

export interface Tarballs {
  readonly splitkv: string;
  readonly create: string;
}

/** Both packages, in folders of their own below `folder`. */
export function packTemplates(folder: string, splitkv: string): Tarballs {
  return { splitkv, create: packPackage(mkdtempSync(join(folder, 'create-')), 'create-splitkv') };
}

/** What a person does with a template: makes, installs, checks, builds and opens it, and asks. @throws Error what went wrong */
export async function runTemplate(name: string, { splitkv, create }: Tarballs, browser: Browser): Promise<Ran> {
  const begun = performance.now();
  const template = TEMPLATES[name]!;
  const above = mkdtempSync(join(dirname(splitkv), `template-${name}-`));
  writeFileSync(join(above, 'package.json'), JSON.stringify({ private: true, dependencies: { c: `file:${create}` } }));
  run('npm', ['install', '--no-audit', '--no-fund', '--loglevel=error'], above);
  const model = ['--model', template.model ?? MODEL, '--package', `file:${splitkv}`];
  run('npx', ['--no-install', 'create-splitkv', 'my app', '--template', name, '--install', ...model], above);
  const folder = join(above, 'my app');
  cpSync(resolve('models/tiny-gqa'), join(folder, template.public, 'models/tiny-gqa'), { recursive: true });
  if (name === 'rag') {
    const main = join(folder, 'src/main.ts');
    writeFileSync(main, readFileSync(main, 'utf8').replace('BAAI/bge-small-en-v1.5', MODEL));
  }
  if (name === 'extension') {
    // Nobody clicks on an icon, which gives the right to the page.
    const manifest = join(folder, 'extension/manifest.json');
    const given = JSON.parse(readFileSync(manifest, 'utf8')) as object;
    writeFileSync(manifest, JSON.stringify({ ...given, host_permissions: ['http://page.invalid/*'] }));
  }
  const { name: called, scripts } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
    name: string;
    scripts: Record<string, string>;
  };
  if (called !== 'my-app' || !existsSync(join(folder, '.gitignore'))) throw new Error('not the name, or no .gitignore');
  for (const script of ['typecheck', 'build']) if (script in scripts) run('npm', ['run', script], folder);
  if (name === 'node-server') await startAt(folder);
  const site = await serve(folder, template.serve, browser);
  const page = await site.open();
  const errors: string[] = [];
  page.on('pageerror', ({ message }) => errors.push(message));
  try {
    await page.goto(`${site.url}${name === 'extension' ? 'panel.html' : ''}`);
    await (template.ask ?? chat)(page);
    if (errors.length > 0) throw new Error('the page had errors');
  } catch (error) {
    throw new Error([error instanceof Error ? error.message : String(error), ...errors].join('\n'), { cause: error });
  } finally {
    await page.close();
    await site.close();
  }
  return { seconds: (performance.now() - begun) / 1000, complaints: [] };
}

/** `npm start`, with the port as an argument. */
async function startAt(folder: string): Promise<void> {
  const port = await freePort();
  const lines = [
    'process.env.PORT = process.argv[2];',
    `process.env.API_PORT = '${port}';`,
    "await import('./server.js');",
  ];
  writeFileSync(join(folder, 'start_at.js'), lines.join('\n'));
}
