import { didYouMean, internalError, SplitkvError } from '../../base/errors.js';
import { alikeSegments, type ModelConfig } from '../config/model_config.js';
import { ConfigReader } from '../config/config_reader.js';
import { checkSupported } from '../config/supported.js';
import { neutralKeys, refuseForeign, refuseQuantized } from './common_keys.js';
import { type Family, type FamilyGguf, parseCommon } from './family.js';
import { llama } from './llama.js';

export interface FamilyRow {
  /** Or how to load it: a part of its own, which pages with other models needn't download. */
  readonly family: Family | (() => Promise<Family>);
  /** By the `model_type` of config.json, the entries of `architectures` that mean a model of this type which runs. */
  readonly models: Readonly<Record<string, string | readonly string[]>>;
  /** Models of text and images whose `text_config` is one of these, by their `model_type`: the text part runs, by default `textType`. */
  readonly wrappers?: Readonly<Record<string, { readonly className: string; readonly textType: string }>>;
  /** What llama.cpp calls them (`general.architecture`), where it has them by other names than their types. */
  readonly gguf?: readonly string[];
  /** What llama.cpp calls its encoder of images (`clip.projector_type`), and the architectures of models beside it. */
  readonly projector?: { readonly types: readonly string[]; readonly archs: readonly string[] };
}

