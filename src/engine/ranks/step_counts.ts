import type { World } from '../../model/layers/world.js';
import type { RankCounts } from '../contracts/rank.js';

/** How many decode steps a rank ran, what they sent, and for how long any was under way. */
export class StepCounts {
  /** Steps under way, since when their number is what it is, and how long it was above 0. */
  #running = 0;
  #runningSince = 0;
  #ms = 0;
  #steps = 0;
  #bytes = 0;

  constructor(readonly world: World) {}

  get total(): Pick<RankCounts, 'steps' | 'stepBytes' | 'stepMs'> {
    return { steps: this.#steps, stepBytes: this.#bytes, stepMs: this.#ms };
  }

  /** A step, and what it sends on a channel. */
  async counted<T>(channel: number, step: () => Promise<T>, decodes = true): Promise<T> {
    const sent = (): number => this.world.communicator?.sentOn(channel) ?? 0;
    this.#countRunning(1);
    const before = sent();
    try {
      const reads = await step();
      // Counted together: whoever asks while a step is under way has neither the step nor what it sent so far.
      if (decodes) {
        this.#steps++;
        this.#bytes += sent() - before;
      }
      return reads;
    } finally {
      this.#countRunning(-1);
    }
  }

  #countRunning(change: 1 | -1): void {
    const now = performance.now();
    if (this.#running > 0) this.#ms += now - this.#runningSince;
    this.#runningSince = now;
    this.#running += change;
  }
}
