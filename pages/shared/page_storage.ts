type PageStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

/** Of a browser that lets the page keep nothing: as full as a storage can be. */
const NONE: PageStorage = {
  getItem: () => null,
  setItem: () => {
    throw new Error('this browser lets the page keep nothing');
  },
  removeItem: () => {},
};

/** The page's storage. Where the browser denies it, nothing is in it, and `setItem` throws. */
export function pageStorage(name: 'localStorage' | 'sessionStorage'): PageStorage {
  try {
    return globalThis[name];
  } catch {
    return NONE;
  }
}

/** Keeps what may be lost: a storage is full at times, or denied. @returns whether it is kept */
export function keepItem(name: 'localStorage' | 'sessionStorage', key: string, text: string): boolean {
  try {
    pageStorage(name).setItem(key, text);
    return true;
  } catch {
    return false;
  }
}
