/**
 * Room: a simulation as an HTML page for people: what was asked, a table of policies, and plots over iterations
 * (run_section.ts). bins.ts makes few points of many, chart.ts draws.
 */

import type { AdpRow, RowName } from '../adp_row.js';
import type { AdpStudy } from '../adp_study.js';
import type { Pareto, ParetoPoint } from '../pareto.js';
import { type PublishedCheck, PUBLISHED_NOTES } from '../published_checks.js';
import type { PublishedRow } from '../published_run.js';
import { escapeHtml } from '../../report/html.js';
import { chart, type Mark, type Point } from './chart.js';
import { lengthsSection } from './lengths.js';
import { runCharts, runSection, scaleOf } from './run_section.js';
import { STYLE } from './style.js';

const ROW_TITLES: Readonly<Record<RowName, string>> = {
  baseline: 'Baseline',
  context_wait: 'Context wait (timeout_iters)',
  full: 'Full (and batching_wait_iters)',
  cost: 'Cost (ours)',
  balance_route: 'BalanceRoute, BR-0 (arXiv 2605.06113)',
  staggered: 'Staggered batches (arXiv 2512.16134)',
};

export interface AdpReport {
  readonly study: AdpStudy;
  readonly pareto?: Pareto;
}

/** One HTML page that needs nothing but itself. */
export function adpReport({ study, pareto }: AdpReport): string {
  const names = study.rows.map(({ name }) => name);
  const runs = names.map((name) => runCharts(study.logs[name]!));
  const scale = scaleOf(runs);
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention data parallelism: balance</title><style>${STYLE}</style></head>
<body>
<h1>Attention data parallelism: when contexts run</h1>
<p class="soft">A simulation: splitkv's scheduler on a clock. Every number here is predicted by the model below, none is measured.</p>
<h2>Result</h2>
<p class="soft">balance: ratio of average to most tokens over ranks, the mean over iterations; weighed: iterations by the most loaded rank's tokens. SOL TPS: what perfect
balance of the same iterations would give. TTFT: mean time to first token.</p>
<div class="scroll" role="region" aria-label="Result" tabindex="0">${table(study.rows, study.checks ? study.published : [])}</div>
${study.checks ? publishedChecks(study.checks) : ''}
<h2>Lengths of requests</h2>
${lengthsSection(study.lengths)}
<h2>Tokens per rank and balance</h2>
<p class="soft">Left:<span class="key blue"></span>mean over ranks, shaded from the least to the most loaded one.
Right:<span class="key orange"></span>balance ratio, shaded where the middle 80% of iterations lie. Means over stretches of iterations; the
strip below shows some iterations one by one, a line for each rank. All runs have the same scales.</p>
${runs.map((run, index) => runSection(ROW_TITLES[names[index]!], run, scale)).join('\n')}
${pareto ? paretoSection(pareto) : ''}
<h2>Parameters</h2>
<dl>${Object.entries(study.parameters)
    .map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(shown(value))}</dd>`)
    .join('')}</dl>
</body></html>
`;
}

/** What else is published of the baseline, and what of all this is fitted. */
function publishedChecks(checks: readonly PublishedCheck[]): string {
  const rows = checks.map(({ title, unit, published, simulated, kind }) => {
    const text = unit === 'share' ? percent : whole;
    return `<tr><td>${title}</td><td>${text(simulated)}</td><td class="quiet">${text(published)}</td><td>${kind}</td></tr>`;
  });
  return `<div class="scroll" role="region" aria-label="The published baseline" tabindex="0"><table><thead><tr><td></td><th>simulated</th>
<th>published</th><th></th></tr></thead><tbody>${rows.join('')}</tbody></table></div>
<p class="soft">Published: NVIDIA, "ADP Balance Strategy", DeepSeek-V3 on 8 GB200. ${PUBLISHED_NOTES.join(' ')}</p>`;
}

