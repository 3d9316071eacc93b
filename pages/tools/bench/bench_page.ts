/**
 * Room: benchmarks on a page. Here the form and what came of it; bench_suites.ts turns the form into what a suite is
 * asked, shared_result.ts puts a result into an address and takes it out again. The plots are those of bench/report.
 */

/** The suites of the command line, run in this browser, with their plots; a result of somebody else's is in the address. */
import { chartsOf } from '../../../bench/report/charts.js';
import { chartSvg, legendHtml } from '../../../bench/report/svg.js';
import { KERNEL_FOLDERS } from '../../../bench/kernel_suites.js';
import { runSuite } from '../../../bench/run_suite.js';
import { version } from '../../../package.json';
import { escapeHtml } from '../../../bench/report/html.js';
import { copyOnClick } from '../../shared/copy.js';
import { pair } from '../../../src/app/shared/dom.js';
import { element } from '../../shared/elements.js';
import { EMBEDDED_MODEL } from '../../../models/example.js';
import { RunForm } from '../../shared/run_form.js';
import { type Field, FIELDS, requestOf, SUITES, type SuiteName } from './bench_suites.js';
import {
  environmentOf,
  environmentRows,
  markdownOf,
  readShared,
  type SharedResult,
  sharedAddress,
} from './shared_result.js';

const suite = element('suite', HTMLSelectElement);
const save = element('save', HTMLAnchorElement);
const chosen = (): SuiteName => suite.value as SuiteName;
let shown: SharedResult | undefined;
/** Its address: made ahead, as a click may copy only what is there. */
let link = '';

async function show(result: SharedResult, title: string): Promise<void> {
  shown = result;
  element('result-title', HTMLHeadingElement).textContent = title;
  element('table', HTMLPreElement).textContent = result.table;
  element('environment', HTMLDListElement).replaceChildren(
    ...environmentRows(result.environment).map(([name, text]) => pair(name, text)),
  );
  // Plots are made of names and numbers, escaped.
  element('plots', HTMLDivElement).innerHTML = chartsOf(result)
    .map(
      (chart) =>
        `<figure><figcaption>${escapeHtml(chart.title)} <span>${escapeHtml(chart.unit)}</span></figcaption>${legendHtml(chart)}` +
        `<div class="scroll" role="region" tabindex="0" aria-label="${escapeHtml(chart.title)}">${chartSvg(chart)}</div></figure>`,
    )
    .join('');
  URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([jsonOf(result)], { type: 'application/json' }));
  save.download = `splitkv-${result.suite}.json`;
  element('result', HTMLElement).hidden = false;
  link = await sharedAddress(result);
}

const jsonOf = (result: SharedResult): string => JSON.stringify(result, null, 1);

const form: RunForm = new RunForm(async (signal, say) => {
  element('result', HTMLElement).hidden = true; // of another run
  const begun = performance.now();
  const progress = (line: string): void => say(`${((performance.now() - begun) / 1000).toFixed(0)} s: ${line}`);
  const name = chosen();
  const request = requestOf(name, {
    text: (field) => form.text(field).trim(),
    weights: [...form.form.querySelectorAll<HTMLInputElement>('[name=weights]:checked')].map(({ value }) => value),
  });
  const { table, leftOut, failed, ...outcome } = await runSuite(request, {
    signal,
    onProgress: progress,
    onWarning: progress,
  });
  const environment = environmentOf(outcome.adapters, version);
  await show({ suite: name, environment, ...outcome, ...(leftOut && { left_out: leftOut }), table }, 'Results');
  const on = [...new Set(outcome.adapters.map((adapter) => adapter.name))].join(' and ');
  const note = environment.note === undefined ? '' : `: a ${environment.note}`;
  return `${failed ? 'Something is wrong, see below. ' : ''}Done on ${on || 'no adapter'}${note}.`;
});

function showFields(): void {
  const { usual, about } = SUITES[chosen()];
  element('about', HTMLParagraphElement).textContent = about;
  for (const field of FIELDS) {
    const input = form.form.elements.namedItem(field) as HTMLInputElement;
    input.closest('label')!.hidden = !(field in usual);
    input.placeholder = usual[field] ?? '';
  }
  for (const part of form.form.querySelectorAll<HTMLElement>('[data-suites]')) {
    part.hidden = !part.dataset['suites']!.split(' ').includes(suite.value);
  }
}

/** A result that the address holds: of somebody who sent it, or of oneself before. */
async function showShared(): Promise<void> {
  if (!location.hash.startsWith('#result=')) return;
  const problem = element('error', HTMLElement);
  try {
    const result = await readShared(location.hash);
    await show(result, 'A result that was sent to you');
    if (result.suite in SUITES) suite.value = result.suite;
    showFields();
    problem.hidden = true;
  } catch (error) {
    element('error-text', HTMLParagraphElement).textContent = (error as Error).message;
    problem.hidden = false;
  }
}

suite.replaceChildren(...Object.entries(SUITES).map(([name, { title }]) => new Option(`${name}: ${title}`, name)));
const kernels = form.form.elements.namedItem('kernel') as HTMLSelectElement;
kernels.replaceChildren(new Option('every kernel', ''), ...KERNEL_FOLDERS.map((folder) => new Option(folder, folder)));
(form.form.elements.namedItem('model' satisfies Field) as HTMLInputElement).value = EMBEDDED_MODEL;
suite.addEventListener('change', showFields);
showFields();
copyOnClick(element('copy-markdown', HTMLButtonElement), () => markdownOf(shown!, link));
copyOnClick(element('copy-json', HTMLButtonElement), () => jsonOf(shown!));
copyOnClick(element('copy-link', HTMLButtonElement), () => link);
addEventListener('hashchange', () => void showShared());
void showShared();
