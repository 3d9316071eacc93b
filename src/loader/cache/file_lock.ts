import { throwIfAborted } from '../../base/errors.js';

/** The part of `navigator.locks` that is used. */
export type Locks = Pick<LockManager, 'request'>;

/** Lets the lock go; more than once does no harm. */
export type Release = () => void;

/**
 * Waits for a lock that one tab or worker of the origin holds at a time. The browser takes it from a tab that dies.
 * Where there are no locks nobody waits. Throws `aborted`.
 */
export async function holdLock(
  locks: Locks | undefined,
  name: string,
  signal: AbortSignal | undefined,
  what: string,
): Promise<Release> {
  throwIfAborted(signal, what);
  try {
    return (await request(locks, name, signal === undefined ? {} : { signal }))!;
  } catch {
    throwIfAborted(signal, what);
    return () => {}; // no locks for this page, so that others may fetch the same: wasteful, and no error
  }
}

/** The lock where nobody holds it now, otherwise undefined. */
export async function tryLock(locks: Locks | undefined, name: string): Promise<Release | undefined> {
  try {
    return await request(locks, name, { ifAvailable: true });
  } catch {
    return () => {};
  }
}

async function request(locks: Locks | undefined, name: string, options: LockOptions): Promise<Release | undefined> {
  if (!locks) return () => {};
  return new Promise((resolve, reject) => {
    const held = locks.request(name, options, (lock) => {
      if (lock === null) return resolve(undefined);
      return new Promise<void>((release) => resolve(release));
    });
    Promise.resolve(held).catch(reject);
  });
}
