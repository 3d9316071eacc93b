import { SplitkvError } from '../../base/errors.js';
import { median, quantile } from '../../base/stats.js';
import { RankGroup } from '../../engine/rank_group.js';
import { MAX_STEPS_IN_FLIGHT, type Runner } from '../../engine/runner.js';
import { openSource, readJson, TensorReader } from '../../loader/index.js';
import { parseModelConfig } from '../../model/config.js';
import { modelShape } from '../../model/shape.js';
import { checkPlan, defaultPromptChunk, makePlan } from '../../placement/index.js';
import type { Terminal } from '../command.js';
import type { ModelRequest } from '../model_options.js';
import { type BenchDocument, readEnvironment } from './environment.js';
import { randomPrompt } from './load_suite.js';
import { alignedTable, decimals } from './table.js';

export interface RanksRequest {
  readonly model: ModelRequest;
  readonly plans: readonly string[];
  readonly ranks: number;
  readonly promptTokens: number;
  readonly batch: number;
  readonly maxTokens: number;
  readonly runs: number;
  /** A CPU core for each software device (Mesa's LP_NUM_THREADS), so that devices side by side are more than one. */
  readonly oneCore: boolean;
}

export interface RanksResult {
  readonly task: 'prefill' | 'decode' | 'two requests';
  readonly plan: string;
  readonly ranks: number;
  /** Medians. */
  readonly seconds: number;
  readonly tokens_per_second: number;
  /** One rank's time over this plan's, run by run: median, and the middle half of them. */
  readonly speedup: number;
  readonly speedup_quartiles: readonly [number, number];
  readonly exchanges_per_step: number;
  readonly samples: readonly number[];
}

interface Contender {
  readonly plan: string;
  readonly group: RankGroup;
}

/** What every plan must agree on before it is timed: the ids that it samples. */
interface Task {
  readonly name: RanksResult['task'];
  readonly tokens: number;
  readonly run: (runner: Runner) => Promise<{ readonly seconds: number; readonly ids: readonly number[] }>;
}

/** Plans on several devices against one device: the same tasks, interleaved, in one process. */
export async function runRanksSuite(
  { model, plans, ranks, promptTokens, batch, maxTokens, runs, oneCore }: RanksRequest,
  terminal: Terminal,
): Promise<BenchDocument<RanksResult>> {
  if (oneCore) process.env['LP_NUM_THREADS'] ??= '1';
  const source = await openSource(model.model, terminal.signal);
  const config = parseModelConfig(await readJson(source, 'config.json', terminal.signal));
  const shape = modelShape(config);
  const reader = await TensorReader.open(source, terminal.signal);
  const { weights, adapter, kv } = model.options;
  const open = async (plan: string, slots: number, batches: number): Promise<Contender> => {
    const made = plan === 'single' ? makePlan('single', 1, shape) : makePlan(plan, ranks, shape);
    checkPlan(made, shape);
    const request = adapter === undefined ? {} : { adapterName: adapter };
    const group = await RankGroup.open({
      config,
      reader,
      type: weights && weights !== 'auto' ? weights : 'f32',
      plan: made,
      adapters: Array.from({ length: made.worldSize }, () => request),
      virtual: false,
      runner: {
        slots,
        batches,
        contextLength: Math.min(config.maxPositions, Math.max(promptTokens, 256) + maxTokens),
        prefillChunk: defaultPromptChunk(made),
        kvType: kv ?? 'f32',
      },
      signal: terminal.signal,
    });
    return { plan, group };
  };
  const prompt = randomPrompt(promptTokens, config.vocabSize);
  const short = Array.from({ length: batch }, (_, slot) => randomPrompt(64 + slot, config.vocabSize));
  const pipelines = plans.filter((plan) => plan.startsWith('pp'));
  const results: RanksResult[] = [];
  const adapters = new Map<string, RankGroup['devices'][number]>();
  const compare = async (names: readonly string[], slots: number, batches: number, tasks: readonly Task[]) => {
    if (names.length === 0) return;
    const contenders: Contender[] = [];
    try {
      for (const plan of ['single', ...names]) contenders.push(await open(plan, slots, batches));
      for (const { group } of contenders) for (const device of group.devices) adapters.set(device.name, device);
      for (const task of tasks) results.push(...(await race(task, contenders, runs, terminal)));
    } finally {
      for (const { group } of contenders) group.dispose();
    }
  };
  await compare(
    plans.filter((plan) => !plan.startsWith('pp')),
    batch,
    1,
    [prefillTask(prompt), decodeTask(short, maxTokens)],
  );
  await compare(pipelines, 1, 2, [twoRequestsTask([prompt, prompt.toReversed()], maxTokens)]);
  const environment = await readEnvironment(
    'node',
    [...adapters.values()].map((device) => ({ ...device.adapter, name: device.name })),
  );
  return { suite: 'ranks', environment, results };
}

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
      const all = [first, ...(await stepsOf(runner, 0, maxTokens))].flatMap((ids) => [...ids]);
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
          return [first, ...(await stepsOf(runner, slot, maxTokens - 1))].map(([id]) => id!);
        }),
      );
      const seconds = (performance.now() - started) / 1000;
      for (const slot of prompts.keys()) await runner.release(slot);
      return { seconds, ids: answers.flat() };
    },
  };
}