const rows: FamilyRow[] = [
  {
    family: llama,
    models: {
      llama: 'LlamaForCausalLM',
      qwen2: 'Qwen2ForCausalLM',
      qwen3: ['Qwen3ForCausalLM', 'Qwen3Model'],
      mistral: 'MistralForCausalLM',
      mixtral: 'MixtralForCausalLM',
      ministral: 'MinistralForCausalLM',
      ministral3: 'Ministral3ForCausalLM',
      smollm3: 'SmolLM3ForCausalLM',
    },
    wrappers: { mistral3: { className: 'Mistral3ForConditionalGeneration', textType: 'mistral' } },
    gguf: ['llama', 'qwen2', 'qwen3', 'smollm3', 'mistral3'],
  },
  {
    family: async () => (await import('./idefics3.js')).idefics3,
    models: {},
    wrappers: {
      idefics3: { className: 'Idefics3ForConditionalGeneration', textType: 'llama' },
      smolvlm: { className: 'SmolVLMForConditionalGeneration', textType: 'llama' },
    },
    projector: { types: ['idefics3'], archs: ['llama'] },
  },
  {
    family: async () => (await import('./granite.js')).granite,
    models: {
      granite: 'GraniteForCausalLM',
      granitemoe: 'GraniteMoeForCausalLM',
      granitemoeshared: 'GraniteMoeSharedForCausalLM',
      granitemoehybrid: 'GraniteMoeHybridForCausalLM',
    },
    gguf: ['granite', 'granitemoe', 'granitehybrid'],
  },
  {
    family: async () => (await import('./gemma.js')).gemma,
    models: {
      gemma3_text: ['Gemma3ForCausalLM', 'Gemma3TextModel'],
      gemma2: 'Gemma2ForCausalLM',
      gemma: 'GemmaForCausalLM',
    },
    wrappers: { gemma3: { className: 'Gemma3ForConditionalGeneration', textType: 'gemma3_text' } },
    gguf: ['gemma3', 'gemma2', 'gemma', 'gemma-embedding'],
    projector: { types: ['gemma3'], archs: ['gemma3'] },
  },
  {
    family: async () => (await import('./bert.js')).bert,
    models: {
      bert: ['BertModel', 'BertForMaskedLM', 'BertForSequenceClassification'],
      roberta: ['RobertaModel', 'RobertaForMaskedLM', 'RobertaForSequenceClassification'],
      'xlm-roberta': ['XLMRobertaModel', 'XLMRobertaForMaskedLM', 'XLMRobertaForSequenceClassification'],
    },
    gguf: ['bert'],
  },
  {
    family: async () => (await import('./modernbert.js')).modernbert,
    models: { modernbert: ['ModernBertModel', 'ModernBertForMaskedLM', 'ModernBertForSequenceClassification'] },
    gguf: ['modern-bert'],
  },
  {
    family: async () => (await import('./gemma4.js')).gemma4,
    models: { gemma4_text: 'Gemma4ForCausalLM', gemma4_unified_text: 'Gemma4UnifiedForCausalLM' },
    wrappers: {
      gemma4: { className: 'Gemma4ForConditionalGeneration', textType: 'gemma4_text' },
      gemma4_unified: { className: 'Gemma4UnifiedForConditionalGeneration', textType: 'gemma4_unified_text' },
    },
    gguf: ['gemma4'],
    projector: { types: ['gemma4v', 'gemma4uv'], archs: ['gemma4'] },
  },
  {
    family: async () => (await import('./olmo2.js')).olmo2,
    models: { olmo2: 'Olmo2ForCausalLM', olmo3: 'Olmo3ForCausalLM' },
    gguf: ['olmo2'],
  },
  { family: async () => (await import('./starcoder2.js')).starcoder2, models: { starcoder2: 'Starcoder2ForCausalLM' } },
  { family: async () => (await import('./glm4.js')).glm4, models: { glm4: 'Glm4ForCausalLM' } },
  { family: async () => (await import('./cohere2.js')).cohere2, models: { cohere2: 'Cohere2ForCausalLM' } },
  { family: async () => (await import('./phi3.js')).phi3, models: { phi3: 'Phi3ForCausalLM' } },
  {
    family: async () => (await import('./qwen3_moe.js')).qwen3Moe,
    models: { qwen3_moe: 'Qwen3MoeForCausalLM' },
    gguf: ['qwen3moe'],
  },
  {
    family: async () => (await import('./gpt_oss.js')).gptOss,
    models: { gpt_oss: 'GptOssForCausalLM' },
    gguf: ['gpt-oss'],
  },
  {
    family: async () => (await import('./lfm2.js')).lfm2,
    models: { lfm2: 'Lfm2ForCausalLM', lfm2_moe: 'Lfm2MoeForCausalLM' },
    wrappers: {
      lfm2_vl: { className: 'Lfm2VlForConditionalGeneration', textType: 'lfm2' },
      // As older files have it.
      'lfm2-vl': { className: 'Lfm2VlForConditionalGeneration', textType: 'lfm2' },
    },
    gguf: ['lfm2', 'lfm2moe'],
    projector: { types: ['lfm2'], archs: ['lfm2'] },
  },
  {
    family: async () => (await import('./qwen3_5.js')).qwen35,
    models: {
      qwen3_5_text: 'Qwen3_5ForCausalLM',
      qwen3_5_moe_text: 'Qwen3_5MoeForCausalLM',
      qwen3_next: 'Qwen3NextForCausalLM',
    },
    wrappers: {
      qwen3_5: { className: 'Qwen3_5ForConditionalGeneration', textType: 'qwen3_5_text' },
      qwen3_5_moe: { className: 'Qwen3_5MoeForConditionalGeneration', textType: 'qwen3_5_moe_text' },
    },
    gguf: ['qwen35', 'qwen35moe', 'qwen3next'],
    projector: { types: ['qwen3vl_merger'], archs: ['qwen35', 'qwen35moe'] },
  },
  {
    family: async () => (await import('./qwen3_5.js')).qwen3Vl,
    models: { qwen3_vl_text: 'Qwen3VLTextModel', qwen3_vl_moe_text: 'Qwen3VLMoeTextModel' },
    wrappers: {
      qwen3_vl: { className: 'Qwen3VLForConditionalGeneration', textType: 'qwen3_vl_text' },
      qwen3_vl_moe: { className: 'Qwen3VLMoeForConditionalGeneration', textType: 'qwen3_vl_moe_text' },
    },
    gguf: ['qwen3vl', 'qwen3vlmoe'],
    projector: { types: ['qwen3vl_merger'], archs: ['qwen3vl', 'qwen3vlmoe'] },
  },
  {
    family: async () => (await import('./qwen3_5.js')).qwen25Vl,
    models: { qwen2_5_vl_text: 'Qwen2_5_VLTextModel' },
    wrappers: { qwen2_5_vl: { className: 'Qwen2_5_VLForConditionalGeneration', textType: 'qwen2_5_vl_text' } },
    gguf: ['qwen2vl'],
    projector: { types: ['qwen2.5vl_merger'], archs: ['qwen2vl'] },
  },
  {
    family: async () => (await import('./deepseek.js')).deepseek,
    models: {
      deepseek_v2: 'DeepseekV2ForCausalLM',
      deepseek_v3: 'DeepseekV3ForCausalLM',
      minicpm3: 'MiniCPM3ForCausalLM',
    },
    gguf: ['deepseek2', 'minicpm3'],
  },
];

