import { limitError, SplitkvError, usageError } from '../../src/base/errors.js';
import { median } from '../../src/base/stats.js';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { storedTypes } from '../../src/model/weights/stored_types.js';
import type { HandedKv } from '../../src/engine/contracts/prefill_worker.js';
import { RankGroup } from '../../src/engine/ranks/rank_group.js';
import { SplitkvPrefill } from '../../src/engine/prefill/open_prefill.js';
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

export interface ThroughputRequest {
  readonly suite: 'throughput';
  readonly model: string;
  readonly weights?: WeightType;
  readonly kv?: KvType;
  /** Every rank's. */
  readonly adapter: AdapterRequest;
  readonly plans: readonly string[];
  /** How they are cut. */
  readonly degrees?: Degrees;
  readonly ranks: number;
  /** Of every plan; those of more than a batch's sequences are left out. */
  readonly microBatches: readonly number[];
  readonly batches: readonly number[];
  /** Tokens that each sequence has in the cache before the timed ones. */
  readonly contexts: readonly number[];
  readonly maxTokens: number;
  readonly runs: number;
}

export interface ThroughputResult {
  /** 'replicas': one rank's sequences at `batch` over the ranks, times the ranks, as if none slowed another down. */
  readonly plan: string;
  readonly ranks: number;
  readonly micro_batches: number;
  readonly batch: number;
  readonly context: number;
  readonly tokens_per_second: number;
  /** Weights and caches of the rank with most of them; caches have room for `batch` sequences of the longest context asked for. */
  readonly rank_bytes: number;
  /** Beside one rank with the whole batch, run by run. */
  readonly speedup: Estimate;
  readonly samples: readonly number[];
}

interface Rival extends Decoder {
  readonly plan: string;
}

/** Ranks with a slot for each of `batch` sequences, in some micro-batches. */
export interface Decoder {
  readonly microBatches: number;
  readonly batch: number;
  readonly group: RankGroup;
}

/** Sequences whose prompts differ; further ones repeat them, as their keys and values are computed only once. */
const PROMPTS = 4;
/** Tokens whose keys and values are computed; longer caches repeat them, as only their length counts. */
const COMPUTED = 1024;

/** Generated tokens per second of plans and of micro-batches, by batch and context: decode steps alone, of sequences that begin alike everywhere. */
export async function runThroughput(
  request: ThroughputRequest,
  hooks: SuiteHooks,
): Promise<SuiteOutcome<ThroughputResult>> {
  const { plans, ranks, microBatches, batches, contexts, maxTokens } = request;
  const { signal } = hooks;
  const files = await openModelFiles(await openSource(request.model, signal), signal);
  const { config } = files;
  const roomFor = (context: number): number => context + maxTokens + 1;
  const longest = Math.max(...contexts);
  if (roomFor(longest) > config.maxPositions) {
    throw usageError(
      `--prompt-tokens ${longest}: with ${maxTokens} more the model has room for ${config.maxPositions}; ask for fewer`,
    );
  }
  const shape = modelShape(config);
  const reader = await files.reader();
  const open = async (
    plan: string,
    worldSize: number,
    batch: number,
    count: number,
    contextLength: number,
  ): Promise<Rival> => {
    const made = makePlan(plan, worldSize, shape, plan === 'single' ? {} : request.degrees);
    checkPlan(made, shape);
    hooks.onProgress(`opening ${plan} on ${worldSize} ranks for ${batch} sequences in ${count} micro-batches`);
    const group = await RankGroup.open({
      config,
      reader,
      type: request.weights ?? storedTypes(reader.index, config),
      plan: made,
      adapters: Array.from({ length: made.worldSize }, () => request.adapter),
      virtual: false,
      runner: {
        slots: Math.ceil(batch / count),
        batches: count,
        contextLength,
        prefillChunk: defaultPromptChunk(made),
        kvType: request.kv ?? 'f32',
      },
      signal,
    });
    return { plan, microBatches: count, batch, group };
  };
  const worker = await open('single', 1, 1, 1, roomFor(longest));
  const results: ThroughputResult[] = [];
  const adapters = new Map<string, BenchAdapter>();
  try {
    const prompts: Prompts[] = [];
    for (const context of contexts) prompts.push(await promptsOf(worker.group, context, hooks));
    for (const batch of batches) {
      const { rivals, fitting } = await openFitting(contexts, hooks, batch, async function* (context) {
        const contextLength = roomFor(context);
        yield open('single', 1, batch, 1, contextLength);
        const each = Math.ceil(batch / ranks);
        if (each < batch) yield open('single', 1, each, 1, contextLength);
        for (const plan of plans) {
          for (const count of microBatches) if (count <= batch) yield open(plan, ranks, batch, count, contextLength);
        }
      });
      try {
        for (const { group } of rivals) {
          for (const device of group.devices) adapters.set(device.name, { ...device.adapter, name: device.name });
        }
        for (const context of fitting) {
          results.push(...(await race(rivals, prompts[contexts.indexOf(context)]!, context, request, hooks)));
        }
      } finally {
        for (const { group } of rivals) group.dispose();
      }
    }
  } finally {
    worker.group.dispose();
  }
  if (results.length === 0)
    throw limitError('the adapter has room for none of these; ask for fewer or shorter sequences');
  return { adapters: [...adapters.values()], results, measurements: results.map(measurement) };
}

