/**
 * Room: a random model on one rank or several, without files and options, for tests of the engine; run_bits.ts
 * compares its bits. `contract` has the tables of models and plans that must agree.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import type { Device, FastPath } from '../../gpu/index.js';
import { fileListSource } from '../../loader/index.js';
import type { CompressionOptions } from '../../model/compression/options.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import { keptStates } from '../../model/layers/recurrent/states.js';
import { modelShape } from '../../model/shape.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { checkPlan, makePlan, type Plan, type PlanOptions } from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { openModelFiles } from '../files/model_files.js';
import { type GroupOptions, RankGroup } from '../ranks/rank_group.js';
import type { EngineOptions } from '../serving/loop/requests.js';
import { randomFiles } from './random_source.js';
import { SlotDriver } from './slot_driver.js';

export interface OpenRunnerOptions {
  /** Adapters by rank; one name stands for all. */
  readonly adapter: string | readonly string[];
  readonly variants?: LoadOptions['variants'];
  /** With precision 'fast'. */
  readonly fast?: readonly FastPath[];
  readonly model: RandomModelOptions;
  readonly weights?: WeightType;
  readonly kv?: KvType;
  readonly ranks?: number;
  readonly plan?: string | Plan;
  readonly planOptions?: PlanOptions;
  readonly virtual?: boolean;
  readonly slots?: number;
  readonly batches?: number;
  readonly contextLength?: number;
  readonly prefillChunk?: number;
  readonly kvBlocks?: number;
  readonly compression?: CompressionOptions;
  readonly keptBlocks?: number;
  readonly keepsAll?: boolean;
  readonly tune?: boolean;
  readonly stopwatch?: GroupOptions['stopwatch'];
  readonly open?: GroupOptions['open'];
  readonly onProgress?: GroupOptions['onProgress'];
  readonly onWarning?: GroupOptions['onWarning'];
}

/** An engine and the blocks that its ranks share. */
export type EngineSetup = Partial<EngineOptions> & { readonly kvBlocks?: number };

/** A random model on one or several ranks, without tokenizer and options checks. */
export async function openRunner(options: OpenRunnerOptions): Promise<{
  readonly group: RankGroup;
  readonly runner: SlotDriver;
  readonly device: Device;
  readonly bytes: number;
}> {
  const { model, files } = randomFiles(options.model);
  const shape = modelShape(model.config);
  const asked = options.plan ?? 'single';
  const plan = typeof asked === 'string' ? makePlan(asked, options.ranks ?? 1, shape, options.planOptions) : asked;
  checkPlan(plan, shape);
  const { adapter, variants = 'auto' } = options;
  const forced = variants === 'auto' ? {} : { variants };
  const group = await RankGroup.open({
    config: model.config,
    reader: await (await openModelFiles(fileListSource(files))).reader(),
    type: options.weights ?? 'f32',
    plan,
    adapters: Array.from({ length: plan.worldSize }, (_, rank) => ({
      adapterName: typeof adapter === 'string' ? adapter : adapter[rank]!,
      ...forced,
      ...(options.fast && { fast: options.fast }),
    })),
    virtual: options.virtual ?? false,
    ...(options.open && { open: options.open }),
    stopwatch: options.stopwatch,
    onProgress: options.onProgress,
    onWarning: options.onWarning,
    runner: {
      slots: options.slots ?? 1,
      batches: options.batches ?? 1,
      contextLength: options.contextLength ?? 600,
      prefillChunk: options.prefillChunk ?? 64,
      kvType: options.kv ?? 'f32',
      tune: options.tune ?? true,
      keptStates: keptStates(model.config),
      ...(options.compression && { compression: options.compression, keptBlocks: options.keptBlocks ?? 0 }),
      ...(options.kvBlocks !== undefined && { kvBlocks: options.kvBlocks }),
      ...(options.keepsAll && { keepsAll: true }),
    },
  });
  return {
    group,
    runner: new SlotDriver(group.runner),
    device: group.devices[0]!,
    bytes: group.ranks.reduce((sum, { facts }) => sum + facts.weightBytes, 0),
  };
}
