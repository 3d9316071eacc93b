/** Time for messages that were sent before the end to arrive. */
const GRACE_MS = 200;

/**
 * Whether peers' workers are alive, by Web Locks: a worker's locks are released however it ends, which its ports don't tell
 * in every browser. Does nothing where there are none (Node's ports tell by themselves).
 */
export class Presence {
  readonly #locks = (globalThis.navigator as Partial<Navigator> | undefined)?.locks;
  readonly #closed = new AbortController();

  /** Holds a lock until `close`, and announces its name as soon as it is held. */
  hold(announce: (lock: string) => void): void {
    const lock = `splitkv ${crypto.randomUUID()}`;
    this.#request(lock, () => {
      announce(lock);
      return new Promise((resolve) => this.#closed.signal.addEventListener('abort', () => resolve(undefined)));
    });
  }

  /** Calls `gone` when the holder of a lock is no more. */
  watch(lock: string, gone: () => void): void {
    this.#request(lock, () => void setTimeout(gone, GRACE_MS));
  }

  close(): void {
    this.#closed.abort();
  }

  #request(lock: string, granted: () => unknown): void {
    this.#locks?.request(lock, { signal: this.#closed.signal }, granted).catch(() => {
      // Closed before it was granted, or not allowed on this page: time limits remain.
    });
  }
}