/**
 * Rivals with room for the longest of the contexts that an adapter has room for; longer ones are left out, and said.
 */
export async function openFitting<Opened extends { readonly group: { dispose(): void } }>(
  contexts: readonly number[],
  hooks: Pick<SuiteHooks, 'onWarning'>,
  batch: number,
  open: (longest: number) => AsyncIterable<Opened>,
): Promise<{ readonly rivals: readonly Opened[]; readonly fitting: readonly number[] }> {
  const longest = Math.max(...contexts);
  const rivals: Opened[] = [];
  try {
    for await (const rival of open(longest)) rivals.push(rival);
    return { rivals, fitting: contexts };
  } catch (error) {
    for (const { group } of rivals) group.dispose();
    if (!(error instanceof SplitkvError && error.code === 'limit')) throw error;
    const shorter = contexts.filter((context) => context < longest);
    hooks.onWarning(`${batch} sequences of ${longest} tokens are left out: ${error.message}`);
    return shorter.length === 0 ? { rivals: [], fitting: [] } : openFitting(shorter, hooks, batch, open);
  }
}

const measurement = (result: ThroughputResult): Measurement => ({
  metric: 'throughput',
  unit: 'tokens/s',
  better: 'higher',
  setting: {
    plan: result.plan,
    ranks: result.ranks,
    micro_batches: result.micro_batches,
    batch: result.batch,
    context: result.context,
  },
  samples: result.samples,
});

export type Prompts = readonly { readonly prompt: readonly number[]; readonly kv: HandedKv }[];

/** Prompts of a length with their keys and values; `group`: one rank with whole weights and one slot. */
export async function promptsOf(
  group: RankGroup,
  length: number,
  { onProgress, signal }: SuiteHooks,
): Promise<Prompts> {
  const { vocabSize } = group.runner.config;
  const worker = new SplitkvPrefill(group);
  const prompts: Prompts[number][] = [];
  for (let index = 0; index < PROMPTS; index++) {
    onProgress(`prompt ${index + 1} of ${PROMPTS} of ${length} tokens`);
    const prompt = randomPrompt(length, vocabSize).map((id) => (id + index) % vocabSize);
    const kv = await worker.prefill(prompt.slice(0, COMPUTED), signal);
    prompts.push({ prompt, kv: length > COMPUTED ? repeated(kv, length) : kv });
  }
  return prompts;
}

/** A cache of `tokens` tokens whose blocks repeat those of a shorter one. */
function repeated({ tokens: known, blocks: own, buffers, lastRow }: HandedKv, tokens: number): HandedKv {
  const blocks = Math.ceil((tokens * own) / known);
  const longer = buffers.map((buffer) => {
    const each = buffer.byteLength / own;
    const out = new Uint8Array(each * blocks);
    for (let block = 0; block < blocks; block++) {
      out.set(buffer.subarray((block % own) * each, ((block % own) + 1) * each), block * each);
    }
    return out;
  });
  return { tokens, blocks, buffers: longer, lastRow };
}

