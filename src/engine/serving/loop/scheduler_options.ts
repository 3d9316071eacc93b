import { KV_BLOCK, MERGE_LANES } from '../../../base/kv_units.js';
import { nth } from '../../../base/lists.js';
import { defined } from '../../../base/options.js';
import { promptEviction } from '../../../model/compression/budgets.js';
import { attendsBothWays, hasState } from '../../../model/config/model_config.js';
import { modelShape } from '../../../model/shape.js';
import { type Feature, featuresOf, misfit, modelFeatures, windowBlocks } from '../../../placement/index.js';
import type { PrefillWorker } from '../../contracts/prefill_worker.js';
import type { ModelRanks } from '../../ranks/rank_group.js';
import type { SchedulerOptions } from '../../scheduler/index.js';
import type { PoolSlots } from './pool_slots.js';
import type { EngineOptions } from './requests.js';

/** What of an engine's options follows from the plan of its ranks. Balance between ranks is for plans that have a choice. */
export const optionsOfPlan = async (
  ranks: Pick<ModelRanks, 'runner' | 'options'>,
  { attentionDpConfig }: Pick<EngineOptions, 'attentionDpConfig'>,
): Promise<Pick<EngineOptions, 'placing' | 'attentionDpConfig'>> => ({
  placing: ranks.runner.owners.ranges(0).length > 1 ? (await import('./rank_balance.js')).placing : undefined,
  attentionDpConfig: misfit(['attentionDp'], ranks.options.plan) === undefined ? attentionDpConfig : undefined,
});

/** The model, and what ranks were opened with, as far as it doesn't go with everything. */
export const openedFeatures = (
  { runner }: Pick<ModelRanks, 'runner'>,
  prefiller: Pick<PrefillWorker, 'kind'> | undefined,
): Feature[] => [
  ...modelFeatures(modelShape(runner.config)),
  ...featuresOf({ compression: runner.options.compression, prefillWorker: prefiller }),
];

/** Whether sequences that begin alike have a beginning of the cache in common unasked: where it takes no memory besides. */
export const mayShare = (
  ranks: Pick<ModelRanks, 'runner' | 'options'>,
  prefiller: Pick<PrefillWorker, 'kind'> | undefined,
): boolean =>
  !ranks.runner.options.compression &&
  misfit([...openedFeatures(ranks, prefiller), 'prefixCaching'], ranks.options.plan) === undefined;

/**
 * What the scheduler of these ranks is made with.
 * @param draftStates of the kept ones, those that sequences with drafts have
 */
export function schedulerOptions(
  ranks: Pick<ModelRanks, 'runner' | 'options'>,
  slots: PoolSlots,
  given: EngineOptions,
  draftStates: number | undefined,
): SchedulerOptions {
  const { tokensPerIteration, prefiller, attentionDpConfig, pictures } = given;
  const { prefixCaching, watermark, agingIterations, rowsPerMicroBatch } = given;
  const { runner } = ranks;
  const isWhole = attendsBothWays(runner.config);
  const runs = pictures?.vision?.runs;
  // A picture that is read both ways has a step of its own.
  const chunkedPrefill = isWhole ? false : runs !== undefined || given.chunkedPrefill;
  const { compression } = runner.options;
  const { owners, caches } = runner;
  const shape = modelShape(runner.config);
  const window = compression?.window ?? 1;
  const { pools, sizes, held } = slots;
  return {
    // Ranks that keep whole sequences have a pool each, in proportion to their slots.
    ranks: pools.map(({ length }, pool) => ({
      numBlocks: caches.poolBlocks(nth(held, pool)),
      lanes: caches.lanes,
      ...(caches.window && {
        windows: {
          ...caches.window,
          numBlocks: caches.poolBlocks(nth(held, pool), 'window'),
          most: windowBlocks(caches.window, caches.lanes),
        },
      }),
      ...(owners.plan.sharing === 'lanes' && { rotations: MERGE_LANES }),
      slots: length,
      microBatches: nth(sizes, pool),
    })),
    blockTokens: KV_BLOCK,
    contextLength: runner.contextLength,
    maxTokensPerIteration: Math.max(
      tokensPerIteration,
      isWhole ? runner.promptTokens : 0,
      ...pools.map(({ length }) => length + window),
    ),
    maxChunkTokens: runner.promptTokens,
    ...((runner.promptTokens > runner.promptRows || runs !== undefined) && {
      chunkEnd: (offset, start, end, idAt) => {
        const last = runner.chunkEnd(offset, start, end);
        return pictures?.stepEnd(start, last, idAt) ?? last;
      },
    }),
    // Ranks that keep caches only are filled and balanced by the KV manager, unless another policy is asked for.
    sharedRows: pools.length > 1 && !runner.owners.rowRanks && attentionDpConfig === undefined,
    shiftsSlots: misfit([...openedFeatures(ranks, prefiller), 'moves'], ranks.options.plan) === undefined,
    handover: prefiller !== undefined,
    ...(hasState(runner.config) && {
      keptStates: (runner.options.keptStates ?? 0) - (draftStates ?? 0),
      draftStates,
    }),
    ...(compression && {
      keptBlocks: runner.options.keptBlocks,
      eviction: promptEviction(
        compression,
        { numLayers: shape.numLayers, numKvHeads: shape.kvHeads },
        ranks.options.plan,
        KV_BLOCK,
      ),
    }),
    ...defined({ prefixCaching, watermark, agingIterations, chunkedPrefill, rowsPerMicroBatch, attentionDpConfig }),
  };
}
