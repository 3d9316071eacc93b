/** Head arrangement on a page: a profile of per-head loads, arranged over ranks in any mode. */
import { defined } from '../../src/base/options.js';
import {
  type ArrangementProblem,
  type Mode,
  MODES,
  parseProfile,
  toArrangementFile,
} from '../../src/arrangement/index.js';
import { layerCharts, summaryRows, verdict } from './arrange_view.js';
import type { ArrangeResult } from './arrange_worker.js';
import { element } from '../shared/elements.js';
import { exampleProfile } from './example_profile.js';
import { RunForm } from '../shared/run_form.js';
import { runJob } from '../shared/worker_job.js';

const profile = element('profile', HTMLTextAreaElement);
const save = element('save', HTMLAnchorElement);
/** Copies where whole heads leave ranks idle. */
const DEFAULT_MODE = 'default';

const form: RunForm = new RunForm(async (signal) => {
  const { model, layers } = parseProfile(profile.value);
  const [copies, memory, batch] = [form.number('copies'), form.number('memory'), form.number('batch')];
  const problem: ArrangementProblem = {
    loads: layers,
    ranks: form.number('ranks')!,
    ...(form.text('mode') !== DEFAULT_MODE && { mode: form.text('mode') as Mode }),
    ...defined({ copies, memory, batch }),
  };
  const started = performance.now();
  const worker = new Worker(new URL('./arrange_worker.ts', import.meta.url), { type: 'module' });
  const { before, after } = await runJob<ArrangementProblem, ArrangeResult>(worker, problem, signal);
  element('verdict', HTMLParagraphElement).textContent = verdict(before, after);
  element('rows', HTMLTableSectionElement).replaceChildren(...summaryRows(before, after));
  element('layers', HTMLDivElement).replaceChildren(...layerCharts(layers, before, after));
  URL.revokeObjectURL(save.href);
  const file = JSON.stringify(toArrangementFile(model, problem.ranks, after));
  save.href = URL.createObjectURL(new Blob([file], { type: 'application/json' }));
  element('result', HTMLElement).hidden = false;
  return `Arranged in ${((performance.now() - started) / 1000).toFixed(2)} s.`;
});

function fill(name: string, values: readonly string[], chosen: string): void {
  const select = form.form.elements.namedItem(name) as HTMLSelectElement;
  select.replaceChildren(...values.map((value) => new Option(value, value, value === chosen, value === chosen)));
}

function useExample(): void {
  const numbers = ['layers', 'heads', 'seed'].map((name) => form.number(`example-${name}`)!);
  const { model, kv_budget, layers } = exampleProfile(numbers[0]!, numbers[1]!, numbers[2]!);
  const rows = layers.map((layer) => `  [${layer.join(', ')}]`).join(',\n');
  profile.value = `{"model": ${JSON.stringify(model)}, "kv_budget": ${kv_budget}, "layers": [\n${rows}\n]}`;
}

fill('mode', [DEFAULT_MODE, ...MODES], DEFAULT_MODE);
useExample();
element('example', HTMLButtonElement).addEventListener('click', () => {
  useExample();
  void form.start();
});
const file = element('file', HTMLInputElement);
file.addEventListener('change', () => {
  const [chosen] = file.files ?? [];
  void chosen?.text().then((text) => {
    profile.value = text;
    return form.start();
  });
});
void form.start();
