import { SplitkvError, usageError } from '../../src/base/errors.js';
import { median } from '../../src/base/stats.js';
import { RankGroup } from '../../src/engine/ranks/rank_group.js';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { storedTypes } from '../../src/model/weights/stored_types.js';
import { SlotDriver } from '../../src/engine/testing/slot_driver.js';
import type { AdapterRequest } from '../../src/gpu/index.js';
import type { KvType, WeightType } from '../../src/index.js';
import { openSource } from '../../src/loader/index.js';
import { modelShape } from '../../src/model/shape.js';
import { checkPlan, defaultPromptChunk, makePlan, type Degrees } from '../../src/placement/index.js';
import { decodeSteps } from '../decode_steps.js';
import type { BenchAdapter, Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import { interleave } from '../interleave.js';
import { randomPrompt } from '../prompt.js';
import { type Estimate, pairedRatio } from '../statistics.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals, ratio } from '../table.js';

export interface RanksRequest {
  readonly suite: 'ranks';
  readonly model: string;
  readonly weights?: WeightType;
  readonly kv?: KvType;
  /** Every rank's. */
  readonly adapter: AdapterRequest;
  readonly plans: readonly string[];
  /** How they are cut. */
  readonly degrees?: Degrees;
  /** Numbers of ranks, each 2 or more; every plan is made for each. */
  readonly ranks: readonly number[];
  readonly promptTokens: number;
  readonly batch: number;
  readonly maxTokens: number;
  readonly runs: number;
}

export interface RanksResult {
  readonly task: 'prefill' | 'decode' | 'two requests';
  readonly plan: string;
  readonly ranks: number;
  /** Medians. */
  readonly seconds: number;
  readonly tokens_per_second: number;
  /** One rank's time over this plan's, run by run. */
  readonly speedup: Estimate;
  readonly exchanges_per_step: number;
  readonly samples: readonly number[];
}

interface Rival {
  readonly plan: string;
  readonly group: RankGroup;
}

interface Task {
  readonly name: RanksResult['task'];
  readonly tokens: number;
  /** Seconds, and the ids sampled: every plan must agree on them before it is timed. */
  readonly run: (runner: SlotDriver) => Promise<{ readonly seconds: number; readonly ids: readonly number[] }>;
}

/** Plans on several devices against one device: the same tasks, interleaved, in one process. */
export async function runRanks(request: RanksRequest, hooks: SuiteHooks): Promise<SuiteOutcome<RanksResult>> {
  const { plans, ranks, promptTokens, batch, maxTokens, runs } = request;
  const { signal } = hooks;
  const files = await openModelFiles(await openSource(request.model, signal), signal);
  const { config } = files;
  const contextLength = Math.max(promptTokens, 64 + batch) + maxTokens + 1;
  if (contextLength > config.maxPositions) {
    throw usageError(
      `--prompt-tokens ${promptTokens}: with ${maxTokens} more the model has room for ${config.maxPositions}; ask for fewer`,
    );
  }
  const shape = modelShape(config);
  const reader = await files.reader();
  const open = async (plan: string, worldSize: number, slots: number, batches: number): Promise<Rival> => {
    const made = makePlan(plan, worldSize, shape, plan === 'single' ? {} : request.degrees);
    checkPlan(made, shape);
    hooks.onProgress(`opening ${plan} on ${worldSize} ranks`);
    const group = await RankGroup.open({
      config,
      reader,
      type: request.weights ?? storedTypes(reader.index, config),
      plan: made,
      adapters: Array.from({ length: made.worldSize }, () => request.adapter),
      virtual: false,
      runner: { slots, batches, contextLength, prefillChunk: defaultPromptChunk(made), kvType: request.kv ?? 'f32' },
      signal,
    });
    return { plan, group };
  };
  const prompt = randomPrompt(promptTokens, config.vocabSize);
  const short = Array.from({ length: batch }, (_, slot) => randomPrompt(64 + slot, config.vocabSize));
  const results: RanksResult[] = [];
  const adapters = new Map<string, BenchAdapter>();
  const compare = async (names: readonly string[], slots: number, batches: number, tasks: readonly Task[]) => {
    if (names.length === 0) return;
    const rivals: Rival[] = [];
    try {
      rivals.push(await open('single', 1, slots, batches));
      for (const worldSize of ranks) {
        for (const plan of names) rivals.push(await open(plan, worldSize, slots, batches));
      }
      for (const { group } of rivals) {
        for (const device of group.devices) adapters.set(device.name, { ...device.adapter, name: device.name });
      }
      for (const task of tasks) results.push(...(await race(task, rivals, runs, hooks)));
    } finally {
      for (const { group } of rivals) group.dispose();
    }
  };
  const isPipeline = (plan: string): boolean => plan.startsWith('pp');
  await compare(
    plans.filter((plan) => !isPipeline(plan)),
    batch,
    1,
    [prefillTask(prompt), decodeTask(short, maxTokens)],
  );
  await compare(plans.filter(isPipeline), 1, 2, [twoRequestsTask([prompt, prompt.toReversed()], maxTokens)]);
  return { adapters: [...adapters.values()], results, measurements: results.map(measurement) };
}

const measurement = ({ task, plan, ranks, tokens_per_second: speed, seconds, samples }: RanksResult): Measurement => ({
  metric: task,
  unit: 'tokens/s',
  better: 'higher',
  setting: { plan, ranks },
  samples: samples.map((sample) => (speed * seconds) / sample),
});

function prefillTask(prompt: readonly number[]): Task {
  return {
    name: 'prefill',
    tokens: prompt.length,
    async run(runner) {
      const started = performance.now();
      await runner.prefill(prompt, 1, { seed: 0 });
      const ids = await runner.sampleFirst();
      const seconds = (performance.now() - started) / 1000;
      await runner.release();
      return { seconds, ids: [ids[0]!] };
    },
  };
}

function decodeTask(prompts: readonly (readonly number[])[], maxTokens: number): Task {
  return {
    name: 'decode',
    tokens: prompts.length * maxTokens,
    async run(runner) {
      for (const [slot, prompt] of prompts.entries()) {
        await runner.prefill(prompt, maxTokens + 1, { seed: 0 }, undefined, slot);
      }
      const first = await runner.sampleFirst();
      const started = performance.now();
      const all = [first, ...(await decodeSteps(runner, 0, maxTokens))].flatMap((ids) => [...ids]);
      const seconds = (performance.now() - started) / 1000;
      for (const slot of prompts.keys()) await runner.release(slot);
      return { seconds, ids: all };
    },
  };
}

/** Two requests at once, each a prompt and its answer: what a pipeline's stages work on side by side. */
function twoRequestsTask(prompts: readonly (readonly number[])[], maxTokens: number): Task {
  return {
    name: 'two requests',
    tokens: prompts.length * maxTokens + prompts.reduce((sum, { length }) => sum + length, 0),
    async run(runner) {
      const started = performance.now();
      const answers = await Promise.all(
        prompts.map(async (prompt, slot) => {
          await runner.prefill(prompt, maxTokens, { seed: 0 }, undefined, slot);
          const first = await runner.sampleFirst(slot);
          return [first, ...(await decodeSteps(runner, slot, maxTokens - 1))].map(([id]) => id!);
        }),
      );
      const seconds = (performance.now() - started) / 1000;
      for (const slot of prompts.keys()) await runner.release(slot);
      return { seconds, ids: answers.flat() };
    },
  };
}

async function race(task: Task, rivals: readonly Rival[], runs: number, hooks: SuiteHooks): Promise<RanksResult[]> {
  let expected: readonly number[] | undefined;
  const contenders = rivals.map(({ plan, group }) => ({
    name: `${task.name}: ${plan} on ${group.ranks.length} ranks`,
    async run(): Promise<number> {
      const { seconds, ids } = await task.run(new SlotDriver(group.runner));
      expected ??= ids;
      if (ids.length === expected.length && ids.every((id, at) => id === expected![at])) return seconds;
      throw new SplitkvError(
        'internal',
        `${task.name}: plan '${plan}' samples other tokens than one rank, so no time is told; please report it with the adapter`,
      );
    },
  }));
  const samples = await interleave(contenders, runs, hooks);
  return rivals.map(({ plan, group }, index) => {
    const own = samples[index]!;
    return {
      task: task.name,
      plan,
      ranks: group.ranks.length,
      seconds: median(own),
      tokens_per_second: task.tokens / median(own),
      speedup: pairedRatio(samples[0]!, own),
      exchanges_per_step: group.runner.exchangesPerToken,
      samples: own,
    };
  });
}

export function ranksTable(results: readonly RanksResult[]): string {
  return (
    alignedTable(
      [
        ['task', 'plan', 'ranks', 'seconds', 'tokens/s', 'speed / 1 rank', 'exchanges'],
        ...results.map((result) => [
          result.task,
          result.plan,
          String(result.ranks),
          decimals(result.seconds),
          decimals(result.tokens_per_second),
          ratio(result.speedup),
          String(result.exchanges_per_step),
        ]),
      ],
      2,
    ) + `\nMedians of ${results[0]?.samples.length ?? 0} interleaved runs; every plan sampled the same tokens.\n`
  );
}