async function race(
  rivals: readonly Rival[],
  prompts: Prompts,
  context: number,
  { ranks, maxTokens, runs }: ThroughputRequest,
  hooks: SuiteHooks,
): Promise<ThroughputResult[]> {
  const expected: number[][] = [];
  const contenders = rivals.map((rival) => ({
    name: `${rival.batch} sequences of ${context} tokens: ${rival.plan} on ${rival.group.ranks.length} ranks, ${rival.microBatches} micro-batches`,
    async run(): Promise<number> {
      const { seconds, ids } = await decode(rival, prompts, maxTokens);
      for (const [index, own] of ids.entries()) {
        expected[index] ??= own;
        if (own.every((id, at) => id === expected[index]![at])) continue;
        throw new SplitkvError(
          'internal',
          `plan '${rival.plan}' samples other tokens than one rank, so no speed is told; please report it with the adapter`,
        );
      }
      return (rival.batch * maxTokens) / seconds;
    },
  }));
  const speeds = await interleave(contenders, runs, hooks);
  const alone = speeds[0]!;
  const batch = rivals[0]!.batch;
  return rivals.map(({ plan, microBatches, batch: own, group }, index): ThroughputResult => {
    const isReplica = own < batch;
    const samples = speeds[index]!.map((speed) => (isReplica ? speed * ranks : speed));
    return {
      plan: isReplica ? 'replicas' : plan,
      ranks: isReplica ? ranks : group.ranks.length,
      micro_batches: microBatches,
      batch,
      context,
      tokens_per_second: median(samples),
      rank_bytes: Math.max(...group.runner.ranks.map(({ facts }) => facts.weightBytes + facts.kvBytes)),
      speedup: pairedRatio(samples, alone),
      samples,
    };
  });
}

/** Seconds of the steps, and each sequence's tokens. */
export async function decode(
  { group, batch, microBatches }: Decoder,
  prompts: Prompts,
  maxTokens: number,
): Promise<{ readonly seconds: number; readonly ids: readonly number[][] }> {
  const runner = new SlotDriver(group.runner);
  const { slots } = runner.options;
  // Dealt to the micro-batches in turns, so that they are as large as each other.
  const slotOf = (sequence: number): number => (sequence % microBatches) * slots + Math.floor(sequence / microBatches);
  const sequences = Array.from({ length: batch }, (_, sequence) => sequence);
  for (const sequence of sequences) {
    const { prompt, kv } = prompts[sequence % PROMPTS]!;
    await runner.takeOver(prompt, maxTokens + 1, { seed: 0 }, kv, slotOf(sequence));
  }
  const groups = Array.from({ length: microBatches }, (_, group) => group);
  const first = await Promise.all(groups.map((group) => runner.sampleFirst(group)));
  const started = performance.now();
  const rest = await Promise.all(groups.map((group) => decodeSteps(runner, group, maxTokens)));
  const seconds = (performance.now() - started) / 1000;
  for (const sequence of sequences) await runner.release(slotOf(sequence));
  const ids = sequences.map((sequence) => {
    const [group, row] = [sequence % microBatches, Math.floor(sequence / microBatches)];
    return [first[group]!, ...rest[group]!].map((step) => step[row]!);
  });
  return { seconds, ids };
}

export function throughputTable(results: readonly ThroughputResult[]): string {
  return (
    alignedTable(
      [
        ['plan', 'ranks', 'micro-batches', 'batch', 'context', 'tokens/s', 'speed / 1 rank', 'MB per rank'],
        ...results.map((result) => [
          result.plan,
          String(result.ranks),
          String(result.micro_batches),
          String(result.batch),
          String(result.context),
          decimals(result.tokens_per_second),
          ratio(result.speedup),
          decimals(result.rank_bytes / 1e6),
        ]),
      ],
      1,
    ) +
    `\nMedians of ${results[0]?.samples.length ?? 0} interleaved runs of decode steps; every plan sampled the same tokens. Replicas are computed: one rank with its part of the batch, times the ranks. Caches of more than ${COMPUTED} tokens repeat the keys and values of the first. MB: weights and caches, which have room for the longest context.\n`
  );
}