/**
 * Families that people ask for, by what begins the names of their types, classes and GGUF architectures: what they have that doesn't run,
 * and which relatives do.
 */
const missing: readonly (readonly [name: RegExp, what: string, relatives: string])[] = [
  [
    /^gemma3n/i,
    'Gemma 3n has four residual streams that are mixed in each layer (AltUp), and embeddings for each layer',
    'gemma-4-e2b-it, gemma-4-e4b-it and gemma-3-1b-it do',
  ],
  [
    /^(mamba|falcon[-_]?(h1|mamba)|nemotron[-_]?h|bamba|zamba)/i,
    'it has Mamba layers of another form',
    'granite-4.0-h-350m and granite-4.0-h-1b have some, too, and do',
  ],
  [
    /^qwen2_?vl/i,
    "Qwen2-VL's encoder has other layers than its successors'",
    'Qwen2.5-VL-3B, -7B, Qwen3-VL-2B, -4B, -8B and qwen3.5-0.8b to 9b do',
  ],
  [/^(rwkv|xlstm)/i, 'it has recurrent layers alone', 'qwen3.5-0.8b to 9b have some, and do'],
];

/**
 * What is said of a model type, a class or a GGUF architecture that isn't known.
 * @param similar names that it may have been meant to be
 */
export function notKnown(name: string, known: readonly string[], similar = known): string {
  const [, what, relatives] = missing.find(([of]) => of.test(name)) ?? [];
  const why = what === undefined ? '' : `${what}, which don't run here; ${relatives}; `;
  return `${why}supported are ${known.join(', ')}.${what === undefined ? didYouMean(name, similar) : ''}`;
}

/** Adds a family beside those of the table. Before models of it are opened. */
export function registerFamily(row: FamilyRow): void {
  rows.push(row);
}

const loaded = new Map<FamilyRow, Family>();

/** Loads the families that are parts of their own, so that `parseModelConfig` knows them. */
export async function loadFamilies(): Promise<void> {
  await Promise.all(rows.map(loadFamily));
}

async function loadFamily(row: FamilyRow): Promise<void> {
  if (typeof row.family === 'function' && !loaded.has(row)) loaded.set(row, await row.family());
}

const familyOf = (row: FamilyRow): Family => {
  const family = typeof row.family === 'function' ? loaded.get(row) : row.family;
  if (family) return family;
  throw internalError(`the family of ${Object.keys(row.models).join(', ')} isn't loaded`);
};

export const supportedModelTypes = (): string[] =>
  rows.flatMap(({ models, wrappers = {} }) => [...Object.keys(models), ...Object.keys(wrappers)]);
const ggufOf = ({ gguf, models }: FamilyRow): readonly string[] => gguf ?? Object.keys(models);
export const supportedGguf = (): string[] => rows.flatMap(ggufOf);

/** What GGUF calls models of a type, those of its family. */
export const ggufNames = (modelType: string): readonly string[] =>
  rows.filter(({ models }) => Object.hasOwn(models, modelType)).flatMap(ggufOf);

/** How the family of a GGUF architecture reads it. */
export async function ggufFamily(arch: string): Promise<FamilyGguf | undefined> {
  const row = rows.find((each) => ggufOf(each).includes(arch));
  if (!row) return undefined;
  await loadFamily(row);
  return familyOf(row).gguf;
}

/** What encoders of images beside models of a GGUF architecture are called. */
export const projectorsOf = (arch: string): string[] =>
  rows.flatMap(({ projector }) => (projector?.archs.includes(arch) ? projector.types : []));

export async function projectorFamily(type: string, arch: string): Promise<Family> {
  const row = rows.find(({ projector }) => projector?.types.includes(type) && projector.archs.includes(arch))!;
  await loadFamily(row);
  return familyOf(row);
}

/** `parseModelConfig` of any family: loads it first. */
export async function readModelConfig(
  config: unknown,
  generationConfig?: unknown,
  file = 'config.json',
): Promise<ModelConfig> {
  await loadFamily(findFamily(new ConfigReader(config, file)).row);
  return parseModelConfig(config, generationConfig, file);
}

/**
 * Reads a Hugging Face config.json, and generation_config.json where there is one (its token ids win), given as JSON text or as
 * objects. Throws SplitkvError: `format` (not JSON), `config` (a missing key, an impossible value), `unsupported` (a model or a
 * feature this runtime doesn't have). Of the families that are parts of their own, only those that were loaded.
 *
 * @param file what messages call the first.
 */