/** Decode steps of a batch, submitted ahead as `generate` does. */
async function stepsOf(runner: Runner, batch: number, steps: number): Promise<Uint32Array[]> {
  const all: Uint32Array[] = [];
  const ahead: Promise<Uint32Array>[] = [];
  for (let step = 0; step < steps; step++) {
    ahead.push(runner.step(batch));
    if (ahead.length === MAX_STEPS_IN_FLIGHT) all.push(await ahead.shift()!);
  }
  for (const ids of ahead) all.push(await ids);
  return all;
}

async function race(
  task: Task,
  contenders: readonly Contender[],
  runs: number,
  terminal: Terminal,
): Promise<RanksResult[]> {
  const samples = contenders.map(() => [] as number[]);
  let expected: readonly number[] | undefined;
  // The first run compiles, and is checked but not timed.
  for (let run = 0; run <= runs; run++) {
    for (const [index, { plan, group }] of contenders.entries()) {
      if (terminal.signal.aborted) throw new SplitkvError('aborted', 'bench was aborted');
      terminal.progress(`${task.name}: ${plan}, run ${run} of ${runs}`);
      const { seconds, ids } = await task.run(group.runner);
      expected ??= ids;
      if (ids.length !== expected.length || ids.some((id, at) => id !== expected![at])) {
        throw new SplitkvError(
          'internal',
          `${task.name}: plan '${plan}' samples other tokens than one rank, so no time is told; please report it with the adapter`,
        );
      }
      if (run > 0) samples[index]!.push(seconds);
    }
  }
  const [one] = samples;
  return contenders.map(({ plan, group }, index) => {
    const own = samples[index]!;
    const ratios = own.map((seconds, run) => one![run]! / seconds);
    return {
      task: task.name,
      plan,
      ranks: group.ranks.length,
      seconds: median(own),
      tokens_per_second: task.tokens / median(own),
      speedup: median(ratios),
      speedup_quartiles: [quantile(ratios, 0.25), quantile(ratios, 0.75)],
      exchanges_per_step: group.runner.exchangesPerToken,
      samples: own,
    };
  });
}

export function ranksTable(results: readonly RanksResult[]): string {
  return (
    alignedTable(
      [
        ['task', 'plan', 'ranks', 'seconds', 'tokens/s', 'speed / 1 rank', 'middle half', 'exchanges'],
        ...results.map((result) => [
          result.task,
          result.plan,
          String(result.ranks),
          decimals(result.seconds),
          decimals(result.tokens_per_second),
          result.speedup.toFixed(2),
          result.speedup_quartiles.map((value) => value.toFixed(2)).join(' to '),
          String(result.exchanges_per_step),
        ]),
      ],
      2,
    ) + `\nMedians of ${results[0]?.samples.length ?? 0} interleaved runs; every plan sampled the same tokens.\n`
  );
}
