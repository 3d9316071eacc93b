/**
 * Room: results as an HTML file that needs nothing beside it, plots included. charts.ts says what is plotted, svg.ts
 * draws.
 */

import type { SuiteDocument, Comparison } from '../document.js';
import { comparisonTable, decimals, environmentLines, ratio, settingText } from '../table.js';
import { medianEstimate } from '../statistics.js';
import { type Chart, chartsOf } from './charts.js';
import { REPORT_CSS } from './css.js';
import { pageHtml } from './html.js';
import { escapeHtml } from './html.js';
import { chartSvg, legendHtml } from './svg.js';

/**
 * A report for people: one HTML file that needs nothing beside it, light or dark as the reader's system is.
 * @param table the suite's own table of results
 */
export function reportHtml(document: SuiteDocument, table: string): string {
  const { suite, comparison } = document;
  const { note, ...environment } = document.environment;
  const title = `splitkv bench: ${suite}`;
  return pageHtml(
    title,
    REPORT_CSS,
    `<p class="environment">${escapeHtml(environmentLines(environment).trim()).replaceAll('\n', '<br>')}</p>
${note === undefined ? '' : `<p class="note" role="note">${escapeHtml(note)}</p>`}
${comparison ? comparisonSection(comparison) : ''}
<section aria-labelledby="plots"><h2 id="plots">Plots</h2>
<p>Each bar or dot is a median; the line through it is its 95% interval, the small dots are the samples.</p>
${chartsOf(document).map(chartFigure).join('\n')}
</section>
<section aria-labelledby="results"><h2 id="results">Results</h2>
<pre tabindex="0" aria-labelledby="results">${escapeHtml(table)}</pre>
${measurementsTable(document)}
</section>`,
  );
}

const chartFigure = (chart: Chart): string =>
  `<figure><figcaption>${escapeHtml(chart.title)} <span>${escapeHtml(chart.unit)}</span></figcaption>${legendHtml(chart)}${chartSvg(chart)}</figure>`;

function comparisonSection(comparison: Comparison): string {
  const [heading] = comparisonTable(comparison).split('\n');
  const notes = comparison.differences.map((difference) => `<li>${escapeHtml(difference)}</li>`);
  const rows = comparison.changes.map(({ metric, setting, unit, before, after, gain, verdict }) =>
    row([
      escapeHtml(metric),
      escapeHtml(settingText(setting)),
      before === undefined ? '-' : escapeHtml(`${decimals(before)} ${unit}`),
      after === undefined ? '-' : escapeHtml(`${decimals(after)} ${unit}`),
      gain === undefined ? '-' : ratio(gain),
      `<span class="${verdict}">${verdict}</span>`,
    ]),
  );
  return `<section aria-labelledby="changes"><h2 id="changes">${escapeHtml(heading!.slice(0, -1))}</h2>
${notes.length === 0 ? '' : `<p class="note">Not like for like:</p><ul>${notes.join('')}</ul>`}
${tableHtml('What changed', ['metric', 'setting', 'before', 'now', 'gain (95%)', ''], rows)}
<p>A gain above 1 is better now; 'unclear' means that the interval holds 1.</p></section>`;
}

function measurementsTable({ measurements = [] }: SuiteDocument): string {
  if (measurements.length === 0) return '';
  const rows = measurements.map(({ metric, unit, setting, samples }) => {
    const { value, low, high } = medianEstimate(samples);
    const cells = [metric, settingText(setting), `${decimals(value)} ${unit}`, `${decimals(low)} to ${decimals(high)}`];
    return row([...cells, samples.map(decimals).join(' ')].map(escapeHtml));
  });
  return `<details><summary>All samples</summary>${tableHtml('All samples', ['metric', 'setting', 'median', '95%', 'samples'], rows)}</details>`;
}

export const row = (cells: readonly string[]): string => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`;

export const tableHtml = (name: string, headings: readonly string[], rows: readonly string[]): string =>
  `<div class="scroll" tabindex="0" role="region" aria-label="${name}"><table><thead><tr>${headings.map((text) => (text === '' ? '<td></td>' : `<th scope="col">${text}</th>`)).join('')}</tr></thead><tbody>${rows.join('')}</tbody></table></div>`;
