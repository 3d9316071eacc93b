import { sum } from '../../base/lists.js';
import type { Device } from '../../gpu/index.js';
import { PassClock } from '../tuning/stopwatch.js';

/** What of a decode step reads the cache, and merges what was read; by name, as few models need all of these kernels. */
export const ATTENTION_KERNELS: ReadonlySet<string> = new Set([
  'attention_append',
  'attention_merge',
  'attention_split',
  'mla_split',
]);

/** What attention of some decode steps takes on a device with a clock; the steps compute what they do without. */
export class AttentionTimes {
  #clock: PassClock | undefined;
  #left = 0;
  #steps = 0;
  #seconds = 0;
  /** A step whose times aren't known yet; others aren't timed meanwhile. */
  #underWay = false;
  /** Its passes are submitted, and what they took is on its way. */
  #reading: Promise<void> | undefined;

  constructor(readonly device: Device) {}

  /** Times so many of the next steps, or as many as were asked for before. */
  ask(steps: number): void {
    this.#left = Math.max(this.#left, steps);
  }

  async total(): Promise<{ readonly steps: number; readonly ms: number }> {
    await this.#reading;
    return { steps: this.#steps, ms: this.#seconds * 1000 };
  }

  /**
   * The passes of a step of a program; `record` is encoded behind the last of them, and `submitted` said when all are. Undefined where
   * this step isn't timed.
   */
  begin(program: { count(kernels: ReadonlySet<string>): number }) {
    if (this.#left === 0 || this.#underWay) return undefined;
    const passes = program.count(ATTENTION_KERNELS);
    if (!this.#clock || this.#clock.most < passes) {
      this.#clock?.dispose();
      this.#clock = new PassClock(this.device, Math.max(1, passes));
    }
    const clock = this.#clock;
    clock.forget();
    this.#left--;
    this.#underWay = true;
    return {
      kernels: ATTENTION_KERNELS,
      next: () => clock.next(),
      record: (encoder: GPUCommandEncoder) => clock.record(encoder),
      submitted: () => void (this.#reading = this.#read(clock)),
    };
  }

  /** After a failure: no step is under way, unless its times are. */
  reset(): void {
    this.#left = 0;
    this.#underWay = this.#reading !== undefined;
  }

  async #read(clock: PassClock): Promise<void> {
    try {
      const seconds = await clock.seconds();
      this.#steps++;
      this.#seconds += sum(seconds);
    } catch {
      // A device that was lost: its steps tell.
    } finally {
      this.#reading = undefined;
      this.#underWay = false;
    }
  }
}
