import { nth } from '../../../base/lists.js';
import type { Owners } from '../../../placement/index.js';
import { contextPolicy } from '../../scheduler/adp/policy.js';
import { BalanceMeter, balanceRatio, type BalanceSummary, type Iteration, solTps } from '../../scheduler/index.js';

/** One iteration, as the measures of attention data parallelism see it. */
export interface IterationRecord {
  /** Rows of each rank; a rank without work counts as one padding row. */
  readonly tokens: readonly number[];
  /** Of those of all ranks, the prompts'. */
  readonly contextTokens: number;
  readonly seconds: number;
  /** Average over most of `tokens`. */
  readonly balance: number;
}

/** How evenly iterations were spread over the ranks that keep requests; docs/adp.md defines the measures. */
export interface RankBalance extends BalanceSummary {
  /** The latest iteration. */
  readonly last: IterationRecord | undefined;
  /** Rows of each rank over all iterations. */
  readonly tokensTotal: readonly number[];
  /** Tokens generated a second of iterations, and at perfect balance. */
  readonly tps: number;
  readonly solTps: number;
}

export class RankBalanceMeter {
  readonly #meter = new BalanceMeter();
  readonly #totals: number[];
  #last: IterationRecord | undefined;

  /** `places`: the rank of each KV pool, among `ranks`. */
  constructor(
    readonly places: readonly number[],
    readonly ranks: number,
  ) {
    this.#totals = Array.from({ length: ranks }, () => 0);
  }

  add({ ranks }: Iteration, seconds: number): IterationRecord {
    const tokens = this.#totals.map(() => 1);
    for (const [pool, work] of ranks.entries()) tokens[nth(this.places, pool)] = Math.max(1, work.tokens);
    for (const [rank, count] of tokens.entries()) this.#totals[rank]! += count;
    this.#meter.add(tokens, seconds);
    const contextTokens = ranks.reduce((sum, work) => sum + work.contextTokens, 0);
    this.#last = { tokens, contextTokens, seconds, balance: balanceRatio(tokens) };
    return this.#last;
  }

  summary(generatedTokens: number): RankBalance {
    const { summary } = this.#meter;
    const tps = summary.secondsTotal === 0 ? 0 : generatedTokens / summary.secondsTotal;
    return { ...summary, last: this.#last, tokensTotal: [...this.#totals], tps, solTps: solTps(tps, summary) };
  }
}

/** What only engines need whose sequences are dealt out to several places, loaded where the plan has such. */
export const placing = {
  contextPolicy,
  balanceMeter: (places: readonly number[], owners: Owners): RankBalanceMeter =>
    new RankBalanceMeter(places, owners.ranges(0).length),
};

export type Placing = typeof placing;