function table(rows: readonly AdpRow[], published: readonly PublishedRow[]): string {
  const cells = rows.map((row) => {
    const known = published.find(({ name }) => name === row.name);
    const beside = (text: string | undefined): string =>
      published.length > 0 ? `<td class="quiet">${text ?? ''}</td>` : '';
    return `<tr><td>${ROW_TITLES[row.name]}</td>
<td>${whole(row.tps)}</td>${beside(known && whole(known.tps))}
<td>${percent(row.balance)}</td>${beside(known && percent(known.balance))}
<td>${percent(row.weighed_balance)}</td>
<td>${whole(row.sol_tps)}</td>${beside(known && whole(known.sol_tps))}
<td>${row.speedup.toFixed(2)}</td>${beside(known && known.speedup.toFixed(2))}
<td>${row.mean_ttft_s.toFixed(2)}</td><td>${row.p95_ttft_s.toFixed(2)}</td><td>${whole(row.iterations)}</td></tr>`;
  });
  const beside = published.length > 0 ? '<th>published</th>' : '';
  return `<table><thead><tr><td></td><th>TPS</th>${beside}<th>balance</th>${beside}<th>weighed</th><th>SOL TPS</th>${beside}<th>speedup</th>${beside}
<th>TTFT s</th><th>p95 TTFT s</th><th>iterations</th></tr></thead><tbody>${cells.join('')}</tbody></table>`;
}

function paretoSection({ points, fronts }: Pareto): string {
  const charts = fronts.map(({ concurrency, points: front }) => {
    const own = points.filter((point) => point.concurrency === concurrency);
    return `<h3>${whole(concurrency)} requests open</h3>${paretoChart(own, front)}`;
  });
  return `<h2>Throughput against time to first token</h2>
<p class="soft"><span class="entry"><span class="key blue"></span>timeout_iters / batching_wait_iters</span>
<span class="entry"><span class="key grey"></span>baseline</span> <span class="entry"><span class="key green"></span>cost (ours)</span> The line joins
those that none beats in both. Time to first token is a mean and includes the queue.</p>
${charts.join('\n')}`;
}

function paretoChart(points: readonly ParetoPoint[], front: readonly ParetoPoint[]): string {
  const of = (policy: ParetoPoint['policy'], style: string): Mark => {
    const own = points.filter((point) => point.policy === policy);
    const label = ({ timeout_iters: timeout, batching_wait_iters: batching }: ParetoPoint): string =>
      policy === 'balance' ? `${timeout} / ${batching}` : policy;
    return { kind: 'dots', style, points: own.map(place), labels: own.map(label) };
  };
  const range = (of: (point: ParetoPoint) => number, part: number) => padded(points.map(of), part);
  return chart({
    width: 1100,
    height: 420,
    title: 'Throughput a rank against mean time to first token',
    x: { label: 'mean time to first token, seconds', range: range(({ ttft_mean_s: ttft }) => ttft, 0.09) },
    y: { label: 'tokens per second and rank', range: range(({ tps_per_rank: tps }) => tps, 0.08) },
    marks: [
      { kind: 'line', style: 'blue', points: front.map(place) },
      of('balance', 'blue'),
      of('baseline', 'grey'),
      of('cost', 'green'),
    ],
  });
}

const place = (point: ParetoPoint): Point => [point.ttft_mean_s, point.tps_per_rank];

function padded(values: readonly number[], part: number): readonly [number, number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const pad = Math.max((high - low) * part, Math.abs(high) * 1e-3, 1e-9);
  return [low - pad, high + pad];
}

const whole = (value: number): string => Math.round(value).toLocaleString('en-US');
const percent = (value: number): string => `${(value * 100).toFixed(2)}%`;
const shown = (value: unknown): string =>
  typeof value === 'number'
    ? String(Number(value.toPrecision(6)))
    : typeof value === 'string'
      ? value
      : JSON.stringify(value);
