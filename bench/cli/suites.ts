import type { Browser } from 'playwright-core';
import type { Terminal } from '../../src/cli/command.js';
import type { Options } from '../../src/cli/options.js';
import { type HostedSuite, runHostedSuite, type SuiteResult } from './hosted_suites.js';
import { runCompile, runCompression, runGpu, runLoad, runPlanner, runScale, runSeeds } from './local_suites.js';
import { runPeersSuite, runVisionSuite } from './peers_suite.js';

export interface SuiteEntry {
  readonly summary: string;
  /** Options that mean something to it, beside those of every suite. */
  readonly options: readonly string[];
  /** @param browser Chrome that runs already, for suites that run in a page */
  run(options: Options, terminal: Terminal, browser?: Browser): Promise<SuiteResult>;
}

const PLACE = ['host', 'adapter'];
/** Degrees of parallelism. */
const DEGREES = ['tensor', 'token', 'sequence', 'pipeline', 'data'];
const KV = ['kv-window', 'kv-kernel', 'kv-alpha'];
const MODEL = ['model', 'weights', 'kv', 'context', 'prefill-chunk', 'steps-in-flight', 'variants', ...PLACE];
const hosted =
  (suite: HostedSuite): SuiteEntry['run'] =>
  (options, terminal, browser) =>
    runHostedSuite(suite, options, terminal, browser);

/** What `bench --suite` takes. */
export const SUITES: Readonly<Record<string, SuiteEntry>> = {
  decode: {
    summary: 'generated tokens per second and time to the first, by prompt length',
    options: [...MODEL, 'prompt-tokens', 'max-tokens', 'runs', 'against'],
    run: hosted('decode'),
  },
  speculate: {
    summary: 'generated tokens per second with proposals of what comes next and without, by kind of text',
    options: [...MODEL, 'draft', 'max-tokens', 'runs', 'one-core'],
    run: hosted('speculate'),
  },
  prefill: {
    summary: 'prompt tokens per second, by prompt length; --precision exact,fast: side by side',
    options: [...MODEL, 'precision', 'prompt-tokens', 'runs', 'against'],
    run: hosted('prefill'),
  },
  vision: {
    summary: 'the encoder of images, and prompts with them: new ones, ones asked about again; beside transformers.js',
    options: ['model', 'weights', 'kv', 'context', ...PLACE, 'runs'],
    run: runVisionSuite,
  },
  kernels: {
    summary: "every kernel's cases against the adapter's copy bandwidth and multiply-adds",
    options: [...PLACE, 'variants', 'kernel', 'case', 'runs', 'against'],
    run: hosted('kernels'),
  },
  check: {
    summary: 'whether every kernel is right on this adapter, and how fast the model is, in one line to copy',
    options: ['model', 'weights', 'kv', 'variants', 'precision', ...PLACE, 'kernel', 'runs'],
    run: hosted('check'),
  },
  gpu: {
    summary: 'all that is asked of a GPU, in ten minutes at most: in Node, and in Chrome what differs there',
    options: ['model', 'kv', 'variants', ...PLACE, 'parts', 'seconds'],
    run: runGpu,
  },
  compile: {
    summary: "what AMD's compiler makes of every kernel that a GPU gets, without a GPU (Linux, with Mesa's drivers)",
    options: ['host', 'family', 'kernel', 'case'],
    run: runCompile,
  },
  ranks: {
    summary: 'plans on several devices against one',
    options: [
      'model',
      'weights',
      'kv',
      ...PLACE,
      'ranks',
      'plan',
      ...DEGREES,
      'prompt-tokens',
      'max-tokens',
      'runs',
      'batch',
      'one-core',
    ],
    run: hosted('ranks'),
  },
  seeds: {
    summary: "the figures of the four systems' documents beside ours: published, fitted, simulated, counted, measured",
    options: [...PLACE, 'ranks', 'runs', 'one-core'],
    run: runSeeds,
  },
  arranged: {
    summary: 'heads arranged by load on several devices: in order, by load, copied',
    options: [
      'model',
      'weights',
      'kv',
      'kv-budget',
      'kv-profile',
      'copies',
      'spread',
      ...PLACE,
      'ranks',
      'batch',
      'prompt-tokens',
      'max-tokens',
      'runs',
      'one-core',
    ],
    run: hosted('arranged'),
  },
  throughput: {
    summary: 'generated tokens per second of plans on several devices, by batch and context',
    options: [
      'model',
      'weights',
      'kv',
      ...PLACE,
      'ranks',
      'plan',
      ...DEGREES,
      'micro-batches',
      'batch',
      'prompt-tokens',
      'max-tokens',
      'runs',
      'one-core',
    ],
    run: hosted('throughput'),
  },
  profile: {
    summary: "attention's part of a decode step on one rank, by batch and context",
    options: ['model', 'weights', 'kv', ...PLACE, 'batch', 'prompt-tokens', 'max-tokens', 'runs', 'one-core'],
    run: hosted('profile'),
  },
  serve: {
    summary: 'many clients at once: throughput and latency',
    options: [
      'model',
      'weights',
      'kv',
      'context',
      ...PLACE,
      'ranks',
      'plan',
      ...DEGREES,
      'micro-batches',
      'one-core',
      'clients',
      'requests',
      'prompt-tokens',
      'max-tokens',
      'runs',
    ],
    run: hosted('serve'),
  },
  compression: {
    summary: 'right answers about stories against the KV budget, by policy (the questions are in a checkout)',
    options: ['model', 'weights', 'kv', ...PLACE, ...KV, 'questions', 'samples', 'prompt-tokens'],
    run: runCompression,
  },
  peers: {
    summary: 'other runtimes on the same weights and the same adapter (in a checkout)',
    options: ['model', 'weights', ...PLACE, 'prompt-tokens', 'max-tokens', 'runs'],
    run: runPeersSuite,
  },
  planner: {
    summary: 'what the planner predicts of every plan against what they do',
    options: [
      'model',
      'weights',
      'kv',
      'kv-budget',
      'adapter',
      'ranks',
      'prompt-tokens',
      'max-tokens',
      'runs',
      'one-core',
    ],
    run: runPlanner,
  },
  scale: {
    summary: 'loading and running models of real sizes with random weights, each load in a process of its own',
    options: [...MODEL, 'prompt-tokens', 'max-tokens'],
    run: runScale,
  },
  load: {
    summary: 'one such load, in this process',
    options: [...MODEL, 'prompt-tokens', 'max-tokens'],
    run: runLoad,
  },
};
