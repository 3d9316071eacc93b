import { escapeHtml, pageHtml } from './html.js';
import type { BenchDocument } from '../document.js';
import { gpuCells, type GpuResult } from '../suites/gpu.js';
import { environmentLines } from '../table.js';
import { REPORT_CSS } from './css.js';
import { row, tableHtml } from './report.js';

/** What a GPU answered, as a page of tables that needs nothing beside it. */
export function gpuPageHtml({ environment, results }: BenchDocument<GpuResult>): string {
  const { note, ...measured } = environment;
  const descriptions = environment.adapters.map(
    ({ name, vendor, architecture, description, variants }) =>
      `${name}: ${[vendor, architecture, description].filter((part) => part !== '').join(', ')}; ${variants} variants`,
  );
  const skipped = results.filter(({ left_out: why }) => why !== undefined);
  return pageHtml(
    'splitkv bench: gpu',
    REPORT_CSS,
    `<p class="environment">${escapeHtml([environmentLines(measured).trim(), ...descriptions].join('\n')).replaceAll('\n', '<br>')}</p>
${note === undefined ? '' : `<p class="note" role="note">${escapeHtml(note)}</p>`}
${skipped.length === 0 ? '' : `<section><h2>Left out</h2><ul>${skipped.map(({ title, left_out: why }) => `<li>${escapeHtml(`${title}: ${why}`)}</li>`).join('')}</ul></section>`}
${results
  .filter(({ rows }) => rows.length > 0)
  .map(section)
  .join('\n')}`,
  );
}

function section({ title, host, seconds, rows }: GpuResult): string {
  const { columns, lines } = gpuCells(rows);
  const heading = escapeHtml(`${title}${host === 'chrome' ? ', in Chrome' : ''}`);
  const body = lines.map((line) => row(line.map(escapeHtml)));
  return `<section><h2>${heading}</h2>${tableHtml(heading, columns.map(escapeHtml), body)}<p class="environment">${seconds.toFixed(1)} s</p></section>`;
}
