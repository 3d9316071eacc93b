import { SplitkvError, throwIfAborted, usageError } from '../../../src/base/errors.js';
import { median } from '../../../src/base/stats.js';
import { planOutlook, type PlanOutlook } from '../../../src/engine/planning/auto_plan.js';
import { cacheType } from '../../../src/engine/planning/rank_adapters.js';
import { openModelFiles } from '../../../src/engine/files/model_files.js';
import { storedTypes } from '../../../src/model/weights/stored_types.js';
import { RankGroup } from '../../../src/engine/ranks/rank_group.js';
import { SlotDriver } from '../../../src/engine/testing/slot_driver.js';
import { openSource } from '../../../src/loader/index.js';
import { lognormalLoads } from '../../../src/arrangement/testing/loads.js';
import { type CompressionOptions, compressionOptions } from '../../../src/model/compression/options.js';
import type { ModelConfig } from '../../../src/model/config/model_config.js';
import { modelShape } from '../../../src/model/shape.js';
import {
  defaultPromptChunk,
  misfit,
  modelFeatures,
  type PlanCandidate,
  pickPlan,
  type PlanPrediction,
} from '../../../src/placement/index.js';
import type { Terminal } from '../../../src/cli/command.js';
import type { ModelRequest } from '../../../src/cli/model_options.js';
import type { BenchDocument } from '../../document.js';
import { readEnvironment } from '../environment.js';
import { randomPrompt } from '../../prompt.js';
import { alignedTable } from '../../../src/base/aligned_table.js';
import { decimals } from '../../table.js';

export interface PlannerRequest {
  readonly models: readonly { readonly name: string; readonly request: ModelRequest }[];
  readonly ranks: number;
  readonly promptTokens: readonly number[];
  readonly maxTokens: number;
  readonly runs: number;
  /** Part of a prompt that heads keep on average, each by a load that is drawn; undefined: all of it. Plans that arrange heads run then, too. */
  readonly budget?: number | undefined;
  /** A CPU core for each software device (Mesa's LP_NUM_THREADS), so that devices side by side are more than one. */
  readonly oneCore: boolean;
}

/** A plan's request, predicted and measured. */
export interface PlannerResult {
  readonly model: string;
  readonly prompt_tokens: number;
  readonly plan: string;
  readonly ranks: number;
  readonly predicted: PlanTimes;
  /** The least of the runs: whatever else goes on only adds. */
  readonly measured: PlanTimes;
  /** What the planner picks for this model and prompt. */
  readonly picked: boolean;
  readonly samples: readonly PlanTimes[];
}

export interface PlanTimes {
  readonly ttft_ms: number;
  readonly step_ms: number;
  readonly request_ms: number;
}

/** How well plans were picked by each of the times, over all models and prompts. */
export interface PlannerScore {
  readonly by: keyof PlanTimes;
  readonly choices: number;
  /** Picks that were truly fastest, or took at most a tenth longer. */
  readonly good: number;
  /** The worst pick's time over the fastest plan's. */
  readonly worst: number;
  /** Median of |predicted / measured - 1| over all plans, models and prompts. */
  readonly median_error: number;
}

export interface PlannerDocument extends BenchDocument<PlannerResult> {
  readonly scores: readonly PlannerScore[];
}

const TIMES = ['request_ms', 'step_ms', 'ttft_ms'] as const;
const GOOD = 1.1;

type Made = PlanCandidate & PlanPrediction;

interface Contender {
  readonly candidate: Made;
  readonly group: RankGroup;
}

/** What heads keep of a prompt: the same for every plan, and uneven as models' heads are. */
function compressionOf(config: ModelConfig, budget: number | undefined): CompressionOptions | undefined {
  if (budget === undefined) return undefined;
  const { numLayers, kvHeads } = modelShape(config);
  const loads = lognormalLoads(7, numLayers, kvHeads);
  return compressionOptions({ policy: 'static', budget, loads }, { numLayers, numKvHeads: kvHeads });
}

