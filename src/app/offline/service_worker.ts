/**
 * A page's service worker: what the page is made of is taken from the network, and kept for when there is none. One script without
 * imports, so that it can be copied to where the page is, or brought in by `importScripts`. Models aren't its business: `load` keeps them.
 */

/** What a page sends it: keep these. The port is told how many are kept. */
export interface KeepRequest {
  readonly type: 'splitkv-keep';
  readonly urls: readonly string[];
}

/** Of ServiceWorkerGlobalScope what is used here: its types don't go with those of pages. */
interface Scope {
  addEventListener(type: 'install' | 'activate', listener: (event: Waiting) => void): void;
  addEventListener(type: 'fetch', listener: (event: Fetching) => void): void;
  addEventListener(type: 'message', listener: (event: Waiting & MessageEvent) => void): void;
  skipWaiting(): Promise<void>;
  readonly clients: { claim(): Promise<void> };
  readonly location: Location;
}
interface Waiting {
  waitUntil(work: Promise<unknown>): void;
}
interface Fetching extends Waiting {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}

const scope = globalThis as unknown as Scope;
const KEPT = 'splitkv-pages-1';
/** What a page is made of. What scripts ask for themselves is theirs to keep, but for WebAssembly. */
const PARTS: readonly RequestDestination[] = ['document', 'script', 'style', 'font', 'image', 'manifest', 'worker'];
/** Of a file that is kept, a network that is this slow is none. */
const SLOW_MS = 4000;
/** The oldest go: builds name their files anew each time. */
const MOST_FILES = 400;

scope.addEventListener('install', (event) => event.waitUntil(scope.skipWaiting()));
scope.addEventListener('activate', (event) => event.waitUntil(scope.clients.claim()));

scope.addEventListener('fetch', (event) => {
  const { request } = event;
  const isPart = PARTS.includes(request.destination) || new URL(request.url).pathname.endsWith('.wasm');
  if (!isPart || request.method !== 'GET' || request.headers.has('range')) return;
  const coming = fetch(request);
  // It is kept though the page may have had the kept one by then.
  event.waitUntil(coming.then((response) => keep(request.url, response.clone())).catch(() => {}));
  event.respondWith(answer(request, coming));
});

async function answer(request: Request, coming: Promise<Response>): Promise<Response> {
  const kept = await (await caches.open(KEPT)).match(request.url, { ignoreVary: true });
  if (!kept) return coming;
  let late: ReturnType<typeof setTimeout> | undefined;
  const slow = new Promise<Response>((resolve) => {
    late = setTimeout(() => resolve(kept), SLOW_MS);
  });
  // A page that is gone is gone; a script that isn't there any more belongs to a page that is older than the server's.
  const worst = request.destination === 'document' ? 500 : 400;
  const usable = coming.then(
    (response) => (response.status < worst ? response : kept),
    () => kept,
  );
  return Promise.race([usable, slow]).finally(() => clearTimeout(late));
}

/** A server's error, a redirected page, and what the server forbids to store aren't kept. */
async function keep(url: string, response: Response): Promise<boolean> {
  const { ok, redirected, type, headers } = response;
  if (!ok || redirected || type === 'opaque' || /\bno-store\b/i.test(headers.get('cache-control') ?? '')) return false;
  const cache = await caches.open(KEPT);
  await cache.put(url, response);
  const files = await cache.keys();
  for (const file of files.slice(0, Math.max(0, files.length - MOST_FILES))) await cache.delete(file);
  return true;
}

scope.addEventListener('message', (event) => {
  const { type, urls } = (event.data ?? {}) as Partial<KeepRequest>;
  if (type !== 'splitkv-keep' || !Array.isArray(urls)) return;
  const keepAll = async (): Promise<void> => {
    // What the page asks for from now on comes by here.
    await scope.clients.claim();
    const seen = new Set<string>(urls);
    let kept = 0;
    for (let next = [...seen]; next.length > 0;) {
      const files = await Promise.all(next.map(fileOf));
      kept += files.filter((file) => file !== undefined).length;
      next = [...new Set(files.flatMap((file) => file ?? []))].filter((url) => !seen.has(url));
      for (const url of next) seen.add(url);
    }
    event.ports[0]?.postMessage(kept);
  };
  event.waitUntil(keepAll());
});

/** Keeps a file; the scripts that it imports, on demand too. Undefined where it isn't kept. */
async function fileOf(url: string): Promise<string[] | undefined> {
  const cache = await caches.open(KEPT);
  try {
    const response = (await cache.match(url, { ignoreVary: true })) ?? (await fetch(url));
    const copy = response.clone();
    if (!(await cache.match(url, { ignoreVary: true })) && !(await keep(url, response))) return undefined;
    if (!/javascript/.test(copy.headers.get('content-type') ?? '')) return [];
    const found = (await copy.text()).matchAll(/\b(?:from|import)\s*\(?\s*(["'`])(\.{1,2}\/[^"'`$]+)\1/g);
    // Node's parts of this library would never be asked for.
    return [...found].map(([, , path]) => new URL(path!, url).href).filter((path) => !/splitkv-node/.test(path));
  } catch {
    return undefined;
  }
}
