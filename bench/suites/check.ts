import { alignedTable } from '../../src/base/aligned_table.js';
import { SplitkvError, throwIfAborted } from '../../src/base/errors.js';
import { type AdapterRequest, type Device, openDevice } from '../../src/gpu/index.js';
import { prepareCase } from '../../src/gpu/testing/run_kernel.js';
import { measureRates } from '../adapter_rates.js';
import type { Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import { type AnyKernelSuite, kernelFolders, loadKernelSuite } from '../kernel_suites.js';
import { decimals } from '../table.js';
import type { PlainLoadOptions } from './answers.js';
import { runDecode } from './decode.js';
import { isWanted, type KernelResult, timeCases, wrongOutput } from './kernels.js';
import { runPrefill } from './prefill.js';

export interface CheckRequest {
  readonly suite: 'check';
  /** Part of a kernel's folder; undefined: every kernel. */
  readonly kernel?: string;
  readonly adapter: AdapterRequest;
  readonly model: string;
  readonly load: PlainLoadOptions;
  readonly runs: number;
}

/** A kernel on this adapter: how many of its cases ran, and which disagreed with their float64 references, or failed. */
export interface KernelCheck {
  readonly kernel: string;
  readonly cases: number;
  readonly wrong: readonly { readonly case: string; readonly problem: string }[];
}

export interface CheckOutcome extends SuiteOutcome<KernelCheck> {
  /** All of it in one line that a person can copy: no text of the model, nothing of the person's. */
  readonly line: string;
}

/** A generated token reads every weight once: what `linear` reaches of the copy bandwidth, on a matrix of 8 MiB. */
const READ_CASE = 'matvec 2048 x 2048, f16';
const PROMPT_TOKENS = 256;
const MAX_TOKENS = 32;

/**
 * Whether every kernel computes rightly on this adapter, in the variant that it gets, and how fast the model then is. Unlike the suite
 * `kernels` it goes on where one is wrong.
 */
export async function runCheck(request: CheckRequest, hooks: SuiteHooks): Promise<CheckOutcome> {
  const { runs, load } = request;
  const { variants = 'auto' } = load;
  // First: a model that isn't there is told before the kernels take their minute.
  const { measurements, line } = await modelSpeed(request, hooks);
  const device = await openDevice({ ...request.adapter, ...(variants !== 'auto' && { variants }) });
  const adapters = [{ ...device.adapter, name: device.name }];
  const results: KernelCheck[] = [];
  let read: KernelResult;
  try {
    for (const folder of kernelFolders(request.kernel)) {
      results.push(await checkKernel(device, await loadKernelSuite(folder), hooks));
    }
    hooks.onProgress(`${device.name}: copy bandwidth`);
    const rates = await measureRates(device);
    const linear = await loadKernelSuite('linear/linear');
    const cases = linear.cases.filter(({ name }) => name === READ_CASE);
    [read] = (await timeCases(device, linear, cases, runs, rates, hooks)) as [KernelResult];
  } finally {
    device.dispose();
  }
  return {
    adapters,
    results,
    measurements: [...measurements, shareOf(read)],
    line: checkLine(adapters[0]!, results, line, read),
  };
}

/** How fast the model is; that it doesn't run, or answers differently each time, is a finding as well. */
async function modelSpeed(
  { model, runs, load }: CheckRequest,
  hooks: SuiteHooks,
): Promise<{ readonly measurements: readonly Measurement[]; readonly line: string }> {
  const answers = { model, loads: [load], runs, promptTokens: [PROMPT_TOKENS] };
  try {
    const decode = await runDecode({ suite: 'decode', ...answers, maxTokens: MAX_TOKENS }, hooks);
    const prefill = await runPrefill({ suite: 'prefill', ...answers }, hooks);
    const { model: name, weights, kv, tokens_per_second: speed } = decode.results[0]!;
    const reading = decimals(prefill.results[0]!.tokens_per_second);
    return {
      measurements: [...decode.measurements, ...prefill.measurements],
      line: `${name} ${weights}, kv ${kv}: decode ${decimals(speed)} tokens/s, prefill ${reading} tokens/s`,
    };
  } catch (error) {
    // What was asked wrongly, or stopped, isn't the adapter's fault.
    if (!(error instanceof SplitkvError) || !['internal', 'device_lost', 'limit'].includes(error.code)) throw error;
    return { measurements: [], line: `the model doesn't run: ${error.message}` };
  }
}

/** A kernel's cases, one by one; those that are wrong or fail are told. */
export async function checkKernel(device: Device, suite: AnyKernelSuite, hooks: SuiteHooks): Promise<KernelCheck> {
  const cases = suite.cases.filter((testCase) => !testCase.large && isWanted(testCase, '', device));
  const wrong: { readonly case: string; readonly problem: string }[] = [];
  for (const testCase of cases) {
    throwIfAborted(hooks.signal, 'checking kernels');
    const what = `${suite.kernel.name} '${testCase.name}'`;
    hooks.onProgress(what);
    try {
      const prepared = await device.checked(what, () => prepareCase(device, suite, testCase));
      try {
        await device.checked(what, () => {
          prepared.reset();
          prepared.run();
        });
        const problem = await wrongOutput(suite, testCase, prepared);
        if (problem) wrong.push({ case: testCase.name, problem });
      } finally {
        prepared.dispose();
      }
    } catch (error) {
      device.assertAlive(); // of a lost device nothing else can be told
      wrong.push({ case: testCase.name, problem: error instanceof Error ? error.message : String(error) });
    }
  }
  return { kernel: suite.kernel.name, cases: cases.length, wrong };
}

const shareOf = ({ samples, kernel, case: name }: KernelResult): Measurement => ({
  metric: 'kernel time',
  unit: 'us',
  better: 'lower',
  setting: { kernel, case: name },
  samples,
});

function checkLine(
  adapter: CheckOutcome['adapters'][number],
  results: readonly KernelCheck[],
  model: string,
  read: KernelResult,
): string {
  const wrong = results.filter((result) => result.wrong.length > 0);
  const kernels = `${results.length - wrong.length} of ${results.length} kernels right`;
  const named = `${adapter.vendor} ${adapter.architecture}`.trim();
  const names = wrong.map(({ kernel, cases, wrong: failed }) => `${kernel} (${failed.length} of ${cases})`);
  return [
    `splitkv: ${adapter.name}`,
    named === adapter.name ? '' : named,
    `${adapter.variants} variants${adapter.software ? ', on the CPU' : ''}`,
    kernels + (names.length > 0 ? `, wrong: ${names.join(', ')}` : ''),
    model,
    `weights read at ${(100 * read.copy_share).toFixed(0)}% of copies`,
  ]
    .filter((part) => part !== '')
    .join(' | ');
}

export function checkTable(results: readonly KernelCheck[], line: string): string {
  const wrong = results.flatMap(({ kernel, wrong: failed }) =>
    failed.map(({ case: name, problem }) => `${kernel} '${name}': ${problem}\n`),
  );
  const rows = results.map(({ kernel, cases, wrong: failed }) => [
    kernel,
    String(cases),
    failed.length === 0 ? 'right' : `${failed.length} wrong`,
  ]);
  return `${alignedTable([['kernel', 'cases', 'result'], ...rows], 1)}${wrong.length > 0 ? `\n${wrong.join('')}` : ''}\n${line}\n`;
}
