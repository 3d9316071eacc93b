import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { type Browser, chromium, type Page } from '@playwright/test';
import { QUESTIONS } from '../../models/example.js';
import { chromeFlags, findChrome } from '../../src/cli/hosts/find_chrome.js';
import { serveFiles } from '../../src/server/http/static_files.js';
import { freePort } from '../support/free_port.js';
import type { App } from './apps.js';

/** Well above what a slow machine needs, for an install or a build. */
const COMMAND_MS = 300_000;
const PAGE_MS = 120_000;
/** Pixels of the window, and the least that are the chat's. */
const WIDTHS = [
  [1000, 500],
  [390, 200],
] as const;

export interface Ran {
  /** Seconds for installing, building and answering. */
  readonly seconds: number;
  /** Told in the console as errors, though all went well. */
  readonly complaints: readonly string[];
}

/** A package as it would be published, splitkv by default, of the build that there is; alone in the folder. Returns the path of the tarball. */
export function packPackage(folder: string, source = '.'): string {
  run('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder], resolve(source));
  return join(
    folder,
    readdirSync(folder).find((name) => name.endsWith('.tgz'))!,
  );
}

/**
 * Makes the app in a folder of its own, installs the package and what the app needs, builds, serves and asks it, with the model in the
 * page and again in a worker.
 * @throws Error what failed, with the output of a command that did
 */
export async function runApp(name: string, app: App, tarball: string, browser: Browser): Promise<Ran> {
  const begun = performance.now();
  const folder = mkdtempSync(join(dirname(tarball), `${name}-`));
  write(folder, {
    'package.json': JSON.stringify({
      name: 'app',
      private: true,
      type: 'module',
      dependencies: { ...app.dependencies, splitkv: `file:${tarball}` },
    }),
    ...app.files,
  });
  run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'], folder);
  cpSync(resolve('models/tiny-gqa'), join(folder, app.public ?? '.', 'models/tiny-gqa'), { recursive: true });
  if (app.copies !== undefined) {
    const dist = join(folder, 'node_modules/splitkv/dist');
    cpSync(dist, join(folder, app.copies), {
      recursive: true,
      filter: (path) => path === dist || path.endsWith('.js'),
    });
  }
  if (app.build !== undefined) run('npx', ['--no-install', ...app.build.split(' ')], folder);
  const complaints: string[] = [];
  const site = await serve(folder, app.serve, browser);
  try {
    for (const workers of [false, true]) complaints.push(...(await ask(await site.open(), site.url, workers)));
  } finally {
    await site.close();
  }
  return { seconds: (performance.now() - begun) / 1000, complaints: [...new Set(complaints)] };
}

function write(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
}

const environment = (folder: string): NodeJS.ProcessEnv => {
  const { NODE_ENV: _, ...rest } = process.env;
  const path = [join(folder, 'node_modules/.bin'), process.env['PATH'] ?? ''].join(delimiter);
  return { ...rest, PATH: path, NEXT_TELEMETRY_DISABLED: '1' };
};

export function run(command: string, args: readonly string[], folder: string): void {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd: folder,
    encoding: 'utf8',
    timeout: COMMAND_MS,
    env: environment(folder),
  });
  if (status === 0) return;
  const output = `${stdout}\n${stderr}\n${error?.message ?? ''}`.trim().split('\n').slice(-30).join('\n');
  throw new Error(`${command} ${args.join(' ')}: exit code ${status}\n${output}`);
}

export interface Site {
  /** Ends with a slash. */
  readonly url: string;
  open(): Promise<Page>;
  close(): Promise<void>;
}

