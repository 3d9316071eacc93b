/**
 * Room: `splitkv simulate ...` of a checkout, a file for each subject and one for its table. The simulations are in
 * ../../simulate and ../../cluster; measure_adp.ts really runs a trace on a model, by replay.ts.
 */

import { setImmediate } from 'node:timers/promises';
import { throwIfAborted, usageError } from '../../../src/base/errors.js';
import { type AdpStudyOptions, runPolicy, studyAdp } from '../../simulate/adp_study.js';
import { calibrate } from '../../simulate/calibrate.js';
import { defaultLoads, paretoOfLoads } from '../../simulate/pareto.js';
import { PUBLISHED_ROWS, PUBLISHED_SETTINGS, PUBLISHED_TIME, SMALL_SETTINGS } from '../../simulate/published_run.js';
import { adpReport } from '../../simulate/report/adp_report.js';
import { LENGTHS, type Trace, parseTrace, syntheticTrace } from '../../simulate/trace.js';
import { measureAdp } from './measure_adp.js';
import { type Command, commonOptions, say, tell, type Terminal } from '../../../src/cli/command.js';
import { hubOptions, modelOptions, modelRequest } from '../../../src/cli/model_options.js';
import {
  only,
  type Options,
  type OptionSpecs,
  readGiven,
  writableGiven,
  writeGiven,
} from '../../../src/cli/options.js';
import { describeMeasured, describePareto, describeStudy } from './adp_text.js';

const { maxTokensPerIteration, concurrency } = PUBLISHED_SETTINGS;
const SYNTHETIC = ['requests', 'mean-in', 'mean-out', 'seed'] as const;

/** The default of an option, without a model and with one. */
function presets(name: keyof typeof SMALL_SETTINGS): string {
  return `default ${PUBLISHED_SETTINGS[name]}, with --model ${SMALL_SETTINGS[name]}`;
}

/** Where the trace really runs. */
const runOptions: OptionSpecs = {
  ...hubOptions,
  ...only(modelOptions, 'model', 'weights', 'kv', 'adapter', 'virtual-ranks', 'workers'),
};

