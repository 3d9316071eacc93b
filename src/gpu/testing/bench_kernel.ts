import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'vitest';
import { Random } from '../../base/random.js';
import { median } from '../../base/stats.js';
import type { Device } from '../device.js';
import type { Bindings, ParamTypes } from '../kernel.js';
import { testAdapters } from './adapters.js';
import type { KernelCase, KernelSuite } from './kernel_case.js';
import { findMismatch, prepareCase, type PreparedCase } from './run_kernel.js';

export interface BenchRow {
  readonly kernel: string;
  readonly case: string;
  readonly adapter: string;
  /** Median microseconds of one dispatch. */
  readonly us: number;
  readonly gflops: number;
  readonly gbps: number;
}

/** A submission must last this long, so that the cost of submitting and the clock's resolution don't count. */
const MIN_SUBMISSION_MS = 20;
const ROUNDS = 7;
const MAX_REPEATS = 8192;
/** Operands that no cache holds in real use (weights) must not sit in one here: copies of a case add up to this. */
const COLD_BYTES = 128 * 2 ** 20;
const COLD_FROM_BYTES = 2 ** 20;
const MAX_COPIES = 32;

interface TimedCase {
  readonly testCase: KernelCase<never>;
  readonly copies: readonly PreparedCase[];
  readonly repeats: number;
  readonly samples: number[];
}

/** Milliseconds of one submission of `repeats` dispatches in one pass, copies taking turns. */
async function time(
  device: Device,
  copies: readonly PreparedCase[],
  testCase: KernelCase<never>,
  repeats: number,
): Promise<number> {
  const step = testCase.step ?? { rows: 1, chunks: 1 };
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

async function measure<B extends Bindings, P extends ParamTypes, Problem>(
  device: Device,
  suite: KernelSuite<B, P, Problem>,
): Promise<BenchRow[]> {
  const { kernel } = suite;
  const timed: TimedCase[] = [];
  for (const testCase of suite.cases) {
    if (testCase.needsF16 && !device.traits.f16) continue;
    const inputs = suite.inputs(testCase.problem, new Random(testCase.seed));
    const fixed = { ...suite, inputs: () => inputs };
    const wanted =
      testCase.bytes < COLD_FROM_BYTES || device.traits.software ? 1 : Math.ceil(COLD_BYTES / testCase.bytes);
    const copies = await device.checked(`${kernel.name} '${testCase.name}'`, () =>
      Array.from({ length: Math.min(MAX_COPIES, wanted) }, () => {
        const copy = prepareCase(device, fixed, testCase);
        copy.reset();
        return copy;
      }),
    );
    copies[0]!.run();
    const expected = suite.reference(testCase.problem, inputs);
    const results = await copies[0]!.readOutputs(Object.keys(expected));
    for (const [binding, want] of Object.entries(expected)) {
      const mismatch = findMismatch(testCase, binding, results[binding]!, want);
      if (mismatch) throw new Error(`${kernel.name} on ${device.name} is wrong, so it isn't timed: ${mismatch}`);
    }
    const untyped = testCase as unknown as KernelCase<never>;
    let repeats = copies.length;
    for (;;) {
      const elapsed = await time(device, copies, untyped, repeats);
      if (elapsed >= MIN_SUBMISSION_MS || repeats >= MAX_REPEATS) break;
      repeats = Math.min(
        MAX_REPEATS,
        Math.ceil(repeats * Math.min(10, Math.max(1.5, (1.2 * MIN_SUBMISSION_MS) / elapsed))),
      );
    }
    timed.push({ testCase: untyped, copies, repeats, samples: [] });
  }
  // Interleaved, so that a clock change or a busy neighbour falls on every case alike.
  for (let round = 0; round < ROUNDS; round++) {
    for (const { testCase, copies, repeats, samples } of timed) {
      samples.push(((await time(device, copies, testCase, repeats)) * 1000) / repeats);
    }
  }
  return timed.map(({ testCase, copies, samples }) => {
    for (const copy of copies) copy.dispose();
    const us = median(samples);
    return {
      kernel: kernel.name,
      case: testCase.name,
      adapter: device.name,
      us,
      gflops: testCase.flops / us / 1e3,
      gbps: testCase.bytes / us / 1e3,
    };
  });
}

const number = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

function table(rows: readonly BenchRow[]): string {
  const lines = [
    ['case', 'us', 'GFLOP/s', 'GB/s'],
    ...rows.map((row) => [row.case, number(row.us), number(row.gflops), number(row.gbps)]),
  ];
  const widths = [0, 1, 2, 3].map((column) => Math.max(...lines.map((line) => line[column]!.length)));
  return lines
    .map((line) => line.map((text, i) => (i === 0 ? text.padEnd(widths[i]!) : text.padStart(widths[i]! + 2))).join(''))
    .join('\n');
}

/** Rows of every kernel measured in this process so far. */
export const benchRows: BenchRow[] = [];

/**
 * Times every case of a suite on every adapter present, and prints a table; a case whose result disagrees with the
 * reference fails the run before anything is reported. Operands of 1 MiB and more are read from copies that no GPU cache
 * holds together; smaller ones are warm, as activations are in a model. With SPLITKV_BENCH_DIR the rows of each kernel
 * are also written to `<dir>/<kernel>.json`. SPLITKV_BENCH_ADAPTER (part of a name) leaves other adapters out.
 */
export async function benchKernel<B extends Bindings, P extends ParamTypes, Problem>(
  suite: KernelSuite<B, P, Problem>,
): Promise<void> {
  const { name } = suite.kernel;
  const wanted = process.env['SPLITKV_BENCH_ADAPTER'] ?? '';
  const adapters = (await testAdapters()).filter((adapter) => adapter.name.includes(wanted));
  if (adapters.length === 0) throw new Error(`SPLITKV_BENCH_ADAPTER=${wanted}: no adapter's name contains it`);
  const directory = process.env['SPLITKV_BENCH_DIR'];
  const own: BenchRow[] = [];
  describe(`bench ${name}`, () => {
    for (const adapter of adapters) {
      test(adapter.name, { timeout: 600_000 }, async () => {
        const device = await adapter.open();
        try {
          const rows = await measure(device, suite);
          own.push(...rows);
          benchRows.push(...rows);
          console.log(`${name} on ${device.name}\n${table(rows)}`);
          if (directory) {
            mkdirSync(directory, { recursive: true });
            writeFileSync(join(directory, `${name}.json`), `${JSON.stringify(own, null, 2)}\n`);
          }
        } finally {
          device.dispose();
        }
      });
    }
  });
}
