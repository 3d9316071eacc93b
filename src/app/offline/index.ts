/**
 * Room: `splitkv/offline`: a page that opens without a network. service_worker.ts is the page's service worker, this what
 * the page calls. Read service_worker.ts next.
 */

import type { KeepRequest } from './service_worker.js';

/**
 * Registers the page's service worker, which is or imports `splitkv/service-worker`, and lets it keep what the page is made of so far: its
 * own address, scripts with all that they import (on demand, too), styles, fonts and images, of this origin and of others that allow it. What comes
 * later is kept as it comes. The model is kept by `load`.
 *
 * @example
 * ```ts
 * import { keepOffline } from 'splitkv/offline';
 *
 * // sw.js: a copy of the package's dist/splitkv-service_worker.js
 * console.log(await keepOffline('sw.js'), 'files are kept');
 * ```
 *
 * @param worker its URL, in the page's folder or above it
 * @returns how many files are kept; undefined where the browser has no service workers, or not on such a page (http)
 * @throws TypeError or DOMException where the script isn't there or may not run
 */
export async function keepOffline(worker: string | URL): Promise<number | undefined> {
  const { serviceWorker } = navigator as Partial<Pick<Navigator, 'serviceWorker'>>;
  if (!serviceWorker) return undefined;
  await serviceWorker.register(worker);
  const { active } = await serviceWorker.ready;
  const ask = (urls: readonly string[]): Promise<number> =>
    new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.addEventListener('message', ({ data }: MessageEvent<number>) => {
        port1.close();
        resolve(data);
      });
      port1.start();
      const request: KeepRequest = { type: 'splitkv-keep', urls };
      active!.postMessage(request, [port2]);
    });
  await ask([]); // from here on it sees what the page asks for
  const loaded = performance.getEntriesByType('resource') as PerformanceResourceTiming[];
  const parts = loaded.filter(({ initiatorType }) => initiatorType !== 'fetch' && initiatorType !== 'xmlhttprequest');
  return ask([...new Set([location.href.replace(/#.*$/, ''), ...parts.map(({ name }) => name)])]);
}
