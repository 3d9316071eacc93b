import { readFileSync } from 'node:fs';
import type { Browser } from 'playwright-core';

export interface MemoryReport {
  /** What the resident sets are; where they can't be measured there are none. */
  readonly measured: string;
  /** Resident before loading began. */
  readonly before_bytes?: number;
  /** Highest resident set until the last weight was read; kernels aren't compiled yet then. */
  readonly loading_peak_bytes?: number;
  /** Highest resident set of the whole run: loading, compiling and generating. */
  readonly peak_bytes?: number;
  /** A page's JavaScript memory (V8's heap and ArrayBuffers, dead ones included) before and at most while loading, sampled. */
  readonly javascript_before_bytes?: number;
  readonly javascript_peak_bytes?: number;
  /** Chrome's GPU process, where WebGPU's own memory lies. */
  readonly gpu_process_peak_bytes?: number;
}

/** Follows the memory of the process that loads a model. */
export interface MemoryMeter {
  /** Called with every step of loading; in Node done on return. */
  sample(): void;
  report(): Promise<MemoryReport>;
}

/** This process. Make it before loading, with the code already imported. */
export function nodeMemoryMeter(): MemoryMeter {
  const before = process.memoryUsage.rss();
  // maxRSS lives on over exec, so on Linux it may be what the parent process once was.
  const peak = (): number => procStatus('self')?.peak ?? process.resourceUsage().maxRSS * 1024;
  let loading: number | undefined;
  return {
    sample: () => {
      loading = Math.max(loading ?? 0, peak());
    },
    report: () =>
      Promise.resolve({
        measured: 'resident set of the Node process',
        before_bytes: before,
        ...(loading !== undefined && { loading_peak_bytes: loading }),
        peak_bytes: Math.max(loading ?? 0, peak()),
      }),
  };
}

interface ChromeProcess {
  readonly type: string;
  readonly id: number;
}

interface HeapUsage {
  readonly usedSize: number;
  readonly embedderHeapUsedSize?: number;
  readonly backingStorageSize?: number;
}

/** The page's JavaScript memory, as V8 tells it, and, by /proc on Linux, the resident set of its renderer process. */
export async function chromeMemoryMeter(browser: Browser): Promise<MemoryMeter> {
  const session = await browser.newBrowserCDPSession();
  const status = async (type: string): Promise<Map<number, Status>> => {
    const { processInfo } = (await session.send('SystemInfo.getProcessInfo')) as { processInfo: ChromeProcess[] };
    const found = new Map<number, Status>();
    for (const { id } of processInfo.filter((entry) => entry.type.toLowerCase() === type)) {
      const read = procStatus(id);
      if (read) found.set(id, read);
    }
    return found;
  };
  const [open] = browser.contexts().flatMap((context) => context.pages());
  const pageSession = await open?.context().newCDPSession(open);
  /** Undefined in a Chrome that doesn't count ArrayBuffers. */
  const javascript = async (): Promise<number | undefined> => {
    const usage = (await pageSession?.send('Runtime.getHeapUsage')) as HeapUsage | undefined;
    if (usage?.backingStorageSize === undefined) return undefined;
    return usage.usedSize + (usage.embedderHeapUsedSize ?? 0) + usage.backingStorageSize;
  };
  const javascriptBefore = await javascript();
  let javascriptPeak = javascriptBefore;
  // Chrome keeps a spare renderer; the one that grew most is the page's.
  const before = await status('renderer');
  const page = async (): Promise<{ readonly before: number; readonly peak: number } | undefined> => {
    const now = [...(await status('renderer'))].map(([id, { peak }]) => ({
      before: before.get(id)?.resident ?? 0,
      peak,
    }));
    return now.sort((a, b) => b.peak - b.before - (a.peak - a.before))[0];
  };
  let loading: number | undefined;
  let sampling: Promise<void> | undefined;
  return {
    sample: () => {
      sampling ??= Promise.all([page(), javascript()])
        .then(([found, used]) => {
          if (found) loading = Math.max(loading ?? 0, found.peak);
          if (used !== undefined) javascriptPeak = Math.max(javascriptPeak ?? 0, used);
        })
        .catch(() => {}) // a page that is gone fails the load, which says more
        .finally(() => (sampling = undefined));
    },
    report: async () => {
      await sampling;
      const heap = {
        ...(javascriptBefore !== undefined && { javascript_before_bytes: javascriptBefore }),
        ...(javascriptPeak !== undefined && { javascript_peak_bytes: javascriptPeak }),
      };
      const found = await page();
      if (!found) return { measured: 'resident set not available (needs /proc)', ...heap };
      const gpu = [...(await status('gpu')).values()].map(({ peak }) => peak);
      return {
        measured: "resident set of the page's renderer process, Chrome's own code included",
        ...heap,
        before_bytes: found.before,
        ...(loading !== undefined && { loading_peak_bytes: loading }),
        peak_bytes: Math.max(loading ?? 0, found.peak),
        ...(gpu.length > 0 && { gpu_process_peak_bytes: Math.max(...gpu) }),
      };
    },
  };
}

interface Status {
  /** Bytes resident now, and at most so far; the kernel's own peak may fall a little, so keep the largest seen. */
  readonly resident: number;
  readonly peak: number;
}

function procStatus(id: number | 'self'): Status | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${id}/status`, 'utf8');
  } catch {
    return undefined; // not Linux, or the process has ended
  }
  const value = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1]) * 1024;
  const [resident, peak] = [value('VmRSS'), value('VmHWM')];
  return resident > 0 && peak > 0 ? { resident, peak } : undefined;
}
