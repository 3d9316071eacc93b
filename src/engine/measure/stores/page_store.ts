import { MEASURE_DAYS, type MeasureStore } from './store.js';

const STORE = 'measures';
interface Kept {
  readonly value: unknown;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** The database `splitkv` of the page's origin, which its workers have, too. A browser may deny it. */
export function pageStore(): MeasureStore {
  return {
    environment: `${navigator.userAgent} ${navigator.hardwareConcurrency}`,
    async get(key) {
      const kept = await within('readonly', (store) => store.get(key) as IDBRequest<Kept | undefined>);
      const isOld = kept !== undefined && Date.now() - kept.at > MEASURE_DAYS * 24 * 3600 * 1000;
      return isOld ? undefined : kept?.value;
    },
    async set(key, value) {
      await within('readwrite', (store) => store.put({ value, at: Date.now() } satisfies Kept, key));
    },
  };
}

/** The answer to a request of a transaction by itself. */
async function within<T>(mode: IDBTransactionMode, ask: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const opening = indexedDB.open('splitkv', 1);
  opening.onupgradeneeded = () => void opening.result.createObjectStore(STORE);
  const database = await answer(opening);
  try {
    return await answer(ask(database.transaction(STORE, mode).objectStore(STORE)));
  } finally {
    // It ends when the transaction does.
    database.close();
  }
}

const answer = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error!);
  });
