import type { RunStats } from '../../../src/index.js';
import type { TokenTime } from './verdict.js';

/** What a plan did here. */
export interface MeasuredPlan {
  readonly plan: string;
  readonly ranks: number;
  readonly tokensPerSecond: number;
  readonly ttftMs: number;
  /** By rank. */
  readonly times: readonly TokenTime[];
  /** Runs of which this is the median, beside another plan's in turns; 1: an answer. */
  readonly runs: number;
}

/** @param runs of which the stats are the median's */
export const measuredOf = (plan: string, stats: RunStats, runs: number): MeasuredPlan => ({
  plan: stats.ranks.length === 1 ? 'single' : plan,
  ranks: stats.ranks.length,
  tokensPerSecond: stats.tokens_per_second,
  ttftMs: stats.ttft_ms,
  times: stats.ranks.map((rank) => ({
    compute: rank.compute_ms_per_token,
    exchange: rank.exchange_ms_per_token,
    wait: rank.wait_ms_per_token,
  })),
  runs,
});

/** The run in the middle by its speed. */
export const medianRun = (runs: readonly RunStats[]): RunStats =>
  runs.toSorted((a, b) => a.tokens_per_second - b.tokens_per_second)[(runs.length - 1) >> 1]!;

/**
 * What was measured of a model in this tab, so that plans that are tried one after the other stand beside each other. Where the browser
 * keeps nothing it is that of this page.
 */
export class MeasuredPlans {
  readonly #key: string;
  readonly #plans: Map<string, MeasuredPlan>;

  /** @param what says all that speeds depend on beside the plan: model, types, context, adapters */
  constructor(
    what: string,
    private readonly storage: Pick<Storage, 'getItem' | 'setItem'>,
  ) {
    this.#key = `splitkv ranks ${what}`;
    this.#plans = new Map(this.#read().map((plan) => [keyOf(plan), plan]));
  }

  #read(): readonly MeasuredPlan[] {
    try {
      return JSON.parse(this.storage.getItem(this.#key) ?? '[]') as readonly MeasuredPlan[];
    } catch {
      return []; // of another version, or nobody may read it
    }
  }

  /** An answer alone doesn't take the place of runs in turns. */
  add(measured: MeasuredPlan): void {
    if (!(measured.tokensPerSecond > 0)) return;
    const before = this.#plans.get(keyOf(measured));
    if (before && before.runs > measured.runs) return;
    this.#plans.set(keyOf(measured), measured);
    try {
      this.storage.setItem(this.#key, JSON.stringify([...this.#plans.values()]));
    } catch {
      // The page's own are shown all the same.
    }
  }

  get(plan: string, ranks: number): MeasuredPlan | undefined {
    return this.#plans.get(keyOf({ plan, ranks }));
  }

  all(): readonly MeasuredPlan[] {
    return [...this.#plans.values()];
  }
}

const keyOf = ({ plan, ranks }: Pick<MeasuredPlan, 'plan' | 'ranks'>): string => `${plan} ${ranks}`;