export const command: Command = {
  summary:
    'Runs the scheduler on a clock instead of a GPU. adp: attention data parallelism, a trace under four policies: the baseline, ' +
    "TensorRT-LLM's waits (context_wait, full) and ours (cost). Defaults are those of the run that NVIDIA published. With --model the " +
    'trace really runs, by plan adp: measured beside simulated.',
  usage: 'simulate adp [options]\nsplitkv simulate adp --model MODEL [--virtual-ranks] [options]',
  options: {
    requests: { value: 'N', help: `requests of the synthetic trace; ${presets('requests')}` },
    'mean-in': { value: 'TOKENS', help: `mean prompt length; ${presets('meanInput')}` },
    'mean-out': { value: 'TOKENS', help: `mean generated length; ${presets('meanOutput')}` },
    seed: { value: 'S', help: 'of the synthetic trace; default 1' },
    trace: {
      value: 'FILE',
      help: 'a trace instead: JSON or CSV with input_tokens, output_tokens and, if wanted, arrival_s, priority, ttft_deadline_s',
    },
    ranks: { value: 'R', help: `${presets('ranks')}; there also an adapter each, by name` },
    'max-batch': { value: 'N', help: `requests that a rank may run; ${presets('maxBatch')}` },
    'max-tokens-per-iteration': {
      value: 'N',
      help: `rows of an iteration on one rank; default ${maxTokensPerIteration}, with --model a full batch and the longest prompt`,
    },
    concurrency: {
      value: 'N',
      help: `requests that clients have open at once; default ${concurrency}, with --model five for every four slots`,
    },
    'timeout-iters': { value: 'N', help: presets('timeoutIters') },
    'batching-wait-iters': { value: 'N', help: presets('batchingWaitIters') },
    'chunked-prefill': { help: 'cut prompts to the budget; without it each runs whole' },
    'kv-tokens': { value: 'N', help: 'KV tokens of a rank; default: enough for any batch' },
    'iteration-seconds': {
      value: 'S',
      help: `seconds of any iteration; default ${PUBLISHED_TIME.baseSeconds}, with --model as the baseline measures`,
    },
    'token-seconds': {
      value: 'S',
      help: `seconds for each token of the rank that has most; default ${PUBLISHED_TIME.secondsPerToken}, with --model as measured`,
    },
    'cached-token-seconds': {
      value: 'S',
      help: 'seconds for each cached token that the sequences of the slowest rank attend to; default 0',
    },
    calibrate: {
      help: 'fit these two first, so that the baseline has the published TPS and SOL TPS; they are told on stderr',
    },
    pareto: {
      help: "also throughput against time to first token: baseline, TensorRT-LLM's waits on a grid, cost; under each of --loads",
    },
    loads: {
      value: 'N[,N]',
      help: 'with --pareto: requests open at once; default a twentieth, a fifth and all of --concurrency',
    },
    related: {
      help: 'also the rules of two papers, by their abstracts: BalanceRoute (balance_route) and staggered batches',
    },
    runs: { value: 'N', help: 'with --model: runs of each policy, in turns; figures are medians; default 1' },
    out: { value: 'FILE', help: 'also write an HTML report there: runs over iterations, and throughput against TTFT' },
    ...runOptions,
    ...commonOptions,
  },
  async run(options, terminal) {
    if (options.has('model')) return runMeasured(options, terminal);
    const needless = Object.keys(runOptions).find((name) => options.has(name));
    if (needless !== undefined) throw usageError(`--${needless} is for a run on a model: give --model too`);
    if (options.has('runs')) throw usageError('--runs is for a run on a model: give --model too');
    const given = await studyOptions(options);
    const loads = loadsOf(options, given.concurrency);
    const out = await writableGiven(options, 'out');
    const study = options.has('calibrate') ? await calibrated(given, terminal) : given;
    const progress = async (name: string): Promise<void> => {
      terminal.progress(`simulating ${name}`);
      await setImmediate(); // lets Ctrl-C through
      throwIfAborted(terminal.signal, 'the simulation');
    };
    const result = await studyAdp(study, progress);
    const pareto = loads && (await paretoOfLoads(study, loads, progress, result.rows));
    if (out !== undefined) await writeGiven('out', out, adpReport({ study: result, ...(pareto && { pareto }) }));
    const { rows, published, checks, parameters } = result;
    const seed = options.has('trace') ? {} : { seed: options.integer('seed', 0) ?? 1 };
    if (options.has('json')) {
      const document = {
        rows,
        published,
        ...(checks && { checks }),
        ...(pareto && { pareto }),
        parameters: { ...seed, ...parameters },
      };
      await terminal.write(`${JSON.stringify(document)}\n`);
    } else {
      await tell(terminal, describeStudy(result));
      if (pareto) await tell(terminal, `\n${describePareto(pareto)}`);
      if (out !== undefined) await terminal.write(`\nreport written to ${out}\n`);
    }
    return 0;
  },
};

/** Runs the trace on a model's ranks, and then on a clock. */
async function runMeasured(options: Options, terminal: Terminal): Promise<number> {
  for (const name of ['calibrate', 'out', 'pareto', 'loads', 'related']) {
    if (options.has(name)) throw usageError(`--${name} is for a simulation alone: leave it or --model out`);
  }
  const request = await modelRequest(options, terminal);
  const ranks = request.options.ranks ?? SMALL_SETTINGS.ranks;
  const count = typeof ranks === 'number' ? ranks : ranks.length;
  const batch = options.integer('max-batch', 1) ?? SMALL_SETTINGS.maxBatch;
  const meanInput = meanOf(options, 'mean-in') ?? SMALL_SETTINGS.meanInput;
  const longest = Math.ceil(meanInput * LENGTHS.input.cut);
  const study = await studyOptions(options, {
    ...SMALL_SETTINGS,
    ranks: count,
    maxBatch: batch,
    maxTokensPerIteration: batch + longest,
    concurrency: Math.ceil(1.25 * batch * count),
  });
  const timed = options.has('iteration-seconds') || options.has('token-seconds');
  const { time, ...untimed } = study;
  const result = await measureAdp(
    { ...request, options: { ...request.options, ranks } },
    timed ? { ...untimed, time } : untimed,
    options.integer('runs', 1, 100),
  );
  await say(options, terminal, result, describeMeasured(result));
  return 0;
}

