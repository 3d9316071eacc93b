import type { CommStats } from './communicator.js';

/** What a rank is at in an exchange: its GPU still makes what is to be sent, bytes move, or others are waited for. */
type Phase = 'work' | 'move' | 'wait';

/** Adds up what a rank's exchanges do with its time, by the clock of its thread. */
export class ExchangeClock {
  /** By channel, when its phase began. */
  readonly #running = new Map<number, { readonly phase: Phase; readonly since: number }>();
  readonly #count: Record<Phase, number> = { work: 0, move: 0, wait: 0 };
  #last = 0;

  /** @param readMs what reading a few bytes from a GPU that has nothing else to do takes, which the end of its work can't be told from */
  constructor(
    private readonly stats: CommStats,
    private readonly readMs: () => number,
  ) {}

  /** The exchange on a channel is at something else now; undefined: it has ended. */
  enter(channel: number, phase: Phase | undefined): void {
    const now = performance.now();
    if (this.#count.work === 0) {
      if (this.#count.move > 0) this.stats.moveMs += now - this.#last;
      else if (this.#count.wait > 0) this.stats.waitMs += now - this.#last;
    }
    this.#last = now;
    const before = this.#running.get(channel);
    if (before) {
      this.#count[before.phase]--;
      // The last part of the work was reading it out, unless another exchange's work went on meanwhile.
      if (before.phase === 'work' && this.#count.work === 0)
        this.stats.moveMs += Math.min(now - before.since, this.readMs());
    }
    if (phase === undefined) {
      this.#running.delete(channel);
      return;
    }
    this.#count[phase]++;
    this.#running.set(channel, { phase, since: now });
  }

  /** Moves bytes that have come meanwhile. */
  moving(channel: number, body: () => void): void {
    const before = this.#running.get(channel)?.phase;
    if (before !== 'wait') return body();
    this.enter(channel, 'move');
    try {
      body();
    } finally {
      this.enter(channel, before);
    }
  }
}
