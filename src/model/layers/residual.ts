import type { Buffer } from '../../gpu/index.js';
import { type Norm, recordNorm } from './norm.js';
import type { RankRecorder } from './world.js';

/** A sum that a projection normalises and adds to x before it reads x. */
export interface Added {
  /** f32 [rows][hiddenStride]. */
  readonly sum: Buffer;
  readonly norm: Norm;
  /** Where it puts the new x. */
  readonly to: Buffer;
}

/**
 * The residual stream of some rows while their program is recorded. Sums of halves with a norm behind them may be left to the projection
 * that reads x next (`fusesAdded`). Then x is in two buffers by turns, and at home before and behind a stage's layers.
 */
export class Residual {
  #x: Buffer;
  #left: Omit<Added, 'to'> | undefined;

  /** `other`: undefined where no sum is left. */
  constructor(
    readonly home: Buffer,
    readonly other: Buffer | undefined,
    readonly shape: { readonly rows: number; readonly width: number; readonly stride: number },
  ) {
    this.#x = home;
  }

  /** x += norm(sum), now or later. */
  add(recorder: RankRecorder, sum: Buffer, norm: Norm): void {
    this.#left = { sum, norm };
    if (!this.other) this.settle(recorder);
  }

  /** For a projection that adds what is left. */
  take(): { readonly x: Buffer; readonly adds?: Added } {
    const [x, left] = [this.#x, this.#left];
    if (!left || !this.other) return { x };
    this.#x = x === this.home ? this.other : this.home;
    this.#left = undefined;
    return { x, adds: { ...left, to: this.#x } };
  }

  /** Adds what is left, if nobody took it: before its buffer is written again, and for all who read x at home. */
  settle(recorder: RankRecorder): void {
    if (!this.#left) return;
    const { sum, norm } = this.#left;
    recordNorm(recorder, norm, this.shape, sum, this.home, this.#x);
    this.#x = this.home;
    this.#left = undefined;
  }
}

/** The sum of what is added while a layer's halves are recorded, without x: the first one's norm writes it. */
export class HalvesSum extends Residual {
  #started = false;

  begin(): void {
    this.#started = false;
  }

  override add(recorder: RankRecorder, sum: Buffer, norm: Norm): void {
    recordNorm(recorder, norm, this.shape, sum, this.home, this.#started ? this.home : undefined);
    this.#started = true;
  }
}
