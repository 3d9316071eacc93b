import type { Browser } from 'playwright-core';
import { type AdapterEntry, differentGpus } from '../../app/shared/adapter_list.js';
import type { Given, HostCalls, HostEvent, PlainPlanOptions } from '../../app/host_protocol.js';
import type { Hearing } from '../../app/shared/model_calls.js';
import { abortedError, internalError, messageOf, SplitkvError, throwIfAborted, withAbort } from '../../base/errors.js';
import type { KvFolder } from '../../engine/contracts/kv_folder.js';
import type { AdaptersMeasure, PlanReport } from '../../index.js';
import { launchChrome } from './chrome.js';
import { lacksSandbox } from './find_chrome.js';
import type { HostRequest, ModelHost, Telling } from './node_host.js';
import { type PageServer, startPageServer } from '../page_server.js';

const START_TIMEOUT_MS = 60_000;
/** The page says every second that it lives; loading may keep it busy for a while. */
const SILENCE_TIMEOUT_MS = 120_000;

/** A page of headless Chrome with the library, and a model served to it. */
export interface Session {
  readonly modelUrl: string;
  readonly browser: Browser;
  /** One of the page's calls; whatever happens to the page meanwhile becomes an error. */
  ask<Name extends keyof HostCalls>(
    name: Name,
    hearing: Hearing,
    ...given: Given<Name>
  ): Promise<Awaited<ReturnType<HostCalls[Name]>>>;
  close(): Promise<void>;
}

/**
 * Loads the model in a page of headless Chrome.
 * @param server one that serves the page and the model already; it stays open
 */
