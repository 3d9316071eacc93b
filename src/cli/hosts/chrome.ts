import type { Browser, Page } from 'playwright-core';
import { noWebGpuError, usageError, withAbort } from '../../base/errors.js';
import { chromeFlags, findChrome, mayHaveGpu } from './find_chrome.js';

type ChromeAdapter = 'hardware' | 'software';

export interface Chrome {
  readonly browser: Browser;
  /** Whether WebGPU runs on a GPU or on the CPU. */
  readonly adapter: ChromeAdapter;
}

/**
 * Starts a headless Chrome or Chromium with WebGPU: on a GPU where it offers one, otherwise on the CPU (SwiftShader).
 * SPLITKV_CHROME_ADAPTER=software|hardware decides instead of trying.
 * Closing it on Ctrl-C is left to the caller: Playwright's own handlers would end this process with its work untold.
 * @throws SplitkvError `no_webgpu` when there is no browser or it doesn't start, `aborted` when the signal fires first
 */
export async function launchChrome(signal?: AbortSignal): Promise<Chrome> {
  const { chromium } = await import('playwright-core').catch((cause: unknown) => {
    throw noWebGpuError("Chrome needs the npm package 'playwright-core': npm install playwright-core", cause);
  });
  let executablePath: string | undefined;
  try {
    executablePath = findChrome();
  } catch (cause) {
    throw noWebGpuError((cause as Error).message, cause);
  }
  if (executablePath === undefined) {
    throw noWebGpuError(
      'no Chrome or Chromium was found; install one (npx playwright install chromium), or set CHROME_PATH to its binary',
    );
  }
  const path = executablePath;
  const launch = async (adapter: ChromeAdapter): Promise<Browser> => {
    const launching = chromium.launch({
      executablePath: path,
      headless: true,
      args: chromeFlags(adapter),
      timeout: 60_000,
      handleSIGINT: false,
      handleSIGTERM: false,
      handleSIGHUP: false,
    });
    try {
      return await withAbort(launching, signal, 'starting Chrome');
    } catch (cause) {
      if (signal?.aborted) {
        void launching.then((browser) => browser.close()).catch(() => {});
        throw cause;
      }
      const [line] = (cause as Error).message.split('\n');
      throw noWebGpuError(`${path} didn't start: ${line}`, cause);
    }
  };

  const forced = process.env['SPLITKV_CHROME_ADAPTER'];
  if (forced !== undefined && forced !== 'hardware' && forced !== 'software') {
    throw usageError(`SPLITKV_CHROME_ADAPTER=${forced}: expected hardware or software`);
  }
  if (forced !== 'software' && mayHaveGpu()) {
    const browser = await launch('hardware');
    if (forced === 'hardware' || (await offersGpu(browser))) return { browser, adapter: 'hardware' };
    await browser.close();
  }
  return { browser: await launch('software'), adapter: 'software' };
}

/** Whether WebGPU gives this browser an adapter that is no fallback. */
async function offersGpu(browser: Browser): Promise<boolean> {
  const page: Page = await browser.newPage();
  try {
    // WebGPU needs a secure context; nothing is fetched.
    await page.route('https://probe.invalid/', (route) =>
      route.fulfill({ contentType: 'text/html', body: '<!doctype html>' }),
    );
    await page.goto('https://probe.invalid/');
    return await page.evaluate(async () => {
      const adapter = await navigator.gpu?.requestAdapter();
      return adapter != null && adapter.info.isFallbackAdapter !== true;
    });
  } catch {
    return false;
  } finally {
    await page.close();
  }
}