/** Every plan that can be made, predicted and then run; the planner is told nothing that it wouldn't measure itself. */
export async function runPlannerSuite(request: PlannerRequest, terminal: Terminal): Promise<PlannerDocument> {
  if (request.oneCore) process.env['LP_NUM_THREADS'] ??= '1';
  const results: PlannerResult[] = [];
  const adapters = new Map<string, RankGroup['devices'][number]>();
  const why = new Set<string>();
  for (const model of request.models) {
    const found = await runModel(model, request, terminal, adapters);
    if (typeof found === 'string') why.add(`${model.name}: ${found}`);
    else results.push(...found);
  }
  if (results.length === 0) throw usageError([...why].join('; '));
  const environment = await readEnvironment(
    'node',
    [...adapters.values()].map((device) => ({ ...device.adapter, name: device.name })),
  );
  return { suite: 'planner', environment, results, scores: TIMES.map((by) => scoreOf(results, by)) };
}

/** Or why its cache can't be compressed. */
async function runModel(
  { name, request: { model, options } }: PlannerRequest['models'][number],
  { ranks, promptTokens, maxTokens, runs, budget }: PlannerRequest,
  terminal: Terminal,
  adapters: Map<string, RankGroup['devices'][number]>,
): Promise<PlannerResult[] | string> {
  const { signal } = terminal;
  const files = await openModelFiles(await openSource(model, signal), signal);
  const { config } = files;
  const why = budget === undefined ? undefined : misfit(['compression', ...modelFeatures(modelShape(config))]);
  if (why !== undefined) return why;
  const compression = compressionOf(config, budget);
  const compressed = compression && { compression };
  const reader = await files.reader();
  const type = options.weights && options.weights !== 'auto' ? options.weights : storedTypes(reader.index, config);
  const kvType = await cacheType(options);
  const contextLength = Math.min(config.maxPositions, Math.max(...promptTokens) + maxTokens);
  const requests = Array.from({ length: ranks }, () =>
    options.adapter === undefined ? {} : { adapterName: options.adapter },
  );
  const outlookAt = (promptLength: number, fresh: boolean): Promise<PlanOutlook> =>
    planOutlook({
      subject: { config, type, kvType, contextLength, ...compressed, seatsOf: () => ({ slots: 1 }) },
      adapters: requests,
      budgets: [],
      virtual: false,
      workload: { promptLength, newTokens: maxTokens },
      exactMemory: false,
      fresh,
      store: FORGETFUL,
      signal,
      onProgress: (line) => terminal.progress(`${name}: ${line}`),
    });
  const open = async (candidate: Made): Promise<Contender> => {
    const { plan, worldSize } = candidate;
    const group = await RankGroup.open({
      config,
      reader,
      type,
      plan,
      adapters: requests.slice(0, worldSize),
      virtual: false,
      runner: { slots: 1, batches: 1, contextLength, prefillChunk: defaultPromptChunk(plan), kvType, ...compressed },
      signal,
    });
    for (const device of group.devices) adapters.set(device.name, device);
    return { candidate, group };
  };
  const results: PlannerResult[] = [];
  for (const [at, length] of promptTokens.entries()) {
    const outlook = await outlookAt(length, at === 0);
    // How heads are arranged depends on the prompt.
    const contenders: Contender[] = [];
    try {
      for (const candidate of outlook.candidates.filter(isMade)) contenders.push(await open(candidate));
      const samples = await race(contenders, randomPrompt(length, config.vocabSize), maxTokens, runs, (line) => {
        throwIfAborted(signal, 'bench');
        terminal.progress(`${name}, ${length} tokens: ${line}`);
      });
      const pick = pickPlan(outlook.candidates);
      for (const [index, { candidate }] of contenders.entries()) {
        const { firstTokenSeconds, decode, requestSeconds } = candidate;
        results.push({
          model: name,
          prompt_tokens: length,
          plan: candidate.policy,
          ranks: candidate.worldSize,
          predicted: {
            ttft_ms: firstTokenSeconds * 1000,
            step_ms: decode.seconds * 1000,
            request_ms: requestSeconds * 1000,
          },
          measured: leastOf(samples[index]!, maxTokens),
          picked: candidate === pick,
          samples: samples[index]!,
        });
      }
    } finally {
      for (const { group } of contenders) group.dispose();
    }
  }
  return results;
}

/** Measures are kept for this process alone: each run of the suite takes its own. */
const FORGETFUL = { environment: 'bench', get: () => Promise.resolve(undefined), set: () => Promise.resolve() };

const isMade = (candidate: PlanCandidate): candidate is Made =>
  candidate.plan !== undefined && candidate.refused === undefined;