export async function openChromeHost(request: HostRequest, server?: PageServer): Promise<ModelHost> {
  const { ask, browser, modelUrl, close } = await openSession(request.model, request, server);
  try {
    await request.onBrowser?.(browser);
    // The browser's profile is thrown away with it, so keeping the weights in it would be for nothing.
    const { kvDir } = request.options;
    const far = typeof kvDir === 'object' && { kvDir: { name: kvDir.name } as KvFolder };
    const info = await ask('open', {}, modelUrl, { ...request.options, ...far, cache: false });
    return {
      info,
      generate: (...call) => ask('generate', ...call),
      generateMany: (...call) => ask('generateMany', ...call),
      turn: (...call) => ask('turn', ...call),
      logits: (...call) => ask('logits', ...call),
      prefix: (...call) => ask('prefix', ...call),
      kept: (...call) => ask('kept', ...call),
      stats: () => ask('stats', {}),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** What some work in a page without a model gives; the page is closed after it. */
async function inPage<T>(model: string, telling: Telling, work: (session: Session) => Promise<T>): Promise<T> {
  const session = await openSession(model, telling);
  try {
    return await work(session);
  } finally {
    await session.close();
  }
}

/** The adapters that Chrome gives for its two power preferences, and where `measures` says so what those that are different GPUs measured. */
export const chromeAdapters = (
  signal: AbortSignal,
  onProgress: (line: string) => void,
  measures: boolean,
): Promise<{ readonly adapters: AdapterEntry[]; readonly measure: AdaptersMeasure | undefined }> =>
  inPage('.', { signal, onProgress, onWarning: () => {} }, async ({ ask }) => {
    const adapters = await ask('adapters', {});
    const preferences = differentGpus(adapters).map(({ request }) => request as GPUPowerPreference);
    return { adapters, measure: measures ? await ask('measure', {}, preferences) : undefined };
  });

export const planInChrome = (request: Omit<HostRequest, 'options'>, options: PlainPlanOptions): Promise<PlanReport> =>
  inPage(request.model, request, ({ ask, modelUrl }) => ask('plan', {}, modelUrl, options));

/**
 * @param shared a server that serves the model, too; it stays
 * @param browser one that runs already, and goes on running; default: one is started
 */
export async function openSession(
  model: string,
  telling: Telling & Partial<Pick<HostRequest, 'options'>>,
  shared?: PageServer,
  browser?: Browser,
): Promise<Session> {
  const { signal, onWarning } = telling;
  throwIfAborted(signal, 'starting Chrome');
  if (lacksSandbox() && /^(https?:|hf:)/.test(model)) {
    onWarning(`Chrome has no sandbox as root, and ${model} is a model of another site: use another user's account`);
  }
  const server = shared ?? (await startPageServer(model));
  let own: Browser | undefined;
  const close = async (): Promise<void> => {
    await own?.close().catch(() => {});
    if (!shared) await server.close();
  };
  try {
    const used = browser ?? (own = (await launchChrome(signal)).browser);
    return await withAbort(openPage(used, server, close, telling), signal, 'opening the page in Chrome');
  } catch (error) {
    await close();
    throw error;
  }
}

async function openPage(
  browser: Browser,
  server: PageServer,
  closeAll: () => Promise<void>,
  { signal, onProgress, onWarning, options }: Parameters<typeof openSession>[1],
): Promise<Session> {
  const page = await browser.newPage();
  let closing = false;
  let silence: NodeJS.Timeout | undefined;
  let die: (error: SplitkvError) => void = () => {};
  const death = new Promise<never>((_, reject) => (die = reject));
  death.catch(() => {});
  const lost = (why: string): void => {
    if (!closing) die(internalError(`the page in Chrome ${why}`));
  };
  const heard = (): void => {
    clearTimeout(silence);
    silence = setTimeout(() => lost(`said nothing for ${SILENCE_TIMEOUT_MS / 1000} s`), SILENCE_TIMEOUT_MS);
  };
  page.on('crash', () => lost('crashed (often: out of memory)'));
  page.on('close', () => lost('was closed'));
  browser.on('disconnected', () => lost('is gone: Chrome ended'));
  page.on('pageerror', (error) => lost(`failed: ${error.message}`));
  page.on('response', (response) => {
    if (response.status() < 400 || response.request().resourceType() !== 'script') return;
    lost(`couldn't load ${new URL(response.url()).pathname} (status ${response.status()})`);
  });
  page.on('console', (message) => {
    // A file that isn't there is the loader's to judge: some are optional.
    if (message.type() !== 'error' || message.text().startsWith('Failed to load resource')) return;
    onWarning(`Chrome: ${message.text()}`);
  });

  const abort = (): void => void page.evaluate(() => window.splitkvHost?.abort()).catch(() => {});
  signal.addEventListener('abort', abort);
  let heardBy: Hearing = {};
  const session: Session = {
    modelUrl: server.modelUrl,
    browser,
    async ask(name, hearing, ...given) {
      throwIfAborted(signal, 'the run');
      heardBy = hearing;
      hearing.signal?.addEventListener('abort', abort);
      try {
        const asked = page.evaluate(([call, values]) => window.splitkvHost.ask(call, values), [name, given] as const);
        // An error of evaluate itself (a crash, say) is told by `death`, which knows why; it follows at once.
        const outcome = await Promise.race([asked.catch((error: unknown) => died(error, death)), death]);
        if (outcome.ok) return outcome.value as never;
        if (outcome.code === 'aborted') throw abortedError('the run', signal);
        throw Object.assign(new SplitkvError(outcome.code, outcome.message), outcome.stack && { stack: outcome.stack });
      } finally {
        hearing.signal?.removeEventListener('abort', abort);
      }
    },
    async close() {
      closing = true;
      clearTimeout(silence);
      signal.removeEventListener('abort', abort);
      // Lets the page free its GPU memory in order, unless it no longer answers.
      const freed = page.evaluate(() => window.splitkvHost.ask('close', [])).catch(() => {});
      await Promise.race([freed, new Promise((resolve) => setTimeout(resolve, 3000).unref())]);
      await page.close().catch(() => {});
      await closeAll();
    },
  };
  await page.exposeFunction('splitkvEvent', (event: HostEvent) => {
    heard();
    if (event.kind === 'progress') onProgress(event.line, event.part);
    else if (event.kind === 'warning') onWarning(event.message);
    else if (event.kind === 'text') heardBy.onText?.(event.piece);
    else if (event.kind === 'kv') return writeKv(options?.kvDir as KvFolder, event);
    else if (event.kind === 'row') heardBy.onRow?.(event.position, fromBase64(event.base64));
  });
  await Promise.race([
    death,
    page
      .goto(`${server.url}host.html`, { timeout: START_TIMEOUT_MS })
      .then(() =>
        page.waitForFunction(() => window.splitkvHost !== undefined, undefined, { timeout: START_TIMEOUT_MS }),
      ),
  ]);
  heard();
  return session;
}

const writeKv = (kv: KvFolder, { call, name, base64 }: HostEvent & { kind: 'kv' }) =>
  kv[call]?.(name, new Uint8Array(Buffer.from(base64, 'base64')));

/** Gives the page's own end a moment to be told, otherwise wraps what evaluate said. */
async function died(error: unknown, death: Promise<never>): Promise<never> {
  await Promise.race([death, new Promise((resolve) => setTimeout(resolve, 500))]);
  const [line] = messageOf(error).split('\n');
  throw internalError(`the page in Chrome failed: ${line}`, error);
}

function fromBase64(text: string): Float32Array {
  const bytes = Buffer.from(text, 'base64');
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
}
