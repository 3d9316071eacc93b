import { type AdpRow, makeRow } from './adp_row.js';
import { type AdpStudy, type AdpStudyOptions, runPolicy } from './adp_study.js';

export interface ParetoPoint {
  readonly timeout_iters: number;
  readonly batching_wait_iters: number;
  readonly tps: number;
  readonly mean_ttft_s: number;
}

const TIMEOUTS = [5, 20, 50];
const BATCHING_WAITS = [0, 10, 20];

/** Throughput and time to first token of TensorRT-LLM's balancer over a grid of its two numbers. */
export async function paretoGrid(
  options: AdpStudyOptions,
  { rows }: AdpStudy,
  onRun: (name: string) => void | Promise<void> = () => {},
): Promise<ParetoPoint[]> {
  const points: ParetoPoint[] = [];
  for (const timeout of TIMEOUTS) {
    for (const batching of BATCHING_WAITS) {
      const waits = { timeout_iters: timeout, batching_wait_iters: batching };
      const known = knownRow(options, rows, timeout, batching);
      if (!known) await onRun(`timeout ${timeout}, batching ${batching}`);
      const { tps, mean_ttft_s } =
        known ?? makeRow('full', runPolicy(options, { mode: 'trtllm', enable_balance: true, ...waits }), undefined);
      points.push({ ...waits, tps, mean_ttft_s });
    }
  }
  return points;
}

function knownRow(
  options: AdpStudyOptions,
  rows: readonly AdpRow[],
  timeout: number,
  batching: number,
): AdpRow | undefined {
  if (timeout !== options.timeoutIters) return undefined;
  if (batching === 0) return rows.find(({ name }) => name === 'context_wait');
  return batching === options.batchingWaitIters ? rows.find(({ name }) => name === 'full') : undefined;
}

/** The points that no other beats in both: descending throughput, ascending wait. */
export function paretoFront<T extends { readonly tps: number; readonly mean_ttft_s: number }>(
  points: readonly T[],
): T[] {
  const front: T[] = [];
  for (const point of points.toSorted((a, b) => a.mean_ttft_s - b.mean_ttft_s || b.tps - a.tps)) {
    if (point.tps > (front.at(-1)?.tps ?? -Infinity)) front.push(point);
  }
  return front;
}
