import type { Locks } from '../cache/opfs.js';

type Granted = (lock: Lock | null) => unknown;

interface Waiting {
  readonly tab: object;
  grant(): void;
}

/** Web Locks of one origin, of exclusive mode only, shared by the tabs that `tab()` opens. */
export class MemoryLocks {
  readonly #holders = new Map<string, object>();
  readonly #queues = new Map<string, Waiting[]>();

  /** A tab's `navigator.locks`; `close` lets go of all it holds or waits for, as when the tab dies: nobody tells its code. */
  tab(): { readonly locks: Locks & Pick<LockManager, 'query'>; close(): void } {
    const tab = {};
    const request = async (name: string, options: LockOptions | Granted, callback?: Granted): Promise<unknown> => {
      if (typeof options === 'function') return this.#request(tab, name, {}, options);
      return this.#request(tab, name, options, callback!);
    };
    const query = async () => ({ held: this.held.map((name) => ({ name })), pending: [] });
    return { locks: { request, query } as Locks & Pick<LockManager, 'query'>, close: () => this.#close(tab) };
  }

  get held(): string[] {
    return [...this.#holders.keys()];
  }

  async #request(tab: object, name: string, options: LockOptions, callback: Granted): Promise<unknown> {
    const { signal, ifAvailable } = options;
    if (signal && ifAvailable) throw new DOMException('signal with ifAvailable', 'NotSupportedError');
    signal?.throwIfAborted();
    if (this.#holders.has(name)) {
      if (ifAvailable) return callback(null);
      await new Promise<void>((grant, reject) => {
        const waiting = { tab, grant };
        this.#queues.set(name, [...(this.#queues.get(name) ?? []), waiting]);
        signal?.addEventListener('abort', () => {
          this.#queues.set(
            name,
            this.#queues.get(name)!.filter((other) => other !== waiting),
          );
          reject(signal.reason as Error);
        });
      });
    } else this.#holders.set(name, tab);
    try {
      this.#holders.set(name, tab);
      return await callback({ name, mode: 'exclusive' });
    } finally {
      if (this.#holders.get(name) === tab) this.#next(name);
    }
  }

  #next(name: string): void {
    this.#holders.delete(name);
    const [first, ...others] = this.#queues.get(name) ?? [];
    this.#queues.set(name, others);
    if (!first) return;
    this.#holders.set(name, first.tab);
    first.grant();
  }

  #close(tab: object): void {
    for (const [name, queue] of this.#queues) {
      this.#queues.set(
        name,
        queue.filter((waiting) => waiting.tab !== tab),
      );
    }
    for (const [name, holder] of this.#holders) if (holder === tab) this.#next(name);
  }
}
