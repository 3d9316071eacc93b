import { usageError } from '../../src/base/errors.js';
import { median } from '../../src/base/stats.js';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { storedTypes } from '../../src/model/weights/stored_types.js';
import { RankGroup } from '../../src/engine/ranks/rank_group.js';
import type { AdapterRequest } from '../../src/gpu/index.js';
import type { KvType, WeightType } from '../../src/index.js';
import { openSource } from '../../src/loader/index.js';
import { modelShape } from '../../src/model/shape.js';
import { defaultPromptChunk, makePlan } from '../../src/placement/index.js';
import type { BenchAdapter, Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import { interleave } from '../interleave.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals } from '../table.js';
import { decode, type Decoder, type Prompts, promptsOf } from './throughput.js';

export interface ProfileRequest {
  readonly suite: 'profile';
  readonly model: string;
  readonly weights?: WeightType;
  readonly kv?: KvType;
  readonly adapter: AdapterRequest;
  readonly batches: readonly number[];
  /** Tokens that each sequence has in the cache before the timed ones. */
  readonly contexts: readonly number[];
  readonly maxTokens: number;
  readonly runs: number;
}

export interface ProfileResult {
  readonly batch: number;
  readonly context: number;
  /** A decode step of the batch: medians. */
  readonly step_ms: number;
  /** What it takes longer than with next to nothing in the caches: reading them, and attention over them. */
  readonly attention_ms: number;
  /** `attention_ms` of `step_ms`, 0 to 1. */
  readonly attention_share: number;
  /** How much faster a step gets where attention costs the rank nothing: what KV-only ranks may gain at most. */
  readonly most_of_token: number;
  /** Milliseconds a step. */
  readonly samples: readonly number[];
}

/** Tokens in a cache that attention takes next to no time for. */
const NEXT_TO_NONE = 8;

/**
 * What part of a decode step attention is on one rank, by batch and context: steps are timed with caches of that length and with next to
 * empty ones, in turns. Projections, MLP and sampling take as long in both.
 */
export async function runProfile(request: ProfileRequest, hooks: SuiteHooks): Promise<SuiteOutcome<ProfileResult>> {
  const { batches, contexts, maxTokens, runs } = request;
  const { signal } = hooks;
  const files = await openModelFiles(await openSource(request.model, signal), signal);
  const { config } = files;
  const contextLength = Math.max(...contexts) + maxTokens + 1;
  if (contextLength > config.maxPositions) {
    throw usageError(
      `--prompt-tokens ${Math.max(...contexts)}: with ${maxTokens} more the model has room for ${config.maxPositions}; ask for fewer`,
    );
  }
  const plan = makePlan('single', 1, modelShape(config));
  const reader = await files.reader();
  const open = async (batch: number): Promise<Decoder> => {
    hooks.onProgress(`opening one rank for ${batch} sequences`);
    const group = await RankGroup.open({
      config,
      reader,
      type: request.weights ?? storedTypes(reader.index, config),
      plan,
      adapters: [request.adapter],
      virtual: false,
      runner: {
        slots: batch,
        contextLength,
        prefillChunk: defaultPromptChunk(plan),
        kvType: request.kv ?? 'f32',
      },
      signal,
    });
    return { microBatches: 1, batch, group };
  };
  const lengths = [NEXT_TO_NONE, ...contexts];
  const prompts = new Map<number, Prompts>();
  const worker = await open(1);
  const adapters = new Map<string, BenchAdapter>();
  const results: ProfileResult[] = [];
  try {
    for (const length of lengths) prompts.set(length, await promptsOf(worker.group, length, hooks));
    for (const batch of batches) {
      const decoder = batch === 1 ? worker : await open(batch);
      try {
        for (const device of decoder.group.devices) adapters.set(device.name, { ...device.adapter, name: device.name });
        const contenders = lengths.map((length) => ({
          name: `${batch} sequences of ${length} tokens`,
          run: async (): Promise<number> =>
            ((await decode(decoder, prompts.get(length)!, maxTokens)).seconds * 1000) / maxTokens,
        }));
        const [bare, ...steps] = await interleave(contenders, runs, hooks);
        results.push(...contexts.map((context, at) => resultOf(batch, context, steps[at]!, bare!)));
      } finally {
        if (decoder !== worker) decoder.group.dispose();
      }
    }
  } finally {
    worker.group.dispose();
  }
  return { adapters: [...adapters.values()], results, measurements: results.map(measurement) };
}

function resultOf(batch: number, context: number, samples: readonly number[], bare: readonly number[]): ProfileResult {
  const step = median(samples);
  const attention = Math.min(step, Math.max(0, median(samples.map((sample, run) => sample - bare[run]!))));
  return {
    batch,
    context,
    step_ms: step,
    attention_ms: attention,
    attention_share: attention / step,
    most_of_token: step / Math.max(step - attention, Number.EPSILON),
    samples,
  };
}

const measurement = ({ batch, context, samples }: ProfileResult): Measurement => ({
  metric: 'decode step',
  unit: 'ms',
  better: 'lower',
  setting: { batch, context },
  samples,
});

export function profileTable(results: readonly ProfileResult[]): string {
  return (
    alignedTable(
      [
        ['batch', 'context', 'step ms', 'attention ms', 'attention', 'token gains at most'],
        ...results.map((result) => [
          String(result.batch),
          String(result.context),
          decimals(result.step_ms),
          decimals(result.attention_ms),
          `${Math.round(result.attention_share * 100)}%`,
          `${decimals(result.most_of_token)}x`,
        ]),
      ],
      0,
    ) +
    `\nOne rank; medians of ${results[0]?.samples.length ?? 0} interleaved runs. Attention: what a step takes longer than with caches of ${NEXT_TO_NONE} tokens.\n`
  );
}