/** Undefined where no points are asked for. */
function loadsOf(options: Options, concurrency: number): readonly number[] | undefined {
  if (!options.has('pareto')) {
    if (options.has('loads')) throw usageError('--loads is for --pareto: give both');
    return undefined;
  }
  const text = options.text('loads');
  if (text === undefined) return defaultLoads(concurrency);
  const loads = text.split(',').map((part) => {
    const load = Number(part);
    if (!Number.isInteger(load) || load < 1 || load > 1_000_000)
      throw usageError(`--loads ${text}: expected numbers of requests from 1 to 1000000, such as 256,1024,5120`);
    return load;
  });
  return [...new Set(loads)];
}

const LENGTH = 'a number of at least 1';
const meanOf = (options: Options, name: string): number | undefined => options.number(name, LENGTH, (n) => n >= 1);

type Presets = { readonly [K in keyof typeof PUBLISHED_SETTINGS]: number };

/** The study that options ask for; without any, that of the published run. */
export async function studyOptions(options: Options, preset: Presets = PUBLISHED_SETTINGS): Promise<AdpStudyOptions> {
  const positive = 'a number above 0';
  const batch = options.integer('max-batch', 1) ?? preset.maxBatch;
  const budget = options.integer('max-tokens-per-iteration', 2) ?? preset.maxTokensPerIteration;
  if (budget <= batch) {
    throw usageError(
      `--max-tokens-per-iteration ${budget}: expected more than --max-batch ${batch}, else a full batch leaves no room for prompts`,
    );
  }
  const chunkedPrefill = options.has('chunked-prefill');
  return {
    trace: await readTrace(options, chunkedPrefill ? Infinity : budget - batch, preset),
    ranks: options.has('model') ? preset.ranks : (options.integer('ranks', 1, 1024) ?? preset.ranks),
    maxBatch: batch,
    maxTokensPerIteration: budget,
    concurrency: options.integer('concurrency', 1) ?? preset.concurrency,
    timeoutIters: options.integer('timeout-iters', 0) ?? preset.timeoutIters,
    batchingWaitIters: options.integer('batching-wait-iters', 0) ?? preset.batchingWaitIters,
    chunkedPrefill,
    kvTokens: options.integer('kv-tokens', 1),
    related: options.has('related'),
    time: {
      baseSeconds:
        options.number('iteration-seconds', 'a number of at least 0', (s) => s >= 0) ?? PUBLISHED_TIME.baseSeconds,
      secondsPerToken: options.number('token-seconds', positive, (s) => s > 0) ?? PUBLISHED_TIME.secondsPerToken,
      secondsPerCachedToken: options.number('cached-token-seconds', 'a number of at least 0', (s) => s >= 0) ?? 0,
    },
  };
}

async function readTrace(options: Options, maxInput: number, preset: Presets): Promise<Trace> {
  const file = options.text('trace');
  if (file === undefined) {
    return syntheticTrace({
      requests: options.integer('requests', 1, 1_000_000) ?? preset.requests,
      meanInput: meanOf(options, 'mean-in') ?? preset.meanInput,
      meanOutput: meanOf(options, 'mean-out') ?? preset.meanOutput,
      seed: options.integer('seed', 0) ?? 1,
      maxInput,
    });
  }
  const extra = SYNTHETIC.find((name) => options.has(name));
  if (extra !== undefined) throw usageError(`--${extra} is for a synthetic trace: leave it out, or --trace`);
  const text = await readGiven('trace', file);
  return parseTrace(text, file);
}

async function calibrated(study: AdpStudyOptions, terminal: Terminal): Promise<AdpStudyOptions> {
  if (study.trace.some(({ arrivalSeconds }) => arrivalSeconds > 0)) {
    throw usageError(
      '--calibrate needs a trace without arrival times: with them the iterations would depend on what is fitted',
    );
  }
  terminal.progress('calibrating');
  const { log, outputTokens } = runPolicy(study, { mode: 'trtllm', enable_balance: false });
  const time = calibrate(log, outputTokens, PUBLISHED_ROWS[0]!);
  terminal.note(
    `fitted: --iteration-seconds ${time.baseSeconds.toPrecision(4)} --token-seconds ${time.secondsPerToken.toPrecision(4)}`,
  );
  return { ...study, time };
}
