/**
 * Room: prompts on a device of their own: a worker computes keys and values, the ranks that decode take them over as
 * cache blocks. prefill_pool.ts shares prompts between several workers. Read contracts/prefill_worker.ts next.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import { openDevice } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import type { RankProgress } from '../ranks/open_rank.js';
import { modelShape } from '../../model/shape.js';
import { makePlan } from '../../placement/index.js';
import type { PrefillOptions } from '../contracts/api.js';
import type { ModelPlace } from '../workers/model_place.js';
import type { RunnerOptions } from '../contracts/rank.js';
import { keptBlocksOf } from '../planning/plan_subject.js';
import { type AdapterRequest, namedAdapter } from '../planning/rank_adapters.js';
import { RankGroup } from '../ranks/rank_group.js';
import { WorkerGroup } from '../workers/worker_group.js';
import { PrefillPool } from './prefill_pool.js';
import type { PrefillWorker } from '../contracts/prefill_worker.js';
import { SplitkvPrefill } from './splitkv_prefill.js';

export interface PrefillRequest {
  /** Of one worker each. */
  readonly options: readonly PrefillOptions[];
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly type: WeightType;
  /** As of the ranks that generate. */
  readonly runner: Pick<RunnerOptions, 'contextLength' | 'prefillChunk' | 'kvType' | 'tune' | 'compression'>;
  /** Where nothing is asked for: the first rank's. */
  readonly adapter: AdapterRequest;
  /** Ranks that generate: the workers' devices come after theirs. */
  readonly ranks: number;
  /** Prompts that are compressed are kept whole, too, for others that begin alike. */
  readonly prefixCaching?: boolean | undefined;
  /** Where the model is, for a worker thread of its own. */
  readonly place: ModelPlace | undefined;
  readonly cache: boolean;
  readonly integrity?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: RankProgress) => void) | undefined;
  readonly onWarning?: ((message: string) => void) | undefined;
}

/** Opens prefill workers, each on a device of its own with whole weights. @throws as `load` */
export async function openPrefill(request: PrefillRequest): Promise<PrefillWorker> {
  const opened: PrefillWorker[] = [];
  try {
    for (const [index, options] of request.options.entries()) opened.push(await openOne(request, options, index));
  } catch (error) {
    await Promise.all(opened.map((worker) => worker.dispose()));
    throw error;
  }
  return opened.length === 1 ? opened[0]! : new PrefillPool(opened, request.onWarning);
}

async function openOne(request: PrefillRequest, options: PrefillOptions, index: number): Promise<PrefillWorker> {
  const { config, reader, type, ranks, place, signal, onProgress } = request;
  const { contextLength, prefillChunk, kvType, tune = true, compression } = request.runner;
  const runner = { contextLength, prefillChunk, kvType };
  const { variants, fast } = request.adapter;
  const adapter =
    options.adapter === undefined
      ? request.adapter
      : { ...namedAdapter(options.adapter), ...(variants && { variants }), ...(fast && { fast }) };
  const shared = {
    config,
    type,
    plan: makePlan('single', 1, modelShape(config)),
    adapters: [adapter],
    // What it hands over is whole, or compressed as the ranks would.
    runner: {
      ...runner,
      slots: 1,
      tune,
      keepsAll: true,
      ...(compression && {
        compression,
        keptBlocks: keptBlocksOf({ ...request.runner, prefixCaching: request.prefixCaching }),
      }),
    },
    signal,
    onProgress,
  };
  const group = place
    ? await WorkerGroup.open({
        ...shared,
        place,
        cache: request.cache,
        integrity: request.integrity,
        oneByOne: false,
        onWarning: request.onWarning,
      })
    : await RankGroup.open({
        ...shared,
        reader,
        virtual: false,
        onWarning: request.onWarning,
        open: (asked) => openDevice({ ...asked, instance: ranks + index }),
      });
  return new SplitkvPrefill(group);
}
