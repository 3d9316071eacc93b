import type { Browser, Page } from 'playwright-core';
import type { AdapterEntry } from '../../app/shared/adapter_list.js';
import type { HostEvent, HostPage, Outcome, PlainPlanOptions } from '../../app/host_protocol.js';
import { abortedError, messageOf, SplitkvError, throwIfAborted } from '../../base/errors.js';
import type { AdaptersMeasure, ModelInfo, PlanReport } from '../../index.js';
import { launchChrome, orAborted } from './chrome.js';
import { lacksSandbox } from './find_chrome.js';
import type { HostRequest, ModelHost } from './model_host.js';
import { type PageServer, startPageServer } from '../page_server.js';

const START_TIMEOUT_MS = 60_000;
/** The page says every second that it lives; loading may keep it busy for a while. */
const SILENCE_TIMEOUT_MS = 120_000;

type Asked = Omit<HostPage, 'abort' | 'close'>;
type Answer<Name extends keyof Asked> = Awaited<ReturnType<Asked[Name]>> extends Outcome<infer T> ? T : never;

/** A page of headless Chrome with the library, and a model served to it. */
export interface Session {
  /** Ends what is running in the page. */
  abort(): void;
  readonly modelUrl: string;
  readonly browser: Browser;
  /** Runs one call in the page; whatever happens to the page meanwhile becomes an error. */
  call<T>(body: (page: Page) => Promise<Outcome<T>>): Promise<T>;
  /** One of the page's own calls. */
  ask<Name extends keyof Asked>(name: Name, ...given: Parameters<Asked[Name]>): Promise<Answer<Name>>;
  onEvent: (event: HostEvent) => void;
  close(): Promise<void>;
}

/**
 * Loads the model in a page of headless Chrome.
 * @param server one that serves the page and the model already; it stays open
 */
export async function openChromeHost(request: HostRequest, server?: PageServer): Promise<ModelHost> {
  const session = await openSession(request.model, request.signal, request.onWarning, server);
  let onText: (piece: string) => void = () => {};
  let onRow: (position: number, row: Float32Array) => void = () => {};
  session.onEvent = (event) => {
    if (event.kind === 'progress') request.onProgress(event.line, event.part);
    else if (event.kind === 'warning') request.onWarning(event.message);
    else if (event.kind === 'text') onText(event.piece);
    else if (event.kind === 'row') onRow(event.position, fromBase64(event.base64));
  };

  let info: ModelInfo;
  try {
    await request.onBrowser?.(session.browser);
    // The browser's profile is thrown away with it, so keeping the weights in it would be for nothing.
    info = await session.ask('open', session.modelUrl, { ...request.options, cache: false });
  } catch (error) {
    await session.close();
    throw error;
  }
  return {
    info,
    async generate(prompt, feed, { signal: _, ...options }, take) {
      onText = take;
      return session.ask('generate', prompt, feed, options);
    },
    generateMany: (prompts, feed, { signal: _, ...options }) => session.ask('generateMany', prompts, feed, options),
    async turn(asked, stop, take) {
      onText = take;
      const abort = (): void => session.abort();
      stop.addEventListener('abort', abort, { once: true });
      try {
        return await session.ask('turn', asked);
      } finally {
        stop.removeEventListener('abort', abort);
      }
    },
    async logits(tokens, { all, promptLength, onRow: take }) {
      let arrived = 0;
      onRow = (position, row) => {
        arrived++;
        take(position, row);
      };
      const count = await session.ask('logits', tokens, all ?? false, promptLength);
      if (arrived !== count) {
        throw new SplitkvError('internal', `the page computed ${count} rows of logits, ${arrived} arrived`);
      }
    },
    kept: (prompt) => session.ask('kept', prompt),
    stats: () => session.ask('stats'),
    close: () => session.close(),
  };
}

