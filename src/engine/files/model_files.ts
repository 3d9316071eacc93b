/**
 * Room: from what somebody wrote (a name, a URL, a folder, files) to the files of a model: config, tokenizer, tensors.
 * Read open_files.ts next.
 */

import { ioError, SplitkvError, unsupportedError } from '../../base/errors.js';
import { isObject, show } from '../../base/json.js';
import { snake } from '../../base/names.js';
import { isWithin, rangeText } from '../../base/options.js';
import {
  readJson,
  readTensorIndex,
  readText,
  type Source,
  type TensorIndex,
  TensorReader,
  TOKENIZER_CONFIG_LIMITS,
  TOKENIZER_LIMITS,
} from '../../loader/index.js';
import { expertsOf, type ModelConfig, takesRows } from '../../model/config/model_config.js';
import { readModelConfig } from '../../model/families/registry.js';
import { Tokenizer, type TokenizerFiles } from '../../tokenizer/index.js';
import type { LoadOptions, RecommendedSampling } from '../contracts/api.js';
import type { SentenceFiles } from './sentence_files.js';
import type { OptionRow } from '../contracts/options/row.js';
import { SAMPLING_ROWS } from '../contracts/options/sampling_rows.js';

/** What a model's files say, read as far as it is asked for. */
export interface ModelFiles {
  readonly config: ModelConfig;
  readonly sampling: RecommendedSampling;
  /** Undefined where there is none. @throws SplitkvError `unsupported` for a kind that isn't read */
  tokenizerFiles(): Promise<TokenizerFiles | undefined>;
  reader(): Promise<TensorReader>;
  /** How its images are cut and scaled, in the words of preprocessor_config.json. */
  pictures(): Promise<Readonly<Record<string, unknown>>>;
  /** What is said of frames of sound, in the words of a feature extractor. */
  sounds(): Promise<Readonly<Record<string, unknown>>>;
  /** What they say of vectors of texts. @param reader what `reader` gave */
  sentence(reader: () => Promise<TensorReader>): Promise<SentenceFiles>;
}

/**
 * Of a Hugging Face folder, or of the GGUF file that `source.gguf` names.
 * @param encoder of a GGUF file its encoder is wanted, too: the file that has it, or the one beside it
 */
export async function openModelFiles(
  source: Source,
  signal?: AbortSignal,
  onWarning?: LoadOptions['onWarning'],
  encoder?: boolean | string,
): Promise<ModelFiles> {
  // A page that reads no GGUF file doesn't download what reads them.
  if (source.gguf !== undefined)
    return (await import('./gguf_files.js')).openGgufFiles(source, source.gguf, signal, onWarning, encoder);
  const configJson = await readJson(source, 'config.json', signal);
  const generation = await readJson(source, 'generation_config.json', signal);
  const config = await readModelConfig(configJson, generation);
  return {
    config,
    sampling: recommendedSampling(generation, onWarning),
    tokenizerFiles: () => readTokenizerFiles(source, signal),
    pictures: async () => {
      const [whole = {}] = await readProcessors(source, signal);
      return isObject(whole['image_processor']) ? whole['image_processor'] : whole;
    },
    sounds: async () => {
      const parts = await readProcessors(source, signal);
      return parts.map((whole) => whole['feature_extractor']).find(isObject) ?? {};
    },
    reader: async () => {
      const index = await readTensorIndex(source, signal);
      const named = namedAsFamily(index, config)
        ? index
        : (await import('../../model/weights/stored_names.js')).asNamed(index, config);
      return new TensorReader(source, named);
    },
    sentence: async (reader) => (await import('./sentence_files.js')).readSentenceFiles(source, configJson, reader),
  };
}

/** What files say of what is made of images and sound; in older folders of images alone. */
async function readProcessors(source: Source, signal: AbortSignal | undefined): Promise<Record<string, unknown>[]> {
  const names = ['preprocessor_config.json', 'processor_config.json'];
  return (await Promise.all(names.map((name) => readJson(source, name, signal)))).filter(isObject);
}

