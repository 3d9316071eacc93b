import { quantile } from '../../src/base/stats.js';
import { solTps } from '../../src/engine/scheduler/index.js';
import type { PublishedRow } from './published_run.js';
import type { SimulationResult } from './simulate.js';

export type RowName = PublishedRow['name'] | 'cost' | 'balance_route' | 'staggered';

/** One line of the table. */
export interface AdpRow {
  readonly name: RowName;
  /** Tokens generated a second. */
  readonly tps: number;
  /** Mean balance ratio over iterations. */
  readonly balance: number;
  /** Its mean with iterations weighed by the tokens of their largest rank. */
  readonly weighed_balance: number;
  /** The same of cached tokens; not told of runs that were measured. */
  readonly kv_balance?: number;
  readonly sol_tps: number;
  /** Over the baseline. */
  readonly speedup: number;
  readonly mean_ttft_s: number;
  readonly iterations: number;
  readonly p95_ttft_s: number;
  readonly elapsed_s: number;
  readonly preemptions: number;
}

export function makeRow(
  name: RowName,
  result: Omit<SimulationResult, 'log' | 'kvBalance' | 'moves'> & Partial<Pick<SimulationResult, 'kvBalance'>>,
  baseline: number | undefined,
): AdpRow {
  const tps = result.outputTokens / result.seconds;
  const ttft = [...result.ttftSeconds];
  return {
    name,
    tps,
    balance: result.balance.balance,
    weighed_balance: result.balance.weighedBalance,
    ...(result.kvBalance !== undefined && { kv_balance: result.kvBalance }),
    sol_tps: solTps(tps, result.balance),
    speedup: tps / (baseline ?? tps),
    mean_ttft_s: ttft.reduce((sum, seconds) => sum + seconds, 0) / ttft.length,
    iterations: result.balance.iterations,
    p95_ttft_s: quantile(ttft, 0.95),
    elapsed_s: result.seconds,
    preemptions: result.preemptions,
  };
}