/** What some work in a page without a model gives; the page is closed after it. */
async function inPage<T>(
  model: string,
  { signal, onProgress, onWarning }: Pick<HostRequest, 'signal' | 'onProgress' | 'onWarning'>,
  work: (session: Session) => Promise<T>,
): Promise<T> {
  const session = await openSession(model, signal, onWarning);
  session.onEvent = (event) => {
    if (event.kind === 'progress') onProgress(event.line);
  };
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
  inPage('.', { signal, onProgress, onWarning: () => {} }, async (session) => {
    const adapters = await session.ask('adapters');
    const preferences = adapters
      .filter(({ same_as: same }) => same === undefined)
      .map(({ request }) => request as GPUPowerPreference);
    return { adapters, measure: measures ? await session.ask('measure', preferences) : undefined };
  });

/** `planModel` in a page of headless Chrome. */
export const planInChrome = (request: Omit<HostRequest, 'options'>, options: PlainPlanOptions): Promise<PlanReport> =>
  inPage(request.model, request, (session) => session.ask('plan', session.modelUrl, options));

/**
 * @param shared a server that serves the model, too; it stays
 * @param browser one that runs already, and goes on running; default: one is started
 */
export async function openSession(
  model: string,
  signal: AbortSignal,
  onWarning: (message: string) => void,
  shared?: PageServer,
  browser?: Browser,
): Promise<Session> {
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
    if (!browser) own = (await launchChrome(signal)).browser;
    return await orAborted(
      openPage(browser ?? own!, server, close, signal, onWarning),
      signal,
      'opening the page in Chrome',
    );
  } catch (error) {
    await close();
    throw error;
  }
}

async function openPage(
  browser: Browser,
  server: PageServer,
  closeAll: () => Promise<void>,
  signal: AbortSignal,
  onWarning: (message: string) => void,
): Promise<Session> {
  const page = await browser.newPage();
  let closing = false;
  let silence: NodeJS.Timeout | undefined;
  let die: (error: SplitkvError) => void = () => {};
  const death = new Promise<never>((_, reject) => (die = reject));
  death.catch(() => {});
  const lost = (why: string): void => {
    if (!closing) die(new SplitkvError('internal', `the page in Chrome ${why}`));
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
  const session: Session = {
    modelUrl: server.modelUrl,
    browser,
    onEvent: () => {},
    abort,
    async call(body) {
      throwIfAborted(signal, 'the run');
      // An error of evaluate itself (a crash, say) is told by `death`, which knows why; it follows at once.
      const outcome = await Promise.race([body(page).catch((error: unknown) => died(error, death)), death]);
      if (outcome.ok) return outcome.value;
      if (outcome.code === 'aborted') throw abortedError('the run', signal);
      throw Object.assign(new SplitkvError(outcome.code, outcome.message), outcome.stack && { stack: outcome.stack });
    },
    ask: (name, ...given) =>
      session.call((page) =>
        page.evaluate(
          ([asked, values]) =>
            (window.splitkvHost[asked] as (...values: unknown[]) => Promise<Outcome<never>>)(...values),
          [name, given as unknown[]] as const,
        ),
      ),
    async close() {
      closing = true;
      clearTimeout(silence);
      signal.removeEventListener('abort', abort);
      // Lets the page free its GPU memory in order, unless it no longer answers.
      const freed = page.evaluate(() => window.splitkvHost.close()).catch(() => {});
      await Promise.race([freed, new Promise((resolve) => setTimeout(resolve, 3000).unref())]);
      await page.close().catch(() => {});
      await closeAll();
    },
  };
  await page.exposeFunction('splitkvEvent', (event: HostEvent) => {
    heard();
    session.onEvent(event);
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

/** Gives the page's own end a moment to be told, otherwise wraps what evaluate said. */
async function died(error: unknown, death: Promise<never>): Promise<never> {
  await Promise.race([death, new Promise((resolve) => setTimeout(resolve, 500))]);
  const [line] = messageOf(error).split('\n');
  throw new SplitkvError('internal', `the page in Chrome failed: ${line}`, { cause: error });
}

function fromBase64(text: string): Float32Array {
  const bytes = Buffer.from(text, 'base64');
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
}