export async function serve(folder: string, how: App['serve'], browser: Browser): Promise<Site> {
  if ('extension' in how) return openExtension(join(folder, how.extension));
  const open = async (): Promise<Page> => (await browser.newContext()).newPage();
  if ('command' in how) return { ...(await startServer(how.command, folder)), open };
  const files = serveFiles('/', join(folder, how.folder));
  const server = createServer((request, response) => {
    if (/^\/(\?.*)?$/.test(request.url ?? '')) request.url = '/index.html';
    files(request, response, () => response.writeHead(404).end());
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, open, close };
}

async function startServer(command: string, folder: string): Promise<Omit<Site, 'open'>> {
  const port = await freePort();
  const [program, ...args] = command.split(' ');
  const server = spawn(program!, [...args, String(port)], {
    cwd: folder,
    env: environment(folder),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true, // with what it starts itself
  });
  let output = '';
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
  const ended = new Promise<void>((done) => server.on('exit', () => done()));
  const close = async (): Promise<void> => {
    if (server.exitCode === null) process.kill(-server.pid!);
    await ended;
  };
  const url = `http://127.0.0.1:${port}/`;
  for (let tries = 0; ; tries++) {
    const up = await fetch(url).then(
      ({ ok }) => ok,
      () => false,
    );
    if (up) return { url, close };
    if (tries > 600 || server.exitCode !== null) {
      await close();
      throw new Error(`${command}: didn't serve\n${output}`);
    }
    await new Promise((later) => setTimeout(later, 100));
  }
}

const adapter = (): 'hardware' | 'software' =>
  process.env['SPLITKV_CHROME_ADAPTER'] === 'hardware' ? 'hardware' : 'software';

export const launch = (): Promise<Browser> =>
  chromium.launch({ executablePath: findChrome()!, args: chromeFlags(adapter()) });

export async function openExtension(folder: string): Promise<Site> {
  const context = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), 'splitkv-profile-')), {
    executablePath: findChrome()!,
    args: [...chromeFlags(adapter()), `--disable-extensions-except=${folder}`, `--load-extension=${folder}`],
    ignoreDefaultArgs: ['--disable-extensions'],
  });
  const probe = await context.newPage();
  // An unpacked extension's id is made of its path.
  const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(folder)));
  const id = [...bytes.subarray(0, 16)].map((byte) => String.fromCharCode(97 + (byte >> 4), 97 + (byte & 15))).join('');
  await probe.close();
  return { url: `chrome-extension://${id}/`, open: () => context.newPage(), close: () => context.close() };
}

/** Loads the page and asks its chat a question. Returns what the console told as errors. @throws Error what went wrong */
async function ask(page: Page, url: string, workers: boolean): Promise<string[]> {
  const complaints: string[] = [];
  const failures: string[] = [];
  page.on('pageerror', ({ message }) => failures.push(message));
  page.on('console', (message) => {
    // Optional files of a model that it hasn't, and the icon that no page asked for.
    const missing =
      message.text().startsWith('Failed to load resource') && /\/(models\/|favicon)/.test(message.location().url);
    if (message.type() === 'error' && !missing) complaints.push(`${message.text()} (${message.location().url})`);
  });
  const chat = page.locator('splitkv-chat');
  const problem = chat.getByRole('alert');
  const { question, answer } = QUESTIONS[2];
  try {
    await page.goto(`${url}${url.startsWith('http') ? '' : 'index.html'}${workers ? '?workers' : ''}`);
    const failed = async (): Promise<never> => {
      await problem.waitFor({ timeout: PAGE_MS * 2 });
      await problem.locator('summary').click();
      throw new Error((await problem.innerText()).replace(/\s*\n\s*/g, ' | '));
    };
    const works = async (): Promise<void> => {
      await chat.getByText('Ready', { exact: true }).waitFor({ timeout: PAGE_MS });
      await chat.getByRole('textbox', { name: 'Message' }).fill(question);
      await page.keyboard.press('Enter');
      await chat.getByRole('article', { name: 'Answer' }).getByText(answer).waitFor({ timeout: PAGE_MS });
      await page.waitForFunction(() => document.querySelector('splitkv-chat')?.state === 'ready');
    };
    const failing = failed();
    failing.catch(() => {});
    await Promise.race([works(), failing]);
    if (workers && page.workers().length !== 1) throw new Error(`${page.workers().length} workers run, not 1`);
    const told = page.locator('output');
    if ((await told.count()) > 0 && (await told.innerText()).trim() !== answer)
      throw new Error(`the app heard '${await told.innerText()}'`);
    for (const [width, least] of WIDTHS) {
      await page.setViewportSize({ width, height: 800 });
      const box = await chat.boundingBox();
      if (!box || box.width < least || box.width > width || box.height < 250)
        throw new Error(`in ${width} pixels the chat is ${box?.width} wide and ${box?.height} high`);
    }
    if (failures.length > 0) throw new Error('the page had errors');
    return complaints;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new Error([`${workers ? 'with' : 'without'} workers: ${message}`, ...failures, ...complaints].join('\n'), {
      cause: error,
    });
  } finally {
    await page.close();
  }
}
