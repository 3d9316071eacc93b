import { SlotDriver } from '../../src/engine/testing/slot_driver.js';
import { SplitkvError, usageError } from '../../src/base/errors.js';
import { Random } from '../../src/base/random.js';
import { median } from '../../src/base/stats.js';
import type { AttentionStats } from '../../src/engine/contracts/api.js';
import { attentionMs, busiest } from '../../src/engine/ranks/stats.js';
import { syntheticWeights } from '../../src/engine/measure/synthetic_weights.js';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { storedTypes } from '../../src/model/weights/stored_types.js';
import { RankGroup } from '../../src/engine/ranks/rank_group.js';
import type { AdapterRequest } from '../../src/gpu/index.js';
import type { KvType, WeightType } from '../../src/index.js';
import type { WeightTypes } from '../../src/model/weights/weight_types.js';
import { openSource, type TensorReader } from '../../src/loader/index.js';
import { compressionOptions } from '../../src/model/compression/options.js';
import { cachesLatent, type ModelConfig } from '../../src/model/config/model_config.js';
import { parseModelConfig } from '../../src/model/families/registry.js';
import { modelShape, wholeSlice } from '../../src/model/shape.js';
import { arrange, type Profile, toArrangementFile } from '../../src/arrangement/index.js';
import { lognormalLoads } from '../../src/arrangement/testing/loads.js';
import { arrangedPlan, checkPlan, makePlan, type Plan } from '../../src/placement/index.js';
import type { BenchAdapter, Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import { interleave } from '../interleave.js';
import { randomPrompt } from '../prompt.js';
import { type Estimate, pairedRatio } from '../statistics.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals, ratio } from '../table.js';

export interface ArrangedRequest {
  readonly suite: 'arranged';
  readonly model: string;
  /** A random model with the layers and heads of Llama-3-8B besides. */
  readonly wide: boolean;
  readonly weights?: WeightType;
  readonly kv?: KvType;
  /** Every rank's. */
  readonly adapter: AdapterRequest;
  readonly ranks: readonly number[];
  readonly batches: readonly number[];
  /** Of the model; by default loads drawn at random, as Ada-KV leaves them. */
  readonly profile?: Profile;
  /** Of DP, the most that a layer gets; default ranks - 1. */
  readonly copies?: number | undefined;
  /**
   * By which part prompts' loads differ from those that heads are arranged by (standard deviation, lognormal), as those of prompts do that
   * no profile has seen; default 0.
   */
  readonly spread?: number | undefined;
  /** Part of a prompt that heads keep on average. */
  readonly budget: number;
  readonly promptTokens: number;
  /** Decode steps of a run. */
  readonly maxTokens: number;
  readonly runs: number;
}

/** As in FairKV: heads in order, heads by load, heads by load and copied. */
type Variant = 'SHA' | 'NoDP' | 'DP';
const VARIANTS: readonly Variant[] = ['SHA', 'NoDP', 'DP'];

export interface ArrangedResult {
  readonly model: string;
  readonly ranks: number;
  readonly batch: number;
  readonly arrangement: Variant;
  /** Copies beyond the first, a layer, and how they share a head. */
  readonly copies: number;
  readonly sharing: Plan['sharing'] | '';
  /** Part of their time that ranks are busy, if attention were all: by the search from the loads, and by the KV tokens read. */
  readonly predicted_utilisation: number;
  readonly utilisation: number;
  /** A step, before the timed ones: of each rank, and of the busiest in every layer, added up. */
  readonly kv_tokens_per_step: readonly number[];
  readonly busiest_kv_tokens_per_step: number;
  /** Of attention on each rank, all layers of a step, by the devices' own clocks, in the run that warms up; undefined without. */
  readonly attention_ms: readonly number[] | undefined;
  /** Median. */
  readonly step_ms: number;
  /** SHA's time over this one's, run by run. */
  readonly speedup: Estimate;
  readonly exchanges_per_step: number;
  /** Milliseconds a step. */
  readonly samples: readonly number[];
}

interface BenchModel {
  readonly name: string;
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly type: WeightTypes;
  /** That heads are arranged by. */
  readonly loads: readonly (readonly number[])[];
}

/** What the prompts' heads keep in place of what they are arranged by. */
function keptLoads(loads: BenchModel['loads'], spread: number): number[][] {
  const random = new Random(11);
  const variance = Math.log1p(spread ** 2);
  const factor = (): number => Math.exp(Math.sqrt(variance) * random.normal() - variance / 2);
  return loads.map((heads) => heads.map((load) => load * factor()));
}

/** Llama-3-8B's layers and heads at a small width: what attention's spread depends on. */
const WIDE_HEADS = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: 1024,
  hidden_size: 256,
  intermediate_size: 512,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  head_dim: 16,
  hidden_act: 'silu',
  rms_norm_eps: 1e-5,
  rope_theta: 500000,
  max_position_embeddings: 8192,
  tie_word_embeddings: false,
};

