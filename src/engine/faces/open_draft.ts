import { unsupportedError, usageError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { openDevice } from '../../gpu/index.js';
import type { Source } from '../../loader/index.js';
import { attendsBothWays, hasState, perLayerWidth } from '../../model/config/model_config.js';
import { World } from '../../model/layers/world.js';
import { modelShape } from '../../model/shape.js';
import { defaultPromptChunk, makePlan } from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';
import type { RunnerOptions } from '../contracts/rank.js';
import { type ModelTokenizer, openTokenizer } from '../files/model_files.js';
import type { ChosenPlan } from '../planning/choose_plan.js';
import { openRank, type RankProgress, type RankRequest } from '../ranks/open_rank.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';
import { RankGroup, type ModelRanks } from '../ranks/rank_group.js';
import { Runner } from '../ranks/runner.js';
import { DraftModel, type DraftRank } from '../serving/speculation/draft_model.js';
import { type DescribedFacts, type DescribedModel, describeModel } from './describe_model.js';

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
  const runner = { slots: 1, contextLength: Math.min(most, contextLength), prefillChunk, kvType, tune, keepsAll: true };
  const [memory] = await memoryOnPaper(planOf(config), { config, type }, runner);
  return { name, source, reader, config, type, runner, bytes: memory!.totalBytes };
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

/** Loads a draft model's weights on the first rank's device, or where that is of another thread on one of its own. */
export async function openDraft(
  draft: FoundDraft,
  group: ModelRanks,
  adapter: ChosenPlan['adapters'][number] | undefined,
  told: Pick<RankRequest, 'signal' | 'onWarning'> & { readonly onProgress: (progress: RankProgress) => void },
): Promise<DraftModel> {
  const { config, type, runner } = draft;
  const { signal, onWarning, onProgress } = told;
  const plan = planOf(config);
  const open = async (): Promise<DraftRank> => {
    const again = () => openDevice({ ...adapter, instance: group.runner.ranks.length });
    const [shared] = group instanceof RankGroup ? group.devices : [];
    const device = shared ?? (await again());
    try {
      // Wrong kernels of its own would cost right drafts; another choice of them is the model's own.
      const reader = await draft.reader();
      const request = { config, type, runner, reader, again, signal, onWarning, isChecked: false };
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
