import { abortedError, SplitkvError } from '../../base/errors.js';

/** Times that a rebuild is tried, and the wait before the second one; each further wait is four times as long. */
const ATTEMPTS = 5;
const FIRST_WAIT_MS = 250;
/** Losses that a request may be there at without a token in between. */
const MOST_LOSSES = 3;

export interface RecoveryOptions {
  /** For tests: how it waits. */
  readonly sleep?: (ms: number) => Promise<void>;
}

/** A request, as far as recovery minds it. */
export interface Survivor {
  /** Tokens handed on so far. */
  readonly emitted: number;
}

/**
 * How an engine goes on after a loss. Drivers that restart refuse devices for a while, so a rebuild is tried again, with pauses. A
 * request that was there at every loss and got no token in between may be what kills the device: it fails, the others go on.
 */
export class Recovery {
  #isFailing = false;
  readonly #losses = new Map<string, { count: number; emitted: number }>();

  constructor(private readonly options: RecoveryOptions = {}) {}

  /** A try has failed, and there will be another. */
  get isFailing(): boolean {
    return this.#isFailing;
  }

  /** After a loss. The requests that are to fail, of those that are there. */
  suspects(present: ReadonlyMap<string, Survivor>): string[] {
    for (const id of this.#losses.keys()) if (!present.has(id)) this.#losses.delete(id);
    const suspects: string[] = [];
    for (const [id, { emitted }] of present) {
      const before = this.#losses.get(id);
      const count = before && emitted <= before.emitted ? before.count + 1 : 1;
      this.#losses.set(id, { count, emitted });
      if (count >= MOST_LOSSES) suspects.push(id);
    }
    for (const id of suspects) this.#losses.delete(id);
    return suspects;
  }

  /**
   * Runs `rebuild` until it succeeds.
   * @param isOver true: nobody waits for it any more
   * @throws what the last attempt threw; `aborted`
   */
  async rebuild(rebuild: () => Promise<void>, isOver: () => boolean): Promise<void> {
    const { sleep = (ms) => new Promise<void>((resolve) => setTimeout(resolve, ms)) } = this.options;
    try {
      for (let attempt = 1; ; attempt++) {
        try {
          return await rebuild();
        } catch (error) {
          if (attempt === ATTEMPTS) throw error;
        }
        this.#isFailing = true;
        await sleep(FIRST_WAIT_MS * 4 ** (attempt - 1));
        if (isOver()) throw abortedError('recovering', AbortSignal.abort());
      }
    } finally {
      this.#isFailing = false;
    }
  }

  /** What a suspect fails with. */
  static refusal(loss: unknown): SplitkvError {
    return new SplitkvError(
      'limit',
      `the GPU was lost ${MOST_LOSSES} times while this request ran and gave nothing; other requests go on. Try a shorter prompt`,
      { cause: loss },
    );
  }
}
