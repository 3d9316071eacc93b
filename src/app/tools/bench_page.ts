/**
 * Room: the other pages, a file each with what only it needs: benchmarks (here), head arrangement, the simulator and
 * the chat page. Long work runs in workers.
 */

/** Benchmarks on a page: the suites of the command line, run in this browser, with their plots. */
import '../shared/site_nav.js';
import { chartsOf } from '../../../bench/report/charts.js';
import { chartSvg, legendHtml } from '../../../bench/report/svg.js';
import { escapeHtml } from '../../base/html.js';
import type { BenchDocument } from '../../../bench/document.js';
import { KERNEL_FOLDERS } from '../../../bench/kernel_suites.js';
import { runSuite, type SuiteRequest } from '../../../bench/run_suite.js';
import { usageError } from '../../base/errors.js';
import type { WeightType } from '../../index.js';
import { element } from '../shared/dom.js';
import { EMBEDDED_MODEL } from '../shared/example.js';
import { RunForm } from '../shared/run_form.js';

const results = element('table', HTMLPreElement);
const plots = element('plots', HTMLDivElement);
const save = element('save', HTMLAnchorElement);
const suite = element('suite', HTMLSelectElement);

function request(form: RunForm): SuiteRequest {
  const runs = form.number('runs')!;
  const name = suite.value;
  if (name === 'kernels') {
    const kernel = form.text('kernel');
    return {
      suite: 'kernels',
      runs,
      adapter: { powerPreference: 'high-performance' },
      ...(kernel !== '' && { kernel }),
    };
  }
  const prompts = form.text('prompts').trim();
  const answers = {
    model: new URL(form.text('model'), document.baseURI).href,
    loads: weights(form.text('weights')).map((type) => ({ weights: type })),
    runs,
    ...(prompts !== '' && { promptTokens: prompts.split(',').map(wholeNumber) }),
  };
  if (name === 'prefill') return { suite: 'prefill', ...answers };
  return { suite: 'decode', ...answers, maxTokens: form.number('tokens')! };
}

const weights = (text: string): WeightType[] => text.split(',').map((type) => type.trim() as WeightType);

function wholeNumber(text: string): number {
  if (!/^[1-9]\d*$/.test(text.trim())) {
    throw usageError(`prompt lengths "${text}": expected whole numbers with commas between, such as 32, 128`);
  }
  return Number(text);
}

const form: RunForm = new RunForm(async (signal, say) => {
  const { table, ...outcome } = await runSuite(request(form), { signal, onProgress: say, onWarning: say });
  const environment = {
    date: new Date().toISOString(),
    host: 'chrome',
    chrome: navigator.userAgent,
    cpu_threads: navigator.hardwareConcurrency,
    adapters: outcome.adapters,
  };
  const record = { suite: suite.value, environment, ...outcome };
  results.textContent = table;
  // Plots are made of names and numbers of ours, and escaped.
  plots.innerHTML = chartsOf(record as unknown as BenchDocument<unknown>)
    .map(
      (chart) =>
        `<figure><figcaption>${escapeHtml(chart.title)} <span>${escapeHtml(chart.unit)}</span></figcaption>${legendHtml(chart)}${chartSvg(chart)}</figure>`,
    )
    .join('');
  URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([JSON.stringify(record, null, 1)], { type: 'application/json' }));
  element('result', HTMLElement).hidden = false;
  const software = outcome.adapters.some((adapter) => adapter.software);
  const on = [...new Set(outcome.adapters.map(({ name }) => name))].join(' and ');
  return `Done on ${on}${software ? ': a software adapter, where only ratios within a run mean anything' : ''}.`;
});

function showFields(): void {
  for (const field of form.form.querySelectorAll<HTMLElement>('[data-suites]')) {
    field.hidden = !field.dataset['suites']!.split(' ').includes(suite.value);
  }
}

const kernels = form.form.elements.namedItem('kernel') as HTMLSelectElement;
kernels.replaceChildren(new Option('every kernel', ''), ...KERNEL_FOLDERS.map((folder) => new Option(folder, folder)));
(form.form.elements.namedItem('model') as HTMLInputElement).value = EMBEDDED_MODEL;
suite.addEventListener('change', showFields);
showFields();
