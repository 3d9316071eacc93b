import type { AdapterDescription } from '../src/gpu/index.js';
import type { ModelInfo } from '../src/index.js';
import type { Change } from './compare.js';

export interface BenchAdapter extends AdapterDescription {
  readonly name: string;
}

/** What the numbers of a benchmark depend on beside the code. */
export interface BenchEnvironment {
  readonly date: string;
  /** Undefined outside a git checkout; ends with '+' where files were changed since. */
  readonly commit?: string;
  /** Of splitkv. */
  readonly version?: string;
  readonly host: 'node' | 'chrome';
  readonly node: string;
  readonly chrome?: string;
  readonly os: string;
  readonly cpu: string;
  readonly cpu_threads: number;
  readonly memory_bytes: number;
  readonly adapters: readonly BenchAdapter[];
  readonly note?: string;
}

/** All samples of one thing that was measured, by what a report plots it and a later run is compared with it. */
export interface Measurement {
  /** What was measured; those of one metric share a plot. */
  readonly metric: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  /** What tells it from the others of its metric. */
  readonly setting: Readonly<Record<string, string | number>>;
  readonly samples: readonly number[];
}

/** What documents of all suites have in common. */
export interface SuiteDocument {
  readonly suite: string;
  readonly environment: BenchEnvironment;
  readonly results?: readonly unknown[];
  readonly measurements?: readonly Measurement[];
  /** Of `peers`: runtimes that weren't run or not timed, and why. */
  readonly left_out?: readonly { readonly runtime: string; readonly tokens?: number; readonly why: string }[];
  /** Against an older document, where one was given. */
  readonly comparison?: Comparison;
}

/** One document of `bench --json`; what a result holds depends on the suite. */
export interface BenchDocument<Result> extends SuiteDocument {
  readonly results: readonly Result[];
}

export interface Comparison {
  readonly date: string;
  readonly commit?: string;
  /** What makes the two hard to compare: another adapter, another browser. */
  readonly differences: readonly string[];
  readonly changes: readonly Change[];
}

export const SOFTWARE_NOTE = 'software adapter: only ratios within a run mean anything';

/** A suite's part of a document: what a page can tell without knowing the machine that it runs on. */
export interface SuiteOutcome<Result> {
  readonly adapters: readonly BenchAdapter[];
  readonly results: readonly Result[];
  readonly measurements: readonly Measurement[];
}

export interface SuiteHooks {
  readonly signal: AbortSignal;
  readonly onProgress: (line: string) => void;
  readonly onWarning: (message: string) => void;
}

export const benchAdapter = ({ adapter }: Pick<ModelInfo, 'adapter'>): BenchAdapter => ({
  name: adapter.name,
  vendor: adapter.vendor,
  architecture: adapter.architecture,
  device: adapter.device,
  description: adapter.description,
  software: adapter.software,
  variants: adapter.variants,
});
