import type { Iteration, WorkList } from './iteration.js';
import type { RankState } from './rank_state.js';
import type { WaitingQueue } from './waiting_queue.js';

/** Of sequences that could go elsewhere, the one that goes, and where. */
export interface Move<S> {
  readonly sequence: S;
  readonly to: number;
}

/** What a policy is asked with, once an iteration, after the decode rows are planned. */
export interface Situation {
  readonly iteration: number;
  /** Seconds on the caller's clock. */
  readonly now: number;
  readonly ranks: readonly RankState[];
  /** Of each rank, with its decode rows so far. */
  readonly work: readonly WorkList[];
}

/**
 * Decides which waiting request goes to which rank, and which iterations run contexts. Every rank runs the same policy on the same
 * inputs, so decisions agree without a word exchanged.
 */
export interface ContextPolicy {
  /** Binds requests of the common queue to ranks; runs before anything of the iteration is planned. */
  route?(waiting: WaitingQueue, ranks: readonly RankState[]): void;
  /** Whether contexts run in this iteration; default: whenever they fit. May bind more requests, to run at once. */
  opens?(waiting: WaitingQueue, situation: Situation): boolean;
  /** Moves running sequences from rank to rank; runs before anything of the iteration is planned. */
  move?(ranks: readonly RankState[], work: readonly WorkList[]): void;
  /** Told of every iteration that took a known time. */
  observe?(iteration: Iteration, seconds: number): void;
}

/** One pool: every request belongs to it, and contexts run whenever they fit. */
export class OnePool implements ContextPolicy {
  route(waiting: WaitingQueue, [rank]: readonly RankState[]): void {
    for (const sequence of waiting.takeAll()) rank?.bind(sequence);
  }
}
