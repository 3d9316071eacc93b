/**
 * The measures of attention data parallelism (NVIDIA, "ADP Balance Strategy").
 *
 *     balance_i = tokens_avg / tokens_max          over ranks, of iteration i
 *     sol_time  = sum of time_i * balance_i
 *     sol_tps   = elapsed / sol_time * tps         tokens per second if the balance were perfect
 */

import { sum } from '../../../base/lists.js';

/** The balance ratio of one iteration: from 1 / ranks to 1. An iteration without tokens is balanced. */
export function balanceRatio(tokens: ArrayLike<number>): number {
  const most = mostOf(tokens);
  return most === 0 ? 1 : sum(Array.from(tokens)) / tokens.length / most;
}

const mostOf = (tokens: ArrayLike<number>): number => Math.max(0, ...Array.from(tokens));

export interface BalanceSummary {
  readonly iterations: number;
  /** The mean of balance_i over iterations. */
  readonly balance: number;
  /** The mean with each iteration weighed by its largest rank's tokens: sum of tokens_avg over sum of tokens_max. */
  readonly weighedBalance: number;
  /** What iterations took, and would have at perfect balance. */
  readonly secondsTotal: number;
  readonly solSecondsTotal: number;
}

export class BalanceMeter {
  #iterations = 0;
  #average = 0;
  #most = 0;
  #balance = 0;
  #sol = 0;
  #seconds = 0;

  /** @param tokens of each rank */
  add(tokens: ArrayLike<number>, seconds: number): void {
    const balance = balanceRatio(tokens);
    const most = mostOf(tokens);
    this.#iterations++;
    this.#average += balance * most;
    this.#most += most;
    this.#balance += balance;
    this.#sol += seconds * balance;
    this.#seconds += seconds;
  }

  get summary(): BalanceSummary {
    return {
      iterations: this.#iterations,
      balance: this.#iterations === 0 ? 1 : this.#balance / this.#iterations,
      weighedBalance: this.#most === 0 ? 1 : this.#average / this.#most,
      secondsTotal: this.#seconds,
      solSecondsTotal: this.#sol,
    };
  }
}

export const solTps = (tps: number, { secondsTotal, solSecondsTotal }: BalanceSummary): number =>
  solSecondsTotal === 0 ? tps : (secondsTotal / solSecondsTotal) * tps;