/** Runs every plan in turn; the first run compiles, and is checked but not timed. */
async function race(
  contenders: readonly Contender[],
  prompt: readonly number[],
  maxTokens: number,
  runs: number,
  onProgress: (line: string) => void,
): Promise<PlanTimes[][]> {
  const samples = contenders.map(() => [] as PlanTimes[]);
  let expected: string | undefined;
  for (let run = 0; run <= runs; run++) {
    for (const [index, { candidate, group }] of contenders.entries()) {
      onProgress(`${candidate.policy}, run ${run} of ${runs}`);
      const { ids, ...times } = await answer(new SlotDriver(group.runner), prompt, maxTokens);
      expected ??= ids.join();
      if (ids.join() !== expected) {
        throw new SplitkvError(
          'internal',
          `plan '${candidate.policy}' samples other tokens than one rank, so no time is told; please report it with the adapter`,
        );
      }
      if (run > 0) samples[index]!.push(times);
    }
  }
  return samples;
}

async function answer(
  runner: SlotDriver,
  prompt: readonly number[],
  maxTokens: number,
): Promise<PlanTimes & { readonly ids: readonly number[] }> {
  const started = performance.now();
  await runner.prefill(prompt, maxTokens + 1, { seed: 0 });
  const ids: number[] = [...(await runner.sampleFirst())];
  const first = performance.now();
  const ahead: Promise<Uint32Array>[] = [];
  for (let step = 0; step < maxTokens; step++) {
    ahead.push(runner.step());
    if (ahead.length === 4) ids.push(...(await ahead.shift()!));
  }
  for (const step of ahead) ids.push(...(await step));
  const ended = performance.now();
  await runner.release();
  return { ids, ttft_ms: first - started, step_ms: (ended - first) / maxTokens, request_ms: ended - started };
}

function leastOf(samples: readonly PlanTimes[], maxTokens: number): PlanTimes {
  const [ttft, step] = (['ttft_ms', 'step_ms'] as const).map((key) => Math.min(...samples.map((times) => times[key])));
  return { ttft_ms: ttft!, step_ms: step!, request_ms: ttft! + maxTokens * step! };
}

/** Picks are the planner's own by the time of a request, and the least prediction by the others. */
export function scoreOf(results: readonly PlannerResult[], by: keyof PlanTimes): PlannerScore {
  const choices = new Map<string, PlannerResult[]>();
  for (const result of results) {
    const key = `${result.model} ${result.prompt_tokens}`;
    choices.set(key, [...(choices.get(key) ?? []), result]);
  }
  const ratios = [...choices.values()].map((plans) => {
    const least = (of: (result: PlannerResult) => number): PlannerResult =>
      plans.reduce((best, plan) => (of(plan) < of(best) ? plan : best));
    const pick = by === 'request_ms' ? plans.find(({ picked }) => picked)! : least(({ predicted }) => predicted[by]);
    return pick.measured[by] / least(({ measured }) => measured[by]).measured[by];
  });
  return {
    by,
    choices: ratios.length,
    good: ratios.filter((ratio) => ratio <= GOOD).length,
    worst: Math.max(...ratios),
    median_error: median(results.map(({ predicted, measured }) => Math.abs(predicted[by] / measured[by] - 1))),
  };
}

export function plannerTable({ results, scores }: PlannerDocument): string {
  const words = { request_ms: 'request', step_ms: 'step', ttft_ms: 'first token' } as const;
  const rows = results.map((result) => [
    `${result.picked ? '* ' : '  '}${result.model}`,
    result.plan,
    String(result.ranks),
    String(result.prompt_tokens),
    ...TIMES.flatMap((by) => [decimals(result.predicted[by]), decimals(result.measured[by])]),
  ]);
  const headings = TIMES.flatMap((by) => [words[by], '(measured)']);
  const lines = scores.map(
    ({ by, choices, good, worst, median_error: error }) =>
      `by ${words[by]}: ${good} of ${choices} picks fastest or within a tenth of it, the worst ${worst.toFixed(2)} times the fastest; ` +
      `median error of predictions ${(100 * error).toFixed(0)}%`,
  );
  return `${alignedTable([['  model', 'plan', 'ranks', 'prompt', ...headings], ...rows], 2)}\nMilliseconds, predicted and measured; * is the plan picked.\n${lines.join('\n')}\n`;
}
