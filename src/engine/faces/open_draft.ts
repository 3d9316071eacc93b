import { KV_BLOCK } from '../../base/kv_units.js';
import { sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import { unsupportedError, usageError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { openDevice } from '../../gpu/index.js';
import type { Source } from '../../loader/index.js';
import { attendsBothWays, hasState, headModel, perLayerWidth } from '../../model/config/model_config.js';
import { World } from '../../model/layers/world.js';
import { modelShape, wholeSlice } from '../../model/shape.js';
import { specBytes } from '../../model/weights/model_map.js';
import { storedTypes } from '../../model/weights/stored_types.js';
import { specsIn, vocabMaps } from '../../model/weights/weight_map.js';
import { defaultPromptChunk, makePlan } from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';
import type { RunnerOptions } from '../contracts/rank.js';
import { type ModelTokenizer, openTokenizer } from '../files/model_files.js';
import type { ChosenPlan } from '../planning/choose_plan.js';
import { rankCount } from '../planning/rank_adapters.js';
import { openRank, type RankProgress, type RankRequest } from '../ranks/open_rank.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';
import { RankGroup, type ModelRanks } from '../ranks/rank_group.js';
import { Runner } from '../ranks/runner.js';
import { DraftModel, type DraftRank } from '../serving/speculation/draft_model.js';
import { type DescribedFacts, type DescribedModel, describeModel } from './describe_model.js';

/** Rows that a head takes at once: few come after the prompt's. */
const HEAD_CHUNK = 128;
/** Requests that it may have texts of. These have the blocks of one context. */
const TEXTS = 8;

/** A draft's, whose texts share a cache. */
const seatsOf = (contextLength: number) => ({
  slots: TEXTS,
  contextLength,
  kvBlocks: ceilDiv(contextLength, KV_BLOCK),
});

/** A draft model whose files were looked at. */
export type FoundDraft = Pick<DescribedModel, 'name' | 'reader' | 'source'> &
  Pick<DescribedFacts, 'config' | 'type'> & { readonly runner: RunnerOptions; readonly bytes: number };

/**
 * What a draft model's files say, before any weights are read.
 * @param main the model that it proposes tokens to
 * @throws as `load`; SplitkvError `unsupported`, `usage` for one that can't
 */
export async function describeDraft(
  source: Source,
  { weights, tune = true, signal, onWarning }: Pick<LoadOptions, 'weights' | 'tune' | 'signal' | 'onWarning'>,
  main: Pick<ModelTokenizer, 'tokenizer'> & Pick<DescribedModel, 'facts'>,
): Promise<FoundDraft> {
  const { kvType, contextLength } = main.facts;
  const found = await describeModel(source, { weights, kv: kvType, speculate: 'off', signal }, onWarning);
  const { name, reader } = found;
  const { config, type, contextLength: most } = found.facts;
  // Wrong drafts of these aren't taken back, or a token's inputs must be known before its step.
  if (attendsBothWays(config) || hasState(config) || perLayerWidth(config) !== undefined)
    throw unsupportedError(
      `draft ${name}: ${config.architecture} can't be one, as encoders, recurrent layers and inputs of each layer can't`,
    );
  const { tokenizer } = await openTokenizer(found);
  const misfit = vocabularyMisfit([tokenizer, config.vocabSize], [main.tokenizer, main.facts.config.vocabSize]);
  if (misfit !== undefined) throw usageError(`draft ${name}: ${misfit}; a draft must have the model's own vocabulary`);
  const prefillChunk = defaultPromptChunk(planOf(config));
  const runner = { ...seatsOf(Math.min(most, contextLength)), prefillChunk, kvType, tune, keepsAll: true };
  const [memory] = await memoryOnPaper(planOf(config), { config, type }, runner);
  return { name, source, reader, config, type, runner, bytes: memory!.totalBytes };
}

/**
 * A model's own head as its draft. Where the model has one rank, in this thread, they have table and output head in common.
 * @throws SplitkvError `unsupported` where the model has none
 */
export async function describeHead(
  { name, source, reader, facts }: Pick<DescribedModel, 'name' | 'source' | 'reader' | 'facts'>,
  options: Pick<LoadOptions, 'weights' | 'tune' | 'ranks' | 'workers' | 'cluster'>,
): Promise<FoundDraft> {
  const { weights = 'auto', tune = true, ranks = 1, workers, cluster } = options;
  const { kvType, contextLength } = facts;
  const config = headModel(facts.config);
  const { index } = await reader();
  if (!config || !index.tensors.has(`${config.tensors.inputs!.project}.weight`)) {
    throw unsupportedError(
      `speculate 'mtp': ${name} has no layer for further tokens (MTP) here; take speculate 'auto', or files that have it (Qwen3.5, DeepSeek-V3)`,
    );
  }
  const type = weights === 'auto' ? storedTypes(index, config) : weights;
  const runner = { ...seatsOf(contextLength), prefillChunk: HEAD_CHUNK, kvType, tune };
  const [memory] = await memoryOnPaper(planOf(config), { config, type }, runner);
  const tables = sum([...specsIn(vocabMaps(config, wholeSlice(config)))].map((spec) => specBytes(spec, type)));
  const shares = rankCount({ ranks }) === 1 && !workers && !cluster;
  const bytes = memory!.totalBytes - (shares ? tables : 0);
  return { name: 'the head', source, reader, config, type, runner, bytes };
}

type Vocabulary = readonly [tokens: ModelTokenizer['tokenizer'], ids: number];

/** What is different between a draft's vocabulary and its model's, if anything is. Models may have ids that no token has. */
function vocabularyMisfit([own, ids]: Vocabulary, [other, all]: Vocabulary): string | undefined {
  if (!own || !other) return ids === all ? undefined : `it has ${ids} token ids, the model ${all}`;
  for (let id = 0; id < Math.max(own.vocabSize, other.vocabSize); id++) {
    const [here, there] = [own.token(id), other.token(id)];
    if (here !== there) return `its token ${id} is ${show(here)}, the model's ${show(there)}`;
  }
  return undefined;
}

const planOf = (config: FoundDraft['config']) => makePlan('single', 1, modelShape(config));

/** Loads a draft's weights on the first rank's device, or where that is of another thread on one of its own. */
export async function openDraft(
  draft: FoundDraft,
  group: ModelRanks,
  adapter: ChosenPlan['adapters'][number] | undefined,
  told: Pick<RankRequest, 'signal' | 'onWarning'> & { readonly onProgress: (progress: RankProgress) => void },
): Promise<DraftModel> {
  const { config, type } = draft;
  const { slots, batches = 1 } = group.runner.options;
  const runner = { ...draft.runner, slots: Math.min(draft.runner.slots, slots * batches) };
  const { signal, onWarning, onProgress } = told;
  const plan = planOf(config);
  const open = async (): Promise<DraftRank> => {
    const again = () => openDevice({ ...adapter, instance: group.runner.ranks.length });
    const [shared] = group instanceof RankGroup ? group.devices : [];
    const device = shared ?? (await again());
    try {
      // Wrong kernels of its own would cost right drafts; another choice of them is the model's own.
      const reader = await draft.reader();
      // A head's own, which a lone rank here has already.
      const [main, ...others] = shared && config.inputs?.joins ? (group as RankGroup).ranks : [];
      const tables = others.length === 0 ? main?.tables : undefined;
      const request = { config, type, runner, reader, again, signal, onWarning, tables, isChecked: false };
      const rank = await openRank(device, new World(plan, 0), request, onProgress);
      await draft.source.flush?.();
      const dispose = (): void => (shared ? undefined : rank.dispose());
      return { runner: new Runner([rank], plan, config, runner), isLost: () => device.isLost, dispose };
    } catch (error) {
      if (!shared) device.dispose();
      throw error;
    }
  };
  const vocabSize = Math.min(config.vocabSize, group.runner.config.vocabSize);
  return DraftModel.open(draft.name, vocabSize, open, onWarning);
}
