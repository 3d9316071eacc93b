import { SplitkvError, throwIfAborted } from '../../src/base/errors.js';
import { type AdapterRequest, type Device, openDevice } from '../../src/gpu/index.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { type AdapterRates, measureRates } from '../adapter_rates.js';
import type { BenchAdapter, SuiteHooks } from '../document.js';
import { decimals } from '../table.js';
import type { PlainLoadOptions } from './answers.js';
import { KERNEL_PARTS } from './gpu/kernels.js';
import { MACHINE_PARTS } from './gpu/machine.js';
import { mlaForms } from './gpu/mla.js';

/** All that is asked of a GPU that is at hand for ten minutes. */
export interface GpuRequest {
  readonly suite: 'gpu';
  readonly adapter: AdapterRequest;
  /** Model folders whose logits' digests are told: paths (Node) or URLs. */
  readonly models: readonly string[];
  readonly load: PlainLoadOptions;
  /** Names; undefined: all. */
  readonly parts?: readonly string[] | undefined;
  /** Of all parts together; what isn't reached by then is left out. */
  readonly seconds: number;
}

/** A line of a part's table: what was measured and what came out, by the names of columns. */
export type GpuRow = Readonly<Record<string, string | number>>;

export interface GpuResult {
  readonly part: string;
  readonly title: string;
  readonly host: 'node' | 'chrome' | 'page';
  readonly seconds: number;
  readonly rows: readonly GpuRow[];
  /** Why nothing of it, or not all of it, was measured. */
  readonly left_out?: string;
}

/** What a part works with. */
export interface GpuBench {
  readonly device: Device;
  readonly request: GpuRequest;
  readonly hooks: SuiteHooks;
  /** Small sizes, for adapters that run on the CPU. */
  readonly quick: boolean;
  rates(): Promise<AdapterRates>;
  /** Tells a result; no row of the table depends on later ones. */
  row(row: GpuRow): void;
  /** The part's time is up: it begins nothing more. */
  isLate(): boolean;
}

export interface GpuPart {
  readonly name: string;
  readonly title: string;
  /** Most seconds of ten minutes that it may take. */
  readonly seconds: number;
  run(bench: GpuBench): Promise<void>;
}

/** In order: what the others build on first. */
export const GPU_PARTS: readonly GpuPart[] = [
  ...MACHINE_PARTS.before,
  ...KERNEL_PARTS,
  mlaForms,
  ...MACHINE_PARTS.after,
];

export interface GpuOutcome {
  readonly adapters: readonly BenchAdapter[];
  readonly results: readonly Omit<GpuResult, 'host'>[];
  readonly measurements: readonly [];
  readonly failed: boolean;
}

/** Runs the parts one after the other. One that fails or runs out of time ends there, and says so; the others go on. */
export async function runGpu(request: GpuRequest, hooks: SuiteHooks): Promise<GpuOutcome> {
  const { variants = 'auto' } = request.load;
  const began = performance.now();
  const spent = (): number => (performance.now() - began) / 1000;
  const open = (): Promise<Device> => openDevice({ ...request.adapter, ...(variants !== 'auto' && { variants }) });
  let device = await open();
  const adapters = [{ ...device.adapter, name: device.name }];
  const results: Omit<GpuResult, 'host'>[] = [];
  let rates: AdapterRates | undefined;
  let failed = false;
  try {
    for (const { name, title, seconds: most, run } of GPU_PARTS) {
      if (request.parts && !request.parts.includes(name)) continue;
      const rows: GpuRow[] = [];
      const from = spent();
      const until = Math.min(request.seconds, from + (most * request.seconds) / 600);
      const end = (why?: string): void =>
        void results.push({
          part: name,
          title,
          seconds: spent() - from,
          rows,
          ...(why !== undefined && { left_out: why }),
        });
      if (from >= request.seconds) {
        end('out of time');
        continue;
      }
      let wasLate = false;
      const isLate = (): boolean => {
        throwIfAborted(hooks.signal, 'bench');
        const late = spent() >= until;
        wasLate ||= late;
        return late;
      };
      try {
        hooks.onProgress(title);
        await run({
          device,
          request,
          hooks,
          quick: device.adapter.software,
          rates: async () => (rates ??= await measureRates(device)),
          row: (row) => void rows.push(row),
          isLate,
        });
        end(wasLate ? `the rest: out of time (${Math.round(until - from)} s)` : undefined);
      } catch (error) {
        throwIfAborted(hooks.signal, 'bench');
        if (!(error instanceof Error)) throw error;
        failed ||= !(error instanceof SplitkvError) || error.code !== 'limit';
        end(error.message);
        // A device that a part lost is no reason to know nothing of the others.
        if (device.isLost) device = await open();
      }
    }
  } finally {
    device.dispose();
  }
  return { adapters, results, measurements: [], failed };
}

const cell = (value: string | number | undefined): string =>
  value === undefined
    ? ''
    : typeof value === 'string'
      ? value
      : Number.isInteger(value)
        ? String(value)
        : decimals(value);

/** A part's columns, and its rows as text. */
export function gpuCells(rows: readonly GpuRow[]): { readonly columns: string[]; readonly lines: string[][] } {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return { columns, lines: rows.map((row) => columns.map((column) => cell(row[column]))) };
}

export function gpuTable(results: readonly (Omit<GpuResult, 'host'> & { readonly host?: string })[]): string {
  return results
    .map(({ title, host, seconds, rows, left_out: why }) => {
      const { columns, lines } = gpuCells(rows);
      const named = columns.filter((column) => typeof rows.find((row) => column in row)?.[column] === 'string').length;
      return [
        `${title}${host === undefined ? '' : ` (${host})`}, ${seconds.toFixed(1)} s`,
        ...(rows.length > 0 ? [alignedTable([columns, ...lines], named)] : []),
        ...(why === undefined ? [] : [`Left out: ${why}.\n`]),
      ].join('\n');
    })
    .join('\n');
}
