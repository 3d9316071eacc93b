import { SplitkvError, usageError } from '../../src/base/errors.js';
import { Random } from '../../src/base/random.js';
import { median } from '../../src/base/stats.js';
import { type AdapterRequest, type Device, openDevice } from '../../src/gpu/index.js';
import type { KernelCase } from '../../src/gpu/testing/kernel_case.js';
import { findMismatch, prepareCase, type PreparedCase } from '../../src/gpu/testing/run_kernel.js';
import { type AdapterRates, measureRates } from '../adapter_rates.js';
import type { BenchAdapter, Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import { type Contender, interleave } from '../interleave.js';
import { type AnyKernelSuite, kernelFolders, loadKernelSuite } from '../kernel_suites.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals } from '../table.js';

export interface KernelsRequest {
  readonly suite: 'kernels';
  /** Part of a kernel's folder, e.g. `attention/`; undefined: every kernel. */
  readonly kernel?: string;
  /** Part of a case's name; undefined: every case. */
  readonly case?: string;
  readonly adapter: AdapterRequest;
  readonly runs: number;
}

export interface KernelResult {
  readonly kernel: string;
  readonly case: string;
  readonly adapter: string;
  /** Median microseconds of one dispatch, submitted many at a time. */
  readonly us: number;
  readonly gflops: number;
  readonly gbps: number;
  /** Of this adapter's copy bandwidth and of its rate of fused multiply-adds, measured in this run. */
  readonly copy_share: number;
  readonly fma_share: number;
  readonly samples: readonly number[];
}

export interface KernelsOutcome extends SuiteOutcome<KernelResult> {
  readonly rates: AdapterRates;
}

/** A submission must last this long, so that the cost of submitting and the clock's resolution don't count. */
const MIN_SUBMISSION_MS = 20;
const MAX_REPEATS = 8192;
/** Operands that no cache holds in real use (weights) must not sit in one here: copies of a case add up to this. */
const COLD_BYTES = 256 * 2 ** 20;
const COLD_FROM_BYTES = 2 ** 20;
const MAX_COPIES = 64;

/**
 * Times every case of every kernel; one whose result disagrees with its reference ends the run before any number is told. Operands
 * of 1 MiB and more are read from copies that no GPU cache holds together; smaller ones are warm, as activations are in a model.
 */
export async function runKernels(request: KernelsRequest, hooks: SuiteHooks): Promise<KernelsOutcome> {
  const { kernel, case: part = '', adapter: adapterRequest, runs } = request;
  const folders = kernelFolders(kernel);
  const device = await openDevice(adapterRequest);
  try {
    const adapter: BenchAdapter = { ...device.adapter, name: device.name };
    hooks.onProgress(`${device.name}: copy bandwidth and multiply-adds`);
    const rates = await measureRates(device);
    const results: KernelResult[] = [];
    for (const folder of folders) {
      const suite = await loadKernelSuite(folder);
      const cases = suite.cases.filter((testCase) => isWanted(testCase, part, device));
      results.push(...(await timeCases(device, suite, cases, runs, rates, hooks)));
    }
    if (results.length === 0) throw usageError(`--case ${part}: no case's name contains it`);
    return { adapters: [adapter], results, measurements: results.map(measurement), rates };
  } finally {
    device.dispose();
  }
}

export const isWanted = (
  { name, needsF16, large }: KernelCase<unknown>,
  part: string,
  { traits, adapter }: Device,
): boolean => name.includes(part) && (!needsF16 || traits.f16) && (!large || !adapter.software || part !== '');

const measurement = (result: KernelResult): Measurement => ({
  metric: 'kernel time',
  unit: 'us',
  better: 'lower',
  setting: { kernel: result.kernel, case: result.case },
  samples: result.samples,
});

export async function timeCases(
  device: Device,
  suite: AnyKernelSuite,
  cases: readonly KernelCase<unknown>[],
  runs: number,
  rates: AdapterRates,
  hooks: SuiteHooks,
): Promise<KernelResult[]> {
  const prepared: PreparedCase[] = [];
  try {
    const contenders: Contender<number>[] = [];
    for (const testCase of cases) {
      hooks.onProgress(`${suite.kernel.name} '${testCase.name}': checking`);
      const copies = await checkedCopies(device, suite, testCase, prepared);
      contenders.push(await timed(device, `${suite.kernel.name} '${testCase.name}'`, copies, testCase));
    }
    const samples = await interleave(contenders, runs, hooks);
    return cases.map(({ name, flops, bytes }, index) => {
      const us = median(samples[index]!);
      return {
        kernel: suite.kernel.name,
        case: name,
        adapter: device.name,
        us,
        gflops: flops / us / 1e3,
        gbps: bytes / us / 1e3,
        copy_share: bytes / us / 1e3 / rates.copy_gbps,
        fma_share: flops / us / 1e3 / rates.fma_gflops,
        samples: samples[index]!,
      };
    });
  } finally {
    for (const copy of prepared) copy.dispose();
  }
}

/** As many copies of the case as no cache holds, its result compared with the reference. */
async function checkedCopies(
  device: Device,
  suite: AnyKernelSuite,
  testCase: KernelCase<unknown>,
  prepared: PreparedCase[],
): Promise<readonly PreparedCase[]> {
  const what = `${suite.kernel.name} '${testCase.name}'`;
  const inputs = suite.inputs(testCase.problem, new Random(testCase.seed));
  const fixed = { ...suite, inputs: () => inputs };
  const cold = testCase.bytes >= COLD_FROM_BYTES && !device.adapter.software;
  const count = cold ? Math.min(MAX_COPIES, Math.ceil(COLD_BYTES / testCase.bytes)) : 1;
  const copies = await device.checked(what, () =>
    Array.from({ length: count }, () => {
      const copy = prepareCase(device, fixed, testCase);
      prepared.push(copy);
      copy.reset();
      return copy;
    }),
  );
  await device.checked(what, () => copies[0]!.run());
  const mismatch = await wrongOutput(suite, testCase, copies[0]!);
  if (mismatch)
    throw new SplitkvError('internal', `${what} on ${device.name} is wrong, so it isn't timed: ${mismatch}`);
  return copies;
}

/** The first output of a case that ran which disagrees with its reference, in words. */
export async function wrongOutput(
  suite: AnyKernelSuite,
  testCase: KernelCase<unknown>,
  prepared: PreparedCase,
): Promise<string | undefined> {
  const expected = suite.reference(testCase.problem, prepared.inputs);
  const results = await prepared.readOutputs(Object.keys(expected));
  for (const [binding, want] of Object.entries(expected)) {
    const mismatch = findMismatch(testCase, binding, results[binding]!, want);
    if (mismatch) return mismatch;
  }
  return undefined;
}

/** Microseconds of a dispatch, with so many in a submission that it lasts. */
async function timed(
  device: Device,
  name: string,
  copies: readonly PreparedCase[],
  testCase: KernelCase<unknown>,
): Promise<Contender<number>> {
  let repeats = copies.length;
  for (;;) {
    const elapsed = await submit(device, copies, testCase, repeats);
    if (elapsed >= MIN_SUBMISSION_MS || repeats >= MAX_REPEATS) break;
    const factor = Math.min(10, Math.max(1.5, (1.2 * MIN_SUBMISSION_MS) / elapsed));
    repeats = Math.min(MAX_REPEATS, Math.ceil(repeats * factor));
  }
  return { name, run: async () => ((await submit(device, copies, testCase, repeats)) * 1000) / repeats };
}

/** Milliseconds of one submission of `repeats` dispatches in one pass, copies taking turns. */
async function submit(
  device: Device,
  copies: readonly PreparedCase[],
  testCase: KernelCase<unknown>,
  repeats: number,
): Promise<number> {
  const { rows, chunks } = testCase.step ?? { rows: 1, chunks: 1 };
  const step = { rows: [rows], chunks };
  const encoder = device.gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (let i = 0; i < repeats; i++) copies[i % copies.length]!.program.encode(pass, step);
  pass.end();
  const commands = encoder.finish();
  const start = performance.now();
  device.gpu.queue.submit([commands]);
  await device.wait(device.gpu.queue.onSubmittedWorkDone());
  return performance.now() - start;
}

export function kernelsTable(results: readonly KernelResult[], rates: AdapterRates): string {
  const percent = (share: number): string => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
  return (
    alignedTable(
      [
        ['kernel', 'case', 'us', 'GB/s', 'of copy', 'GFLOP/s', 'of FMA'],
        ...results.map((result) => [
          result.kernel,
          result.case,
          decimals(result.us),
          decimals(result.gbps),
          percent(result.copy_share),
          decimals(result.gflops),
          percent(result.fma_share),
        ]),
      ],
      2,
    ) +
    `\n${rates.adapter}: copies read and write ${decimals(rates.copy_gbps)} GB/s, multiply-adds ${decimals(rates.fma_gflops)} GFLOP/s. ` +
    `Medians of ${results[0]!.samples.length} interleaved runs; every result agreed with its reference.\n`
  );
}
