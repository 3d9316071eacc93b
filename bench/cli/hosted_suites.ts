import type { Browser } from 'playwright-core';
import type { SuiteDocument } from '../document.js';
import type { SuiteRequest } from '../run_suite.js';
import type { PlainLoadOptions } from '../suites/answers.js';
import { usageError } from '../../src/base/errors.js';
import type { AdapterRequest } from '../../src/gpu/index.js';
import type { Terminal } from '../../src/cli/command.js';
import { LOAD_ROWS } from '../../src/engine/contracts/options/load_rows.js';
import { loadValues, profileOption } from '../../src/cli/model_options.js';
import { degreesOf } from '../../src/engine/planning/degrees.js';
import { type Degrees, planOfDegrees } from '../../src/placement/index.js';
import type { Options } from '../../src/cli/options.js';
import {
  benchHost,
  benchModel,
  integerList,
  oneWeights,
  onePromptLength,
  requestFor,
  weightsList,
} from './bench_options.js';
import { runHosted } from './run_hosted.js';

/** The suites that run in Node or in a page alike. */
export type HostedSuite = Exclude<SuiteRequest['suite'], 'peers' | 'vision' | 'gpu'>;

export interface SuiteResult {
  readonly document: SuiteDocument;
  readonly table: string;
  readonly failed?: boolean;
  /** Its own report, written as index.html beside SUITE.json. */
  readonly page?: string;
}

const RUNS = 7;

/** Reads what the suite is asked to do, and does it. */
export async function runHostedSuite(
  suite: HostedSuite,
  options: Options,
  terminal: Terminal,
  browser?: Browser,
): Promise<SuiteResult> {
  const host = benchHost(options);
  if (options.has('one-core')) process.env['LP_NUM_THREADS'] ??= '1';
  const model = suite === 'kernels' ? '.' : await benchModel(options, terminal);
  return runHosted(await suiteRequest(suite, model, options, terminal), { host, model, browser }, terminal);
}

