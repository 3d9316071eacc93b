/** The simulator on a page: the scheduler's policies on a clock, with any numbers. */
import { adpReport } from '../../bench/simulate/report/adp_report.js';
import { element } from '../shared/elements.js';
import { RunForm } from '../shared/run_form.js';
import type { SimulateRequest, SimulateResult } from './simulate_worker.js';
import { runJob } from '../shared/worker_job.js';

const report = element('report', HTMLIFrameElement);
const section = element('result', HTMLElement);

const form: RunForm = new RunForm(async (signal, say) => {
  const started = performance.now();
  const number = (name: string): number => form.number(name)!;
  const request: SimulateRequest = {
    requests: number('requests'),
    ranks: number('ranks'),
    meanInput: number('mean-in'),
    meanOutput: number('mean-out'),
    maxBatch: number('max-batch'),
    maxTokensPerIteration: number('max-tokens'),
    concurrency: number('concurrency'),
    timeoutIters: number('timeout'),
    batchingWaitIters: number('batching-wait'),
    seed: number('seed'),
    pareto: (form.form.elements.namedItem('pareto') as HTMLInputElement).checked,
  };
  const worker = new Worker(new URL('./simulate_worker.ts', import.meta.url), { type: 'module' });
  const result = await runJob<SimulateRequest, SimulateResult>(worker, request, signal, say);
  // The report is a page of its own, the very one that the command line writes.
  report.srcdoc = adpReport(result);
  section.hidden = false;
  const [baseline, , , cost] = result.study.rows;
  return (
    `Done in ${((performance.now() - started) / 1000).toFixed(1)} s: the cost policy makes ${(cost!.tps / baseline!.tps).toFixed(2)} ` +
    `times as many tokens per second as the baseline.`
  );
});

// As tall as what is in it: nothing scrolls within something that scrolls.
report.addEventListener('load', () => {
  const { documentElement } = report.contentDocument!;
  const fit = (): void => void (report.style.height = `${documentElement.scrollHeight}px`);
  fit();
  new ResizeObserver(fit).observe(documentElement);
});
