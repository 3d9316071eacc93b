/**
 * Room: where measures are kept between loads. What is measured once is here; Node keeps it in files (node_store.ts), pages
 * where their workers find it, too (page_store.ts).
 */

import { isNode } from '../../../base/platform.js';
import { sha256 } from '../../../base/math.js';

/** Where measures are kept, so that an adapter is measured once and not at each load. Failing to keep them is no error. */
export interface MeasureStore {
  /** What measures depend on besides the adapter: measures taken elsewhere aren't found. */
  readonly environment: string;
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown): Promise<void>;
}

/** Changes with what measures mean, or with how they are taken: older ones aren't found then. */
const VERSION = 3;

const taken = new Map<string, Promise<unknown>>();

/** Measures are taken one at a time: they would disturb each other. */
let queue: Promise<unknown> = Promise.resolve();

/**
 * What was measured before in this process or is in the store under the same name and subject; otherwise measures now. `undefined` isn't
 * kept: nothing could be measured this time.
 * @param fresh measures now whatever there is
 * @param isValid what else the store holds is ignored
 */
export async function measured<T>(
  store: MeasureStore,
  name: string,
  subject: unknown,
  fresh: boolean,
  measure: () => Promise<T>,
  isValid: (stored: unknown) => boolean = (stored) => stored !== undefined,
): Promise<T> {
  const key = await keyOf(store, name, subject);
  const known = fresh ? undefined : taken.get(key);
  if (known) return known as Promise<T>;
  const result = queue.then(async () => {
    const stored = fresh ? undefined : await store.get(key).catch(() => undefined);
    if (isValid(stored)) return stored as T;
    const value = await measure();
    if (value === undefined) taken.delete(key);
    else await store.set(key, value).catch(() => {});
    return value;
  });
  queue = result.catch(() => {});
  taken.set(key, result);
  result.catch(() => taken.delete(key));
  return result;
}

/** Whether `measured` would find it. */
export async function isMeasured(store: MeasureStore, name: string, subject: unknown): Promise<boolean> {
  const key = await keyOf(store, name, subject);
  return taken.has(key) || (await store.get(key).catch(() => undefined)) !== undefined;
}

async function keyOf({ environment }: MeasureStore, name: string, subject: unknown): Promise<string> {
  const text = JSON.stringify([VERSION, name, environment, subject]);
  return `${name}-${(await sha256(new TextEncoder().encode(text))).slice(0, 24)}`;
}

/** Drivers, browsers and machines change: older measures are taken again. */
export const MEASURE_DAYS = 30;

/** In Node a file a measure in the user's cache folder; in a page and its workers a database of the origin. */
export async function defaultStore(): Promise<MeasureStore> {
  if (isNode()) return (await import('./node_store.js')).nodeStore();
  return (await import('./page_store.js')).pageStore();
}