async function suiteRequest(
  suite: HostedSuite,
  model: string,
  options: Options,
  terminal: Terminal,
): Promise<SuiteRequest> {
  const runs = options.integer('runs', 1) ?? RUNS;
  const adapterName = options.text('adapter');
  const adapter: AdapterRequest = adapterName === undefined ? {} : { adapterName };
  if (suite === 'kernels') {
    const [kernel, part] = [options.text('kernel'), options.text('case')];
    const variants = options.oneOf('variants', ['hardware', 'software', 'auto']);
    const asked = { ...adapter, ...(variants !== undefined && variants !== 'auto' && { variants }) };
    return {
      suite,
      runs,
      adapter: asked,
      ...(kernel !== undefined && { kernel }),
      ...(part !== undefined && { case: part }),
    };
  }
  if (suite === 'check') {
    const kernel = options.text('kernel');
    const { options: load } = await requestFor(options, terminal, model, oneWeights(options, suite));
    return {
      suite,
      runs: options.integer('runs', 1) ?? 3,
      adapter,
      model,
      load,
      ...(kernel !== undefined && { kernel }),
    };
  }
  const maxTokens = options.integer('max-tokens', 2);
  if (suite === 'ranks') {
    const weights = oneWeights(options, suite);
    const kv = options.oneOf('kv', ['f32', 'f16', 'q8']);
    await requestFor(options, terminal, model, weights, undefined, []);
    return {
      suite,
      model,
      adapter,
      ...(weights !== undefined && { weights }),
      ...(kv !== undefined && { kv }),
      ...(await askedPlans(options, 'tp,sp,pp', integerList(options, 'ranks', 2) ?? [2])),
      promptTokens: onePromptLength(options, suite, 1024),
      batch: options.integer('batch', 1, 256) ?? 8,
      maxTokens: maxTokens ?? 32,
      runs,
    };
  }
  if (suite === 'profile') {
    const weights = oneWeights(options, suite);
    const kv = options.oneOf('kv', ['f32', 'f16', 'q8']);
    return {
      suite,
      model,
      adapter,
      ...(weights !== undefined && { weights }),
      ...(kv !== undefined && { kv }),
      batches: integerList(options, 'batch') ?? [1, 8, 32],
      contexts: integerList(options, 'prompt-tokens') ?? [512, 1024, 2048],
      maxTokens: maxTokens ?? 8,
      runs,
    };
  }
  if (suite === 'throughput') {
    const weights = oneWeights(options, suite);
    const kv = options.oneOf('kv', ['f32', 'f16', 'q8']);
    const asked = await askedPlans(options, 'tp,token', integerList(options, 'ranks', 2) ?? [2]);
    const [ranks, ...others] = asked.ranks;
    if (others.length > 0) throw usageError(`--ranks ${options.text('ranks')}: --suite ${suite} takes one number`);
    return {
      suite,
      model,
      adapter,
      ...(weights !== undefined && { weights }),
      ...(kv !== undefined && { kv }),
      ...asked,
      ranks: ranks!,
      microBatches: integerList(options, 'micro-batches') ?? [1, 2],
      batches: integerList(options, 'batch') ?? [1, 8, 32],
      contexts: integerList(options, 'prompt-tokens') ?? [128, 512, 1024],
      maxTokens: maxTokens ?? 16,
      runs,
    };
  }
  if (suite === 'arranged') {
    const weights = oneWeights(options, suite);
    const kv = options.oneOf('kv', ['f32', 'f16', 'q8']);
    const path = options.text('kv-profile');
    const profile = path === undefined ? undefined : await profileOption(path);
    return {
      suite,
      model,
      wide: options.text('model') === undefined,
      adapter,
      ...(weights !== undefined && { weights }),
      ...(kv !== undefined && { kv }),
      ...(profile && { profile }),
      ranks: integerList(options, 'ranks', 2) ?? [2, 4, 8],
      batches: integerList(options, 'batch') ?? [1, 8, 32],
      budget: options.number('kv-budget', 'a part above 0 and at most 1', (part) => part > 0 && part <= 1) ?? 0.2,
      copies: options.integer('copies', 0),
      spread: options.number('spread', 'a number from 0 on', (part) => part >= 0),
      promptTokens: onePromptLength(options, suite, 2048),
      maxTokens: maxTokens ?? 8,
      runs,
    };
  }
  if (suite === 'speculate') {
    const { options: load } = await requestFor(options, terminal, model, oneWeights(options, suite));
    const draft = options.text('draft');
    return {
      suite,
      model,
      load: { ...load, ...(draft !== undefined && { draft }) },
      maxTokens: maxTokens ?? 192,
      runs,
    };
  }
  if (suite === 'serve') {
    const { options: load } = await requestFor(options, terminal, model, oneWeights(options, suite));
    return {
      suite,
      model,
      options: load,
      microBatches: integerList(options, 'micro-batches') ?? ['auto'],
      clients: integerList(options, 'clients') ?? [1, 4, 16],
      requestsEach: options.integer('requests', 1) ?? 2,
      promptTokens: onePromptLength(options, suite, 128),
      maxTokens: maxTokens ?? 32,
      runs,
    };
  }
  const loads: PlainLoadOptions[] = [];
  for (const type of weightsList(options) ?? [undefined]) {
    for (const precision of suite === 'prefill'
      ? (options.text('precision')?.split(',') ?? [undefined])
      : [undefined]) {
      const request = await requestFor(options, terminal, model, type, undefined, undefined, precision?.trim());
      loads.push(request.options);
    }
  }
  const promptTokens = integerList(options, 'prompt-tokens');
  const answers = { model, loads, runs, ...(promptTokens && { promptTokens }) };
  return suite === 'decode' ? { suite, ...answers, maxTokens: maxTokens ?? 32 } : { suite, ...answers };
}

const { tensor, token, sequence, pipeline, data } = LOAD_ROWS;
const DEGREE_ROWS = { tensor, token, sequence, pipeline, data };

/** The plans that are compared with one rank: a list, or the one that degrees name. */
async function askedPlans(
  options: Options,
  usual: string,
  ranks: readonly number[],
): Promise<{ readonly plans: readonly string[]; readonly ranks: readonly number[]; readonly degrees?: Degrees }> {
  const degrees = degreesOf(await loadValues(options, DEGREE_ROWS));
  const list = options.text('plan');
  if (!degrees) return { plans: (list ?? usual).split(',').map((plan) => plan.trim()), ranks };
  const { policy, worldSize } = planOfDegrees(degrees, list, options.has('ranks') ? ranks[0] : undefined);
  return { plans: [policy], ranks: [worldSize], degrees };
}