/** Else a checkpoint has a language model beside others, or its experts in stacks. */
const namedAsFamily = ({ tensors }: TensorIndex, config: ModelConfig): boolean =>
  tensors.has(`${config.tensors.embedding}.weight`) &&
  !takesRows(config) &&
  !(config.tensors.experts?.stacks && expertsOf(config)) &&
  ![...tensors.keys()].some((name) => /\.experts\.gate_up_proj(_blocks)?$/.test(name));

async function readTokenizerFiles(
  source: Source,
  signal: AbortSignal | undefined,
): Promise<TokenizerFiles | undefined> {
  const tokenizerJson = await readText(source, 'tokenizer.json', signal, TOKENIZER_LIMITS);
  if (tokenizerJson === undefined) {
    if ((await source.size('tokenizer.model', signal)) === undefined) return undefined;
    throw unsupportedError(
      "the model's tokenizer.model (SentencePiece) isn't read, and there is no tokenizer.json; transformers writes one: " +
        'AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)',
    );
  }
  const [tokenizerConfig, generationConfig, chatTemplate] = await Promise.all([
    readText(source, 'tokenizer_config.json', signal, TOKENIZER_CONFIG_LIMITS),
    readText(source, 'generation_config.json', signal),
    readTemplate(source, signal),
  ]);
  return { tokenizerJson, tokenizerConfig, generationConfig, chatTemplate };
}

/** A template that has files of its own: with one for tools as transformers 5 writes it, or that of an older processor. */
async function readTemplate(source: Source, signal: AbortSignal | undefined): Promise<TokenizerFiles['chatTemplate']> {
  const template = await readText(source, 'chat_template.jinja', signal);
  if (template === undefined) {
    const older = await readJson(source, 'chat_template.json', signal);
    return isObject(older) ? older['chat_template'] : undefined;
  }
  const forTools = await readText(source, 'additional_chat_templates/tool_use.jinja', signal);
  if (forTools === undefined) return template;
  return Object.entries({ default: template, tool_use: forTools }).map(([name, each]) => ({ name, template: each }));
}

/** A model's tokenizer and what it was made of, or why there is none: token ids need none. */
export interface ModelTokenizer {
  readonly tokenizer: Tokenizer | undefined;
  readonly tokenizerFiles?: TokenizerFiles;
  /** What text fails with. */
  readonly noTokenizer?: SplitkvError;
}

/** @throws SplitkvError `format` for broken files; `aborted`, and `io` for what can't be read although it is there */
export async function openTokenizer(files: ModelFiles): Promise<ModelTokenizer> {
  try {
    const tokenizerFiles = await files.tokenizerFiles();
    if (tokenizerFiles) return { tokenizer: await Tokenizer.load(tokenizerFiles), tokenizerFiles };
    return { tokenizer: undefined, noTokenizer: ioError('the model has none: add its tokenizer.json') };
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'unsupported')) throw error;
    return { tokenizer: undefined, noTokenizer: error };
  }
}

/** What may be recommended, with its name in generation_config.json. */
const RECOMMENDED = Object.entries<OptionRow>(SAMPLING_ROWS).flatMap(([option, { recommended, range }]) =>
  recommended && range ? [[option as keyof RecommendedSampling, snake(option), recommended, range] as const] : [],
);

/** The same in a GGUF file's metadata, under the names of generation_config.json. */
export const ggufSampling = (metadata: ReadonlyMap<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    RECOMMENDED.map(([, name, recommended]) => [name, metadata.get(`general.sampling.${recommended}`)]),
  );

/**
 * What a generation_config.json says of sampling. Values that can't be are left out, with a warning; `do_sample: false` leaves out all
 * that has to do with drawing, as transformers does, and `true` without a temperature means 1.
 */
export function recommendedSampling(
  config: unknown,
  onWarning?: LoadOptions['onWarning'],
  file = 'generation_config.json',
): RecommendedSampling {
  if (!isObject(config)) return {};
  const draws = config['do_sample'];
  const sampling: { -readonly [Name in keyof RecommendedSampling]: number } = draws === true ? { temperature: 1 } : {};
  for (const [option, name, , range] of RECOMMENDED) {
    const value = config[name];
    if (value == null || (draws === false && option !== 'repetitionPenalty')) continue;
    if (isWithin(value, range)) sampling[option] = value;
    else onWarning?.(`${file}: ${name} is ${show(value)}; expected ${rangeText(range)}. It is ignored`);
  }
  return sampling;
}
