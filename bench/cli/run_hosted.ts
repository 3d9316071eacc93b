import type { Browser } from 'playwright-core';
import type { SuiteDocument } from '../document.js';
import type { SuiteRequest, SuiteRun } from '../run_suite.js';
import { openSession } from '../../src/cli/hosts/chrome_host.js';
import type { Terminal } from '../../src/cli/command.js';
import { type PageServer, startPageServer } from '../../src/cli/page_server.js';
import { readEnvironment } from './environment.js';

/** The page that the command line runs in, as a checkout serves it (pages/host.ts). */
export interface BenchCalls {
  bench(hearing: { readonly signal: AbortSignal }, request: SuiteRequest): Promise<SuiteRun>;
}

type BenchAsk = (name: 'bench', ...call: Parameters<BenchCalls['bench']>) => Promise<SuiteRun>;

export interface BenchPlace {
  readonly host: 'node' | 'chrome';
  /** The model's path or URL; '.' where the suite needs none. */
  readonly model: string;
  /** Folders that the page needs beside the model, by the paths that they are served under. */
  readonly folders?: Readonly<Record<string, string>>;
  /** Chrome that runs already; default: one is started. */
  readonly browser?: Browser | undefined;
}

/** Runs a suite in this process, or in a page of headless Chrome. */
export async function runHosted(
  request: SuiteRequest,
  { host, model, folders = {}, browser }: BenchPlace,
  terminal: Terminal,
): Promise<{ readonly document: SuiteDocument; readonly table: string; readonly failed: boolean }> {
  const onWarning = (message: string): void => terminal.note(`splitkv: warning: ${message}`);
  const { run, chrome } =
    host === 'chrome' ? await runInChrome(request, { model, folders, browser }, terminal, onWarning) : await runHere();
  const { adapters, results, measurements, table, leftOut, failed = false } = run;
  const environment = await readEnvironment(host, adapters, chrome);
  const document = { suite: request.suite, environment, results, measurements, ...(leftOut && { left_out: leftOut }) };
  return { document, table, failed };

  async function runHere(): Promise<{ readonly run: SuiteRun; readonly chrome?: string }> {
    const { runSuite } = await import('../run_suite.js');
    const { signal } = terminal;
    return { run: await runSuite(request, { signal, onProgress: (line) => terminal.progress(line), onWarning }) };
  }
}

async function runInChrome(
  request: SuiteRequest,
  { model, folders, browser }: Omit<BenchPlace, 'host'>,
  terminal: Terminal,
  onWarning: (message: string) => void,
): Promise<{ readonly run: SuiteRun; readonly chrome: string }> {
  const server = await startPageServer(model, 0, folders);
  try {
    return await runInPage(request, server, browser, terminal, onWarning);
  } finally {
    await server.close();
  }
}

async function runInPage(
  request: SuiteRequest,
  server: PageServer,
  browser: Browser | undefined,
  terminal: Terminal,
  onWarning: (message: string) => void,
): Promise<{ readonly run: SuiteRun; readonly chrome: string }> {
  const { signal, progress } = terminal;
  const session = await openSession('', { signal, onProgress: (line) => progress(line), onWarning }, server, browser);
  try {
    const run = await (session.ask as BenchAsk)('bench', { signal }, atUrl(request, session.modelUrl));
    return { run, chrome: session.browser.version() };
  } finally {
    await session.close();
  }
}

/** The request as the page can follow it. The browser's profile is thrown away: keeping weights in it would be for nothing. */
function atUrl(request: SuiteRequest, model: string): SuiteRequest {
  if (request.suite === 'kernels') return request;
  if (request.suite === 'check') return { ...request, model, load: { ...request.load, cache: false } };
  if (request.suite === 'gpu') return { ...request, models: [model], load: { ...request.load, cache: false } };
  if (request.suite === 'serve') return { ...request, model, options: { ...request.options, cache: false } };
  if (request.suite === 'decode' || request.suite === 'prefill') {
    return { ...request, model, loads: request.loads.map((options) => ({ ...options, cache: false })) };
  }
  return { ...request, model };
}