export function parseModelConfig(config: unknown, generationConfig?: unknown, file = 'config.json'): ModelConfig {
  const whole = new ConfigReader(config, file);
  const { row, modelType, wraps } = findFamily(whole);
  // Older files have the text part's keys beside the encoder's.
  const flat = whole.has('hidden_size') ? whole : undefined;
  const reader = wraps ? (whole.optionalObject('text_config') ?? flat ?? whole.missing('text_config')) : whole;
  // Beside text_config stand the tokens that end an answer, and whether the head is the embedding.
  const generation =
    generationConfig == null
      ? wraps
        ? whole
        : undefined
      : new ConfigReader(generationConfig, 'generation_config.json');
  const family = familyOf(row);
  if (wraps) refuseQuantized(whole, family.packings);
  reader.setDefaults(family.defaults?.[modelType] ?? {});
  const common = parseCommon(modelType, reader, generation, family.packings);
  refuseForeign(reader, family.neutral ?? []);
  const { numLayers: _, ...parsed } = { ...common, ...family.config(reader, common) };
  refuseForeign(
    reader,
    neutralKeys.filter(([key]) => !reader.asked(key)),
  );
  reader.refuseNearMisses();
  const encoders = wraps && {
    ...encoderOf('vision', () => family.vision?.(whole)),
    ...encoderOf('sound', () => family.sound?.(whole)),
  };
  // Whatever the text part says, which transformers 5 writes too.
  const key = 'tie_word_embeddings';
  const tied = wraps && whole.raw(key) !== undefined && { tieWordEmbeddings: whole.boolean(key, false) };
  // Whose class has no head was saved without one.
  const headless = String(whole.raw('architectures')).endsWith('Model') && { tieWordEmbeddings: true };
  const model = { ...parsed, ...tied, ...headless, layers: alikeSegments(parsed.layers), ...encoders };
  checkSupported(model, file);
  return model;
}

/** An encoder that can't be run is no reason to refuse texts. */
function encoderOf<Kind extends 'vision' | 'sound'>(kind: Kind, read: () => ModelConfig[Kind]): Partial<ModelConfig> {
  try {
    return { [kind]: read() };
  } catch (error) {
    if (error instanceof SplitkvError && error.code === 'unsupported') return { [`${kind}Misfit`]: error.message };
    throw error;
  }
}

interface KnownModel {
  readonly row: FamilyRow;
  /** What the family knows it as. */
  readonly modelType: string;
  readonly classNames: readonly string[];
  /** The `model_type` of a model that has it as its text part. */
  readonly wraps?: string;
}

function findFamily(config: ConfigReader): KnownModel {
  const known = rows.flatMap((row): KnownModel[] => [
    ...Object.entries(row.models).map(([modelType, names]) => ({ row, modelType, classNames: [names].flat() })),
    ...Object.entries(row.wrappers ?? {}).map(([wraps, { className, textType }]) => {
      return { row, modelType: textType, classNames: [className], wraps };
    }),
  ]);
  const modelType = config.optionalString('model_type');
  const architectures = config.raw('architectures') ?? [];
  if (!Array.isArray(architectures) || architectures.some((name) => typeof name !== 'string')) {
    throw config.invalid('architectures', architectures, 'a list of class names');
  }
  const className: string | undefined = architectures[0];
  const types = known.map((model) => model.wraps ?? model.modelType);
  if (modelType !== undefined) {
    const found = known.find((model) => (model.wraps ?? model.modelType) === modelType);
    if (!found) throw config.unsupported('model_type', modelType, notKnown(modelType, types));
    if (className !== undefined && !found.classNames.includes(className)) {
      const names = found.classNames.join(', ');
      throw config.unsupported('architectures', className, `model_type '${modelType}' runs as ${names}`);
    }
    return textPart(found, config);
  }
  if (className === undefined) return config.missing('model_type');
  const found = known.find(({ classNames }) => classNames.includes(className));
  if (found) return textPart(found, config);
  const names = known.flatMap(({ classNames }) => classNames);
  throw config.unsupported('architectures', className, notKnown(className, types, names));
}

/** A wrapper's text part may say which of the family it is. */
function textPart(model: KnownModel, config: ConfigReader): KnownModel {
  if (model.wraps === undefined) return model;
  const own = config.optionalObject('text_config')?.optionalString('model_type');
  return own !== undefined && Object.hasOwn(model.row.models, own) ? { ...model, modelType: own } : model;
}
