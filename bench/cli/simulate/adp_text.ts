import type { AdpRow } from '../../simulate/adp_row.js';
import type { AdpStudy } from '../../simulate/adp_study.js';
import type { Pareto } from '../../simulate/pareto.js';
import { PUBLISHED_NOTES } from '../../simulate/published_checks.js';
import type { MeasuredStudy } from './measure_adp.js';

/** The table of a study, the published rows beside it where they are of the same run. */
export function describeStudy({ rows, published, checks }: AdpStudy): string {
  const lines = [
    row('', 'TPS', 'balance', 'weighed', 'cache', 'SOL TPS', 'speedup', 'TTFT s', 'iterations'),
    ...rows.map((each) =>
      row(
        each.name,
        whole(each.tps),
        percent(each.balance),
        percent(each.weighed_balance),
        percent(each.kv_balance ?? NaN),
        whole(each.sol_tps),
        each.speedup.toFixed(2),
        each.mean_ttft_s.toFixed(2),
        whole(each.iterations),
      ),
    ),
  ];
  if (checks) {
    lines.push('', row('published', 'TPS', 'balance', '', '', 'SOL TPS', 'speedup'));
    for (const { name, tps, balance, sol_tps, speedup } of published)
      lines.push(row(name, whole(tps), percent(balance), '', '', whole(sol_tps), speedup.toFixed(2)));
    lines.push('', row('baseline', 'published', 'simulated', ''));
    for (const check of checks) {
      const text = check.unit === 'share' ? percent : whole;
      lines.push(row(check.title, text(check.published), text(check.simulated), check.kind));
    }
    lines.push('', ...PUBLISHED_NOTES);
  }
  lines.push(
    '',
    'A simulation: nothing here is measured. balance: mean over iterations; weighed: by the tokens of their largest rank; cache: of cached tokens.',
  );
  return `${lines.join('\n')}\n`;
}

const percent = (value: number): string => `${(value * 100).toFixed(2)}%`;

const row = (name: string, ...values: readonly string[]): string =>
  name.padEnd(14) + values.map((value) => value.padStart(11)).join('');

const whole = (value: number): string => Math.round(value).toLocaleString('en-US');

/** The points of each load, those of its front marked. */
export function describePareto({ points, fronts }: Pareto): string {
  const best = new Set(fronts.flatMap((front) => front.points));
  const lines = [row('', 'open', 'TO / BW', 'TPS', 'TPS a rank', 'TTFT s', 'p95 TTFT s', 'front')];
  for (const point of points) {
    const waits = point.timeout_iters === null ? '' : `${point.timeout_iters} / ${point.batching_wait_iters}`;
    lines.push(
      row(
        point.policy,
        whole(point.concurrency),
        waits,
        whole(point.tps),
        whole(point.tps_per_rank),
        point.ttft_mean_s.toFixed(2),
        point.ttft_p95_s.toFixed(2),
        best.has(point) ? '*' : '',
      ),
    );
  }
  lines.push(
    '',
    'TO / BW: timeout_iters and batching_wait_iters. front: no other of its load is better in both TPS and TTFT.',
  );
  return `${lines.join('\n')}\n`;
}

/** The table of a study that really ran: each figure as measured, and beside it as simulated. */
export function describeMeasured({ measured, runs, rows, parameters }: MeasuredStudy): string {
  const heads = ['balance', 'weighed', 'TPS', 'speedup', 'SOL TPS', 'TTFT s', 'iterations'];
  const figures = (each: AdpRow): string[] => [
    percent(each.balance),
    percent(each.weighed_balance),
    whole(each.tps),
    each.speedup.toFixed(2),
    whole(each.sol_tps),
    each.mean_ttft_s.toFixed(2),
    whole(each.iterations),
  ];
  const ranges = measured.slice(1).map(({ name }, at) => {
    const speedups = runs.map((turn) => turn[at + 1]!.speedup).toSorted((a, b) => a - b);
    return `${name} ${speedups[0]!.toFixed(2)} to ${speedups.at(-1)!.toFixed(2)}`;
  });
  const lines = [
    row('', ...heads.flatMap((head) => [head, 'simulated'])),
    ...measured.map((each, at) => {
      const simulated = figures(rows[at]!);
      return row(each.name, ...figures(each).flatMap((figure, index) => [figure, simulated[index]!]));
    }),
    '',
    `${parameters['requests'] as number} requests on ${parameters['model'] as string}, ${parameters['ranks'] as number} ranks` +
      `${parameters['virtual_ranks'] === true ? ' of one device, so that times say little of balance' : ''}. Simulated times: ` +
      `${(parameters['iteration_seconds'] as number).toPrecision(3)} s an iteration and ` +
      `${(parameters['token_seconds'] as number).toPrecision(3)} s a token, from the measured baseline unless given.`,
    ...(runs.length > 1
      ? [`Medians of ${runs.length} runs in turns; speedups over the turn's baseline: ${ranges.join(', ')}.`]
      : []),
  ];
  return `${lines.join('\n')}\n`;
}
