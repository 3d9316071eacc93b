import { abortedError, deviceLostError, limitError, messageOf, type SplitkvError } from '../../../base/errors.js';
import { pause } from '../../../base/waits.js';

/** Times that a rebuild is tried, and the wait before the second one; each further wait is four times as long. */
const ATTEMPTS = 5;
const FIRST_WAIT_MS = 250;
/** Losses that a request may be there at without a token in between. */
const MOST_LOSSES = 3;
/** Losses one after another with nothing computed in between: so many without a pause, and so many at all. */
const QUICK_LOSSES = 3;
const MOST_BARREN = 10;
/** The longest of these pauses. */
const MOST_WAIT_MS = 16_000;

export interface RecoveryOptions {
  /** For tests: how it waits. */
  readonly sleep?: (ms: number) => Promise<void>;
}

/** A request, as far as recovery minds it. */
export interface Survivor {
  /** Tokens handed on so far. */
  readonly emitted: number;
  /** It waits while another one is tried, so no loss is its fault. */
  readonly held: boolean;
}

/**
 * How an engine goes on after a loss. Drivers that restart refuse devices for a while, so a rebuild is tried again, with pauses. A
 * request that was there at two losses and got no token in between may be what kills the device: it is tried alone, and fails with
 * the third; the others go on. Devices that die again and again before anything is computed get pauses, too, and are given up in the end.
 */
export class Recovery {
  /** A try has failed, and there will be another; or devices die too fast to go on at once. */
  isFailing = false;
  readonly #losses = new Map<string, { count: number; emitted: number }>();
  #barren = 0;
  #computed = -1;

  constructor(private readonly options: RecoveryOptions = {}) {}

  /**
   * Counts a loss.
   * @param computed anything that grows with what is computed
   * @throws `loss` with what it means, where devices keep dying
   */
  count(computed: number, loss: unknown): void {
    this.#barren = computed === this.#computed ? this.#barren + 1 : 1;
    this.#computed = computed;
    if (this.#barren < MOST_BARREN) return;
    this.#barren = 0;
    throw deviceLostError(
      `the GPU was lost ${MOST_BARREN} times in a row, before anything was computed: ${messageOf(loss)}`,
      loss,
    );
  }

  /** The requests that are to fail, of those that there are, after a loss that was counted. */
  suspects(present: ReadonlyMap<string, Survivor>): string[] {
    for (const id of this.#losses.keys()) if (!present.has(id)) this.#losses.delete(id);
    const suspects: string[] = [];
    for (const [id, { emitted, held }] of present) {
      if (held) continue;
      const before = this.#losses.get(id);
      const count = before && emitted <= before.emitted ? before.count + 1 : 1;
      this.#losses.set(id, { count, emitted });
      if (count >= MOST_LOSSES) suspects.push(id);
    }
    for (const id of suspects) this.#losses.delete(id);
    return suspects;
  }

  /** The next request that is to be tried alone, before others that wait: one that fails with the next loss. */
  next(waiting: Iterable<string>): string | undefined {
    for (const id of waiting) if ((this.#losses.get(id)?.count ?? 0) === MOST_LOSSES - 1) return id;
    return undefined;
  }

  /** It got a token, or has ended: not what kills the device. */
  clear(id: string): void {
    this.#losses.delete(id);
  }

  /**
   * Runs `rebuild` until it succeeds.
   * @param isOver true: nobody waits for it any more
   * @throws what the last attempt threw; `aborted`
   */
  async rebuild(rebuild: () => Promise<void>, isOver: () => boolean): Promise<void> {
    const { sleep = pause } = this.options;
    const rest = async (ms: number): Promise<void> => {
      this.isFailing = true;
      await sleep(ms);
      if (isOver()) throw abortedError('recovering', AbortSignal.abort());
    };
    try {
      const over = this.#barren - QUICK_LOSSES;
      if (over > 0) await rest(Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 4 ** (over - 1)));
      for (let attempt = 1; ; attempt++) {
        try {
          return await rebuild();
        } catch (error) {
          if (attempt === ATTEMPTS) throw error;
        }
        await rest(FIRST_WAIT_MS * 4 ** (attempt - 1));
      }
    } finally {
      this.isFailing = false;
    }
  }

  /** What a suspect fails with. */
  static refusal(loss: unknown): SplitkvError {
    return limitError(
      `the GPU was lost ${MOST_LOSSES} times while this request ran and gave nothing; other requests go on. Try a shorter prompt`,
      loss,
    );
  }
}