/**
 * Arrangements of heads by load on several devices: prompts are compressed head by head as the loads say, and every arrangement must
 * sample the tokens of one rank with the same compression before it is timed.
 */
export async function runArranged(request: ArrangedRequest, hooks: SuiteHooks): Promise<SuiteOutcome<ArrangedResult>> {
  const results: ArrangedResult[] = [];
  const adapters = new Map<string, BenchAdapter>();
  for (const model of await modelsOf(request, hooks)) {
    for (const batch of request.batches) {
      const expected = await expectedIds(model, batch, request, hooks);
      for (const ranks of request.ranks) {
        results.push(...(await race(model, { ranks, batch }, expected, request, hooks, adapters)));
      }
    }
  }
  return { adapters: [...adapters.values()], results, measurements: results.map(measurement) };
}

const measurement = ({ model, ranks, batch, arrangement, samples }: ArrangedResult): Measurement => ({
  metric: `step, ${model}`,
  unit: 'ms',
  better: 'lower',
  setting: { arrangement, ranks, batch },
  samples,
});

async function modelsOf(request: ArrangedRequest, { signal }: SuiteHooks): Promise<BenchModel[]> {
  const files = await openModelFiles(await openSource(request.model, signal), signal);
  const reader = await files.reader();
  const given = withHeads(files.config);
  const { profile } = request;
  const { numLayers, kvHeads } = modelShape(given);
  if (profile && (profile.layers.length !== numLayers || profile.layers[0]!.length !== kvHeads)) {
    throw usageError(
      `--profile: ${profile.layers.length} layers of ${profile.layers[0]!.length} kv heads; the model has ${numLayers} of ` +
        `${kvHeads}: profile this model`,
    );
  }
  const drawn = (config: ModelConfig): number[][] => {
    const shape = modelShape(config);
    return lognormalLoads(7, shape.numLayers, shape.kvHeads);
  };
  const models: BenchModel[] = [
    {
      name: request.model.split(/[\\/]/).findLast((part) => part !== '') ?? request.model,
      config: given,
      reader,
      type: request.weights ?? storedTypes(reader.index, given),
      loads: profile?.layers ?? drawn(given),
    },
  ];
  if (request.wide) {
    const wide = withHeads(parseModelConfig(WIDE_HEADS));
    models.push({
      name: '32 layers x 8 kv heads',
      config: wide,
      reader: syntheticWeights(wide, wholeSlice(wide)),
      type: request.weights ?? 'f16',
      loads: drawn(wide),
    });
  }
  return models;
}

function withHeads(config: ModelConfig): ModelConfig {
  if (!cachesLatent(config)) return config;
  throw usageError("--suite arranged: this model's cache is one latent for all heads; name a model with kv heads");
}

interface Rival {
  readonly group: RankGroup;
  readonly attention: Omit<AttentionStats, 'predicted_utilisation'>;
  /** Runs the next steps of every sequence. */
  steps(): Promise<{ readonly milliseconds: number; readonly ids: readonly number[] }>;
}

/** Prompts in the cache, compressed as the loads say; then as many steps at a time as a run has. */
async function open(
  { config, reader, type, loads }: BenchModel,
  plan: Plan,
  batch: number,
  { budget, spread = 0, promptTokens, maxTokens, runs, kv, adapter }: ArrangedRequest,
  { signal }: SuiteHooks,
): Promise<Rival> {
  const shape = modelShape(config);
  checkPlan(plan, shape);
  const room = (runs + 1) * maxTokens + 2;
  const contextLength = promptTokens + room;
  if (contextLength > config.maxPositions) {
    throw usageError(
      `--prompt-tokens ${promptTokens}: with ${room} more the model has room for ${config.maxPositions}; ask for fewer, or fewer runs`,
    );
  }
  const group = await RankGroup.open({
    config,
    reader,
    type,
    plan,
    adapters: Array.from({ length: plan.worldSize }, () => adapter),
    virtual: false,
    runner: {
      slots: batch,
      contextLength,
      prefillChunk: 512,
      kvType: kv ?? 'f32',
      compression: compressionOptions(
        { policy: 'static', budget, loads: keptLoads(loads, spread) },
        { numLayers: shape.numLayers, numKvHeads: shape.kvHeads },
      ),
    },
    signal,
  });
  try {
    const runner = new SlotDriver(group.runner);
    for (let slot = 0; slot < batch; slot++) {
      const prompt = randomPrompt(promptTokens - slot, config.vocabSize);
      await runner.prefill(prompt, room, { seed: 0 }, signal, slot);
    }
    await runner.sampleFirst();
    // With the first step, copies share out anew what came to them one by one.
    await runner.step();
    const read = await runner.kvTokens();
    await group.runner.timeAttention(maxTokens);
    return {
      group,
      attention: { kv_tokens_per_step: read.map((layers) => layers.reduce((sum, n) => sum + n, 0)), ...busiest(read) },
      async steps() {
        const ids: number[] = [];
        const started = performance.now();
        for (let step = 0; step < maxTokens; step++) ids.push(...(await runner.step()));
        return { milliseconds: (performance.now() - started) / maxTokens, ids };
      },
    };
  } catch (error) {
    group.dispose();
    throw error;
  }
}

