import { afterEach, expect, test, vi } from 'vitest';
import { Presence } from './port_transport.js';

afterEach(() => vi.unstubAllGlobals());

interface Request {
  readonly lock: string;
  readonly run: () => void;
}

/** Web Locks as far as they are used: exclusive, first come first served. `end` does what a worker's end does. */
class FakeLocks {
  readonly #held = new Map<string, object>();
  readonly #waiting: Request[] = [];

  worker(): { readonly presence: Presence; readonly end: () => void } {
    const owner = {};
    const request = (lock: string, { signal }: { signal: AbortSignal }, granted: () => unknown): Promise<void> =>
      new Promise((resolve, reject) => {
        const run = async (): Promise<void> => {
          this.#held.set(lock, owner);
          await granted();
          this.#release(lock);
          resolve();
        };
        const entry = { lock, run: () => void run() };
        if (!this.#held.has(lock)) return entry.run();
        this.#waiting.push(entry);
        signal.addEventListener('abort', () => {
          const at = this.#waiting.indexOf(entry);
          if (at < 0) return;
          this.#waiting.splice(at, 1);
          reject(new DOMException('closed', 'AbortError'));
        });
      });
    vi.stubGlobal('navigator', { locks: { request } });
    const end = (): void => {
      for (const [lock, holder] of this.#held) if (holder === owner) this.#release(lock);
    };
    return { presence: new Presence(), end };
  }

  get requests(): number {
    return this.#held.size + this.#waiting.length;
  }

  #release(lock: string): void {
    this.#held.delete(lock);
    const next = this.#waiting.findIndex((entry) => entry.lock === lock);
    if (next >= 0) this.#waiting.splice(next, 1)[0]!.run();
  }
}

test('whoever watches a worker learns of its end, and of nobody else’s', async () => {
  const locks = new FakeLocks();
  const [zero, one, two] = [locks.worker(), locks.worker(), locks.worker()];
  const gone: string[] = [];
  let learned = (): void => {};
  const both = new Promise<void>((resolve) => (learned = resolve));
  const note = (who: string) => (): void => {
    if (gone.push(who) === 2) learned();
  };
  zero.presence.hold((lock) => {
    one.presence.watch(lock, note('one: zero'));
    two.presence.watch(lock, note('two: zero'));
  });
  one.presence.hold((lock) => two.presence.watch(lock, note('two: one')));
  zero.end();
  await both;
  expect(gone).toEqual(['one: zero', 'two: zero']);
  for (const { presence } of [zero, one, two]) presence.close();
  await vi.waitFor(() => expect(locks.requests).toBe(0));
});

test('without Web Locks nothing happens', () => {
  vi.stubGlobal('navigator', undefined);
  const presence = new Presence();
  presence.hold(() => expect.unreachable());
  presence.watch('any', () => expect.unreachable());
  presence.close();
});
