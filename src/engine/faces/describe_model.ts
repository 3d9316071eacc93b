import { defined } from '../../base/options.js';
import { unsupportedError, usageError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import type { Source, TensorReader } from '../../loader/index.js';
import { attendsBothWays, type ModelConfig, withoutEncoders } from '../../model/config/model_config.js';
import { modelShape } from '../../model/shape.js';
import { bytesByType, weightBytes } from '../../model/weights/model_map.js';
import { storedTypes } from '../../model/weights/stored_types.js';
import { mostOf } from '../../model/weights/weight_types.js';
import { checkTogether, featuresOf, modelFeatures, type Plan } from '../../placement/index.js';
import type { LoadOptions, ModelInfo } from '../contracts/api.js';
import { encoderOf, wantsImages } from '../contracts/load_options.js';
import { type ModelFiles, openModelFiles } from '../files/model_files.js';
import { modelName } from '../files/model_name.js';
import type { SentenceFiles } from '../files/sentence_files.js';
import { contextOf } from '../planning/context_length.js';
import { kvCompression } from '../planning/kv_compression.js';
import { type PlanSubject, subjectFeatures } from '../planning/plan_subject.js';
import { cacheType } from '../planning/rank_adapters.js';
import type { OpenedModel } from './load.js';

/** What the files and the options say of a model. */
export type DescribedFacts = Omit<PlanSubject, 'seatsOf' | 'together' | 'measure'>;
/** The same, and who holds what. */
export type ModelFacts = DescribedFacts & { readonly plan: Plan };
/** How many sequences the ranks are set up for. */
export type Seats = ReturnType<PlanSubject['seatsOf']>;

/** A model before its plan is known. */
export interface DescribedModel extends ModelFiles {
  readonly name: string;
  readonly source: Source;
  readonly facts: DescribedFacts;
  /** What the files say of vectors of texts; read once. */
  readonly sentenceFiles: () => Promise<SentenceFiles>;
}

/**
 * What `load` and `planModel` begin with. Of the weights at most their index is read, once.
 * @throws SplitkvError as `openModelFiles`; `usage` for options that don't go together, or not with the model
 */
export async function describeModel(
  source: Source,
  options: LoadOptions,
  onWarning?: LoadOptions['onWarning'],
): Promise<DescribedModel> {
  const files = await openModelFiles(source, options.signal, onWarning, encoderOf(options));
  const config = withEncoders(files.config, options);
  let read: Promise<TensorReader> | undefined;
  const reader = (): Promise<TensorReader> => (read ??= files.reader());
  const { weights = 'auto', prefillChunk, prefixCaching, speculate = 'auto' } = options;
  const type = weights === 'auto' ? storedTypes((await reader()).index, config) : weights;
  const kvType = await cacheType(options);
  const contextLength = contextOf(options.contextLength, { config, type, kvType, memory: options.memory });
  const compression = await kvCompression(options, config);
  const facts: DescribedFacts = {
    config,
    type,
    kvType,
    ...contextFacts({ config, prefillChunk }, contextLength),
    prefixCaching,
    ...(speculate !== 'off' && { speculates: speculate === 'auto' ? 'later' : 'now' }),
    features: featuresOf({
      attentionDp: options.attentionDpConfig,
      prefixCaching,
      prefillWorker: options.prefill,
      keptKv: options.kvDir ?? options.prefixes?.length,
    }),
    ...(compression && { compression }),
  };
  checkTogether([...subjectFeatures(facts), ...modelFeatures(modelShape(config))]);
  let sentence: Promise<SentenceFiles> | undefined;
  const sentenceFiles = (): Promise<SentenceFiles> => (sentence ??= files.sentence(reader));
  return { ...files, sentenceFiles, reader, name: modelName(source.gguf ?? source.name), source, facts };
}

/** What a context's length says; texts that are read both ways are computed whole, and so are pictures. */
export const contextFacts = (
  { config, prefillChunk }: Pick<DescribedFacts, 'config' | 'prefillChunk'>,
  contextLength: number,
): Pick<DescribedFacts, 'contextLength' | 'prefillChunk'> => ({
  contextLength,
  prefillChunk: attendsBothWays(config)
    ? contextLength
    : prefillChunk && Math.max(prefillChunk, config.vision?.runs ?? 0),
});

/** What a model may take beside text, with those that do. */
const ENCODERS = [
  ['images', 'vision', 'SmolVLM, SmolVLM2, LFM2-VL, Gemma 3 or 4, Qwen2.5-VL, Qwen3-VL or Qwen3.5'],
  ['sound', 'sound', 'Gemma 4 E2B, E4B or 12B'],
] as const;

/** A model with the encoders that are asked for. @throws SplitkvError `unsupported` where it has none */
function withEncoders(config: ModelConfig, options: LoadOptions): ModelConfig {
  const wanted = { images: wantsImages(options), sound: options.sound === true };
  return ENCODERS.reduce((model, [option, kind, takers]): ModelConfig => {
    if (!wanted[option]) return model;
    const misfit = config[`${kind}Misfit`];
    if (misfit !== undefined) throw unsupportedError(`${option}: ${misfit}; leave ${option} out`);
    if (!config[kind]) {
      throw unsupportedError(
        `${option}: ${config.architecture} of these files takes no ${option} here; leave ${option} out, or load a model that does: ${takers}`,
      );
    }
    if (options.prefill)
      throw usageError(`${option}: prompts with ${option} are computed by the ranks themselves; leave prefill out`);
    return { ...model, [kind]: config[kind] };
  }, withoutEncoders(config));
}

/** What an opened model is, in numbers and words. */
export function modelInfo(opened: OpenedModel): ModelInfo {
  const { config, group, prefiller, tokenizer, sampling, name, loadSeconds, modelReason, planned } = opened;
  const { runner } = group;
  const { type, plan } = group.options;
  const { compression } = runner.options;
  const planReason = planned?.chosen.picked?.why ?? planned?.chosen.why;
  return {
    name,
    architecture: config.architecture,
    numLayers: config.layers.length,
    hiddenSize: config.hiddenSize,
    vocabSize: config.vocabSize,
    contextLength: runner.contextLength,
    parameters: weightBytes(config, type).parameters,
    weights: mostOf(type),
    weightTypes: bytesByType(config, type),
    kv: runner.kv.type,
    hasChatTemplate: tokenizer?.hasChatTemplate ?? false,
    ...(config.vision &&
      tokenizer && { imagePlaceholder: tokenizer.decode([config.vision.mark], { skipSpecial: false }) }),
    ...(config.sound &&
      tokenizer && { soundPlaceholder: tokenizer.decode([config.sound.soundToken], { skipSpecial: false }) }),
    sampling,
    adapter: group.adapter,
    weightBytes: sum(runner.ranks.map(({ facts }) => facts.weightBytes)),
    kvBytes: runner.kv.bytes,
    kvBytesPerToken: runner.kv.bytesPerToken,
    ...(compression && { compression: { policy: compression.policy, budget: compression.budget } }),
    loadSeconds,
    ...defined({ modelReason }),
    plan,
    ...(planReason !== undefined && { planReason }),
    shape: modelShape(config),
    ranks: runner.ranks.map(({ facts: { adapter, weightBytes: bytes, kvBytes } }, rank) => {
      const rankName = group.places?.name?.(rank);
      return { adapter, ...(rankName !== undefined && { name: rankName }), weightBytes: bytes, kvBytes };
    }),
    ...(prefiller && {
      prefill: {
        kind: prefiller.kind,
        adapter: prefiller.adapter,
        weightBytes: prefiller.weightBytes,
        workers: prefiller.atOnce,
      },
    }),
  };
}
