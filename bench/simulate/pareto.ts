import { makeRow } from './adp_row.js';
import {
  type AdpStudy,
  type AdpStudyOptions,
  policiesOf as studyPolicies,
  type Policy,
  runPolicy,
} from './adp_study.js';

/** A run of one policy under one load. */
export interface ParetoPoint {
  /** `balance`: TensorRT-LLM's waits. */
  readonly policy: 'baseline' | 'balance' | 'cost';
  /** Requests that clients have open at once. */
  readonly concurrency: number;
  /** null for the baseline, which waits for nothing. */
  readonly timeout_iters: number | null;
  readonly batching_wait_iters: number | null;
  /** Tokens generated a second, of all ranks and of one. */
  readonly tps: number;
  readonly tps_per_rank: number;
  /** From when a client sends to the first token, the queue included. */
  readonly ttft_mean_s: number;
  readonly ttft_p95_s: number;
}

/** The points of a load that no other of it beats in both throughput and mean time to first token. */
export interface ParetoFront {
  readonly concurrency: number;
  readonly points: readonly ParetoPoint[];
}

export interface Pareto {
  readonly points: readonly ParetoPoint[];
  readonly fronts: readonly ParetoFront[];
}

const TIMEOUTS = [5, 20, 50];
const BATCHING_WAITS = [0, 10, 20];

/** Fewer requests than these say little of a load. */
const LEAST_REQUESTS = 1000;

/** A twentieth, a fifth and all of the clients: 256, 1024 and 5120 of the published run's. */
export const defaultLoads = (concurrency: number): readonly number[] => [
  ...new Set([20, 5, 1].map((part) => Math.max(1, Math.round(concurrency / part)))),
];

/**
 * Throughput and time to first token of the baseline, of a grid of TensorRT-LLM's two waits and of our own policy, under each load. A
 * load of fewer clients than the study's gets as many requests a client, from the beginning of the trace, but at least 1000.
 * `rows`: of the study itself, whose policies needn't run again.
 */
export async function paretoOfLoads(
  options: AdpStudyOptions,
  loads: readonly number[] = [options.concurrency],
  onRun: (name: string) => void | Promise<void> = () => {},
  rows: AdpStudy['rows'] = [],
): Promise<Pareto> {
  const points: ParetoPoint[] = [];
  const known = new Map(
    studyPolicies(options).map(([name, config]) => [JSON.stringify(config), rows.find((row) => row.name === name)]),
  );
  for (const concurrency of loads) {
    const { length } = options.trace;
    const requests = Math.max(LEAST_REQUESTS, Math.round((length * concurrency) / options.concurrency));
    const load = { ...options, concurrency, trace: options.trace.slice(0, requests) };
    for (const [policy, config] of policiesOf(options)) {
      const { timeout_iters: timeout = null, batching_wait_iters: batching = null } = config;
      const isStudy = concurrency === options.concurrency && load.trace.length === length;
      let row = isStudy ? known.get(JSON.stringify(config)) : undefined;
      if (!row) {
        await onRun(`${concurrency} open, ${policy}${timeout === null ? '' : ` ${timeout} / ${batching}`}`);
        row = makeRow('full', runPolicy(load, config), undefined);
      }
      points.push({
        policy,
        concurrency,
        timeout_iters: timeout,
        batching_wait_iters: batching,
        tps: row.tps,
        tps_per_rank: row.tps / options.ranks,
        ttft_mean_s: row.mean_ttft_s,
        ttft_p95_s: row.p95_ttft_s,
      });
    }
  }
  const fronts = loads.map((concurrency) => ({
    concurrency,
    points: paretoFront(points.filter((point) => point.concurrency === concurrency)),
  }));
  return { points, fronts };
}

function policiesOf({ timeoutIters, batchingWaitIters }: AdpStudyOptions): [ParetoPoint['policy'], Policy][] {
  const waits = (timeout: number, batching: number) => ({ timeout_iters: timeout, batching_wait_iters: batching });
  const grid = TIMEOUTS.flatMap((timeout) => BATCHING_WAITS.map((batching) => waits(timeout, batching)));
  return [
    ['baseline', { mode: 'trtllm', enable_balance: false }],
    ...grid.map((each): [ParetoPoint['policy'], Policy] => [
      'balance',
      { mode: 'trtllm', enable_balance: true, ...each },
    ]),
    ['cost', { mode: 'cost', enable_balance: true, ...waits(timeoutIters, batchingWaitIters) }],
  ];
}

/** The points that no other beats in both: ascending throughput and wait. */
export function paretoFront<T extends Pick<ParetoPoint, 'tps' | 'ttft_mean_s'>>(points: readonly T[]): T[] {
  const front: T[] = [];
  for (const point of points.toSorted((a, b) => a.ttft_mean_s - b.ttft_mean_s || b.tps - a.tps)) {
    if (point.tps > (front.at(-1)?.tps ?? -Infinity)) front.push(point);
  }
  return front;
}
