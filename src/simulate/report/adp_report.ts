/**
 * Room: a simulation as an HTML page for people: what was asked, a table of policies, and plots over iterations
 * (run_section.ts). bins.ts makes few points of many, chart.ts draws.
 */

import type { AdpRow, RowName } from '../adp_row.js';
import type { AdpStudy } from '../adp_study.js';
import { type ParetoPoint, paretoFront } from '../pareto.js';
import type { PublishedRow } from '../published_run.js';
import { escapeHtml } from '../../base/html.js';
import { chart, type Mark } from './chart.js';
import { runCharts, runSection, scaleOf } from './run_section.js';
import { STYLE } from './style.js';

export const ROW_TITLES: Readonly<Record<RowName, string>> = {
  baseline: 'Baseline',
  context_wait: 'Context wait (timeout_iters)',
  full: 'Full (and batching_wait_iters)',
  cost: 'Cost (ours)',
};

export interface AdpReport {
  readonly study: AdpStudy;
  readonly pareto: readonly ParetoPoint[];
  /** Whether the published rows are of this very run. */
  readonly published: boolean;
}

/** One HTML page that needs nothing but itself. */
export function adpReport({ study, pareto, published }: AdpReport): string {
  const names = study.rows.map(({ name }) => name);
  const runs = names.map((name) => runCharts(study.logs[name]));
  const scale = scaleOf(runs);
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention data parallelism: balance</title><style>${STYLE}</style></head>
<body>
<h1>Attention data parallelism: when contexts run</h1>
<p class="soft">A simulation: splitkv's scheduler on a clock. Every number here is predicted by the model below, none is measured.</p>
<h2>Result</h2>
<p class="soft">balance: mean ratio of average to most tokens over ranks, iterations weighed by the most loaded rank's tokens. SOL TPS: what perfect
balance of the same iterations would give. TTFT: mean time to first token.</p>
<div class="scroll" role="region" aria-label="Result" tabindex="0">${table(study.rows, published ? study.published : [])}</div>
${published ? PUBLISHED_NOTE : ''}
<h2>Tokens per rank and balance</h2>
<p class="soft">Left:<span class="key blue"></span>mean over ranks, shaded from the least to the most loaded one.
Right:<span class="key orange"></span>balance ratio, shaded where the middle 80% of iterations lie. Means over stretches of iterations; the
strip below shows some iterations one by one, a line for each rank. All runs have the same scales.</p>
${runs.map((run, index) => runSection(ROW_TITLES[names[index]!], run, scale)).join('\n')}
<h2>Throughput against time to first token</h2>
<p class="soft"><span class="entry"><span class="key blue"></span>timeout_iters / batching_wait_iters; the line joins those that none beats in both</span>
<span class="entry"><span class="key grey"></span>baseline</span> <span class="entry"><span class="key green"></span>cost (ours)</span></p>
${paretoChart(study.rows, pareto)}
<h2>Parameters</h2>
<dl>${Object.entries(study.parameters)
    .map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(shown(value))}</dd>`)
    .join('')}</dl>
</body></html>
`;
}

const PUBLISHED_NOTE = `<p class="soft">Published: NVIDIA, "ADP Balance Strategy", DeepSeek-V3 on 8 GB200. The model's constants and the tails of
the lengths are fitted on the published baseline; context wait and full are predictions, and cost was never published.</p>`;

function table(rows: readonly AdpRow[], published: readonly PublishedRow[]): string {
  const cells = rows.map((row) => {
    const known = published.find(({ name }) => name === row.name);
    const beside = (text: string | undefined): string =>
      published.length > 0 ? `<td class="quiet">${text ?? ''}</td>` : '';
    return `<tr><td>${ROW_TITLES[row.name]}</td>
<td>${whole(row.tps)}</td>${beside(known && whole(known.tps))}
<td>${percent(row.balance)}</td>${beside(known && percent(known.balance))}
<td>${whole(row.sol_tps)}</td>${beside(known && whole(known.sol_tps))}
<td>${row.speedup.toFixed(2)}</td>${beside(known && known.speedup.toFixed(2))}
<td>${row.mean_ttft_s.toFixed(2)}</td><td>${row.p95_ttft_s.toFixed(2)}</td><td>${whole(row.iterations)}</td></tr>`;
  });
  const beside = published.length > 0 ? '<th>published</th>' : '';
  return `<table><thead><tr><td></td><th>TPS</th>${beside}<th>balance</th>${beside}<th>SOL TPS</th>${beside}<th>speedup</th>${beside}
<th>TTFT s</th><th>p95 TTFT s</th><th>iterations</th></tr></thead><tbody>${cells.join('')}</tbody></table>`;
}

function paretoChart(rows: readonly AdpRow[], grid: readonly ParetoPoint[]): string {
  const single = (name: RowName, style: string): Mark[] =>
    rows
      .filter((row) => row.name === name)
      .map(({ mean_ttft_s, tps }) => ({ kind: 'dots', style, points: [[mean_ttft_s, tps]], labels: [name] }));
  const front = paretoFront(grid);
  const shown = [...grid, ...rows.filter(({ name }) => name === 'baseline' || name === 'cost')];
  return chart({
    width: 1100,
    height: 420,
    title: 'Throughput against mean time to first token',
    x: {
      label: 'mean time to first token, seconds',
      range: padded(
        shown.map(({ mean_ttft_s }) => mean_ttft_s),
        0.09,
      ),
    },
    y: {
      label: 'tokens per second',
      range: padded(
        shown.map(({ tps }) => tps),
        0.08,
      ),
    },
    marks: [
      { kind: 'line', style: 'blue', points: front.map(({ mean_ttft_s, tps }) => [mean_ttft_s, tps]) },
      {
        kind: 'dots',
        style: 'blue',
        points: grid.map(({ mean_ttft_s, tps }) => [mean_ttft_s, tps]),
        labels: grid.map(({ timeout_iters, batching_wait_iters }) => `${timeout_iters} / ${batching_wait_iters}`),
      },
      ...single('baseline', 'grey'),
      ...single('cost', 'green'),
    ],
  });
}

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
