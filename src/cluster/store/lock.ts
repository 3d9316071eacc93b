import { SplitkvError, throwIfAborted } from '../../base/errors.js';
import { pause } from '../../base/waits.js';
import type { Bucket } from './bucket.js';

const KEY = 'lock';
const BEAT_MS = 2000;
/** Beats that whoever has it may miss. */
const MISSED = 5;

/** That nobody else changes the store. @throws SplitkvError `io` where somebody took the lock in between */
export type StillAlone = () => Promise<void>;

/**
 * Changes the store alone: what others push or remove at the same time can't take pieces away that are counted on. Whoever ended
 * without giving the lock back is told by its beats, by the clock of whoever waits.
 * @param onWait told once, where another one has it
 */
export async function alone<T>(
  bucket: Bucket,
  { signal, onWait }: { readonly signal?: AbortSignal | undefined; readonly onWait?: (() => void) | undefined },
  work: (stillAlone: StillAlone) => Promise<T>,
): Promise<T> {
  const own = new TextEncoder().encode(crypto.randomUUID());
  let revision = await take(bucket, own, signal, onWait);
  let lost: SplitkvError | undefined;
  let beat: Promise<void> = Promise.resolve();
  const stillAlone = (): Promise<void> =>
    (beat = beat.then(async () => {
      if (!lost) {
        const next = await bucket.put(KEY, own, signal, revision);
        if (next === undefined) {
          lost = new SplitkvError(
            'io',
            "this process was away for so long that another one changes the cluster's store: push again",
          );
        } else revision = next;
      }
      if (lost) throw lost;
    }));
  // What fails is thrown to whoever asks next.
  const timer = setInterval(() => void stillAlone().catch(() => (beat = Promise.resolve())), BEAT_MS);
  try {
    return await work(stillAlone);
  } finally {
    clearInterval(timer);
    await beat.catch(() => {});
    if (!lost) await bucket.remove([KEY]).catch(() => {});
  }
}

/** Resolves with the lock's number. */
async function take(
  bucket: Bucket,
  own: Uint8Array,
  signal: AbortSignal | undefined,
  onWait: (() => void) | undefined,
): Promise<number> {
  let seen: number | undefined;
  let missed = 0;
  for (let tries = 0; ; tries++) {
    throwIfAborted(signal, "waiting for the cluster's store");
    const there = (await bucket.get(KEY, signal))?.revision ?? 0;
    missed = there === seen ? missed + 1 : 0;
    seen = there;
    if (there === 0 || missed > MISSED) {
      const taken = await bucket.put(KEY, own, signal, there);
      if (taken !== undefined) return taken;
    } else if (tries === 0) onWait?.();
    await pause(BEAT_MS);
  }
}
