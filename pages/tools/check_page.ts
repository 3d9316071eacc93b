/**
 * Room: the other pages, a file each with what only it needs: the check (here: whether this browser's GPU computes rightly, and how
 * fast, as a line to copy and a file to send), head arrangement, the simulator, GPUs; `bench` has the benchmarks. Long work runs in
 * workers.
 */

import type { Measurement } from '../../bench/document.js';
import { KERNEL_FOLDERS } from '../../bench/kernel_suites.js';
import { runSuite } from '../../bench/run_suite.js';
import { readSubmission, submissionFile } from '../../bench/submissions.js';
import type { KernelCheck } from '../../bench/suites/check.js';
import type { GpuResult } from '../../bench/suites/gpu.js';
import { version } from '../../package.json';
import { median } from '../../src/base/stats.js';
import { EMBEDDED_MODEL } from '../../models/example.js';
import { element } from '../shared/elements.js';
import { RunForm } from '../shared/run_form.js';
import { requestOf } from './bench/bench_suites.js';
import { environmentOf, type PageEnvironment } from './bench/shared_result.js';

const table = element('table', HTMLPreElement);
const line = element('line', HTMLOutputElement);
const copy = element('copy', HTMLButtonElement);
const save = element('save', HTMLAnchorElement);

const form: RunForm = new RunForm(async (signal, say) => {
  const began = performance.now();
  const seconds = (): number => (performance.now() - began) / 1000;
  const kernel = form.text('kernel');
  const hooks = { signal, onProgress: say, onWarning: say };
  const model = new URL(form.text('model'), document.baseURI).href;
  const run = await runSuite(
    { suite: 'check', adapter: {}, model, load: {}, runs: 3, ...(kernel !== '' && { kernel }) },
    hooks,
  );
  const environment = environmentOf(run.adapters, version);
  const lines = run.table.trimEnd().split('\n');
  line.textContent = `${lines.at(-1)} | ${environment.browser}`;
  table.textContent = lines.slice(0, -1).join('\n').trimEnd();
  copy.textContent = 'Copy the line';
  const results = checkParts(run.results as readonly KernelCheck[], run.measurements, seconds());
  offer(environment, results);
  element('result', HTMLElement).hidden = false;
  if ((form.form.elements.namedItem('all') as HTMLInputElement).checked) {
    const [{ GPU_PARTS }, { peersResult }] = await Promise.all([
      import('../../bench/suites/gpu.js'),
      import('../../bench/peers/gpu_part.js'),
    ]);
    const parts = GPU_PARTS.map(({ name }) => name).filter((name) => name !== 'correct');
    const adapter = { powerPreference: 'high-performance' } as const;
    const measured = await runSuite({ suite: 'gpu', adapter, models: [model], load: {}, parts, seconds: 480 }, hooks);
    for (const part of measured.results as Omit<GpuResult, 'host'>[]) results.push({ ...part, host: 'page' });
    offer(environment, results);
    const peers = await peersResult('page', () =>
      runSuite(
        requestOf('peers', { text: (field) => PEERS[field] ?? (field === 'model' ? model : ''), weights: [] }),
        hooks,
      ),
    );
    results.push(peers);
    offer(environment, results);
    table.textContent += `\n\n${measured.table}`;
  }
  return run.failed ? 'Done: some kernels are wrong on this GPU.' : 'Done: every kernel is right.';
});

const PEERS: Readonly<Record<string, string>> = { weight: 'q4', prompts: '128', tokens: '8', runs: '3' };

/** What was checked, as parts of the suite `gpu`. */
function checkParts(
  kernels: readonly KernelCheck[],
  measurements: readonly Measurement[],
  seconds: number,
): GpuResult[] {
  return [
    {
      part: 'correct',
      title: "Every kernel's cases against their float64 references",
      host: 'page',
      seconds,
      rows: kernels.map(({ kernel, cases, wrong }) => ({
        kernel,
        cases,
        wrong: wrong.length,
        first: wrong[0]?.case ?? '',
      })),
    },
    {
      part: 'answers',
      title: 'A model that answers, and a matrix that is read',
      host: 'page',
      seconds,
      rows: measurements.map(({ metric, unit, setting, samples }) => ({
        what: metric,
        ...setting,
        [unit]: median(samples),
      })),
    },
  ];
}

/** What was measured until now, to save. */
function offer(environment: PageEnvironment, results: readonly GpuResult[]): void {
  const json = `${JSON.stringify({ suite: 'gpu', environment, results }, null, 1)}\n`;
  URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([json], { type: 'application/json' }));
  save.download = submissionFile(readSubmission(json, 'this result'));
}

copy.addEventListener('click', () => {
  navigator.clipboard.writeText(line.value).then(
    () => (copy.textContent = 'Copied'),
    () => getSelection()?.selectAllChildren(line), // not allowed here: the person copies what is selected
  );
});

// The address may name both.
const query = new URLSearchParams(location.search);
const kernels = form.form.elements.namedItem('kernel') as HTMLSelectElement;
kernels.replaceChildren(new Option('every kernel', ''), ...KERNEL_FOLDERS.map((folder) => new Option(folder, folder)));
kernels.value = query.get('kernel') ?? '';
(form.form.elements.namedItem('model') as HTMLInputElement).value = query.get('model') ?? EMBEDDED_MODEL;