/** What one rank samples, run by run. */
async function expectedIds(
  model: BenchModel,
  batch: number,
  request: ArrangedRequest,
  hooks: SuiteHooks,
): Promise<readonly (readonly number[])[]> {
  hooks.onProgress(`${model.name}, batch ${batch}: one rank`);
  const { group, steps } = await open(model, makePlan('single', 1, modelShape(model.config)), batch, request, hooks);
  try {
    const ids: (readonly number[])[] = [];
    for (let run = 0; run <= request.runs; run++) ids.push((await steps()).ids);
    return ids;
  } finally {
    group.dispose();
  }
}

async function race(
  model: BenchModel,
  { ranks, batch }: { readonly ranks: number; readonly batch: number },
  expected: readonly (readonly number[])[],
  request: ArrangedRequest,
  hooks: SuiteHooks,
  adapters: Map<string, BenchAdapter>,
): Promise<ArrangedResult[]> {
  const shape = modelShape(model.config);
  const { copies } = request;
  const rivals: (Rival & {
    readonly variant: Variant;
    readonly found: ReturnType<typeof arrange>;
    readonly plan: Plan;
  })[] = [];
  try {
    for (const variant of VARIANTS) {
      hooks.onProgress(`${model.name}, ${ranks} ranks, batch ${batch}: opening ${variant}`);
      const found = arrange({
        loads: model.loads,
        ranks,
        ...(variant === 'SHA'
          ? { mode: 'static' }
          : variant === 'NoDP'
            ? { mode: 'exact', copies: 0 }
            : { mode: 'fair-copy', ...(batch > 1 && { batch }), ...(copies !== undefined && { copies }) }),
      });
      const plan = arrangedPlan(toArrangementFile(model.name, ranks, found), shape, batch > 1 ? 'sequences' : 'lanes');
      rivals.push({ ...(await open(model, plan, batch, request, hooks)), variant, found, plan });
    }
    for (const { group } of rivals) {
      for (const device of group.devices) adapters.set(device.name, { ...device.adapter, name: device.name });
    }
    const contenders = rivals.map(({ variant, steps }) => {
      let run = 0;
      return {
        name: `${model.name}, ${ranks} ranks, batch ${batch}: ${variant}`,
        async run(): Promise<number> {
          const { milliseconds, ids } = await steps();
          const right = expected[run++]!;
          if (ids.length === right.length && ids.every((id, at) => id === right[at])) return milliseconds;
          throw new SplitkvError(
            'internal',
            `${variant} on ${ranks} ranks samples other tokens than one rank, so no time is told; please report it with the adapter`,
          );
        },
      };
    });
    const samples = await interleave(contenders, request.runs, hooks);
    const counts = await Promise.all(rivals.map(({ group }) => group.runner.counts()));
    return rivals.map(({ variant, found, plan, attention, group }, index): ArrangedResult => ({
      model: model.name,
      ranks,
      batch,
      arrangement: variant,
      copies: found.copies / shape.numLayers,
      sharing: plan.sharing ?? '',
      predicted_utilisation: found.utilisation,
      ...attention,
      attention_ms: attentionMs(counts[index]!),
      step_ms: median(samples[index]!),
      speedup: pairedRatio(samples[0]!, samples[index]!),
      exchanges_per_step: group.runner.exchangesPerToken,
      samples: samples[index]!,
    }));
  } finally {
    for (const { group } of rivals) group.dispose();
  }
}

export function arrangedTable(results: readonly ArrangedResult[]): string {
  const percent = (part: number): string => `${(part * 100).toFixed(1)}%`;
  const heading = [
    'model',
    'ranks',
    'batch',
    '',
    'copies',
    'shared by',
    'busy, expected',
    'busy',
    'KV tokens',
    'attention ms',
    'ms/step',
    'SHA / this',
    'exchanges',
  ];
  const rows = results.map((result) => [
    result.model,
    String(result.ranks),
    String(result.batch),
    result.arrangement,
    decimals(result.copies),
    result.sharing ?? '',
    percent(result.predicted_utilisation),
    percent(result.utilisation),
    String(result.busiest_kv_tokens_per_step),
    result.attention_ms ? decimals(Math.max(...result.attention_ms)) : '',
    decimals(result.step_ms),
    ratio(result.speedup),
    String(result.exchanges_per_step),
  ]);
  return (
    alignedTable([heading, ...rows], 2) +
    `\nMedians of ${results[0]?.samples.length ?? 0} interleaved runs; every arrangement sampled the tokens of one rank with the same compression.\n` +
    'copies: a layer, beyond the first of each head. KV tokens: read a step by the busiest rank of each layer, added up; busy: all that are read over ranks times that.\n' +
    'attention ms: a step, of the rank where it takes longest, by its own clock.\n'
  );
}
