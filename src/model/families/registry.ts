import { didYouMean } from '../../base/errors.js';
import type { ModelConfig } from '../config.js';
import { ConfigReader } from '../config_reader.js';
import { checkSupported } from '../supported.js';
import { deepseek } from './deepseek.js';
import { type Family, type FamilyGguf, parseCommon } from './family.js';
import { llama } from './llama.js';

/** What makes a family known. */
export interface FamilyRow {
  readonly family: Family;
  /** By the `model_type` of config.json, the entry of `architectures` that means a causal language model of this type. */
  readonly models: Readonly<Record<string, string>>;
  /** What llama.cpp calls them (`general.architecture`). */
  readonly gguf: readonly string[];
}

const rows: FamilyRow[] = [
  {
    family: llama,
    models: {
      llama: 'LlamaForCausalLM',
      qwen2: 'Qwen2ForCausalLM',
      qwen3: 'Qwen3ForCausalLM',
      mistral: 'MistralForCausalLM',
    },
    gguf: ['llama', 'qwen2', 'qwen3'],
  },
  {
    family: deepseek,
    models: {
      deepseek_v2: 'DeepseekV2ForCausalLM',
      deepseek_v3: 'DeepseekV3ForCausalLM',
      minicpm3: 'MiniCPM3ForCausalLM',
    },
    gguf: ['deepseek2', 'minicpm3'],
  },
];

/** Adds a family beside those of the table. Before models of it are opened. */
export function registerFamily(row: FamilyRow): void {
  rows.push(row);
}

export const supportedModelTypes = (): string[] => rows.flatMap(({ models }) => Object.keys(models));
export const supportedGguf = (): string[] => rows.flatMap(({ gguf }) => gguf);

/** How the family of a GGUF architecture reads it. */
export const ggufFamily = (arch: string): FamilyGguf | undefined =>
  rows.find(({ gguf }) => gguf.includes(arch))?.family.gguf;

/**
 * Reads a Hugging Face config.json, and generation_config.json where there is one (its token ids win), given as JSON text or as
 * objects. Throws SplitkvError: `format` (not JSON), `config` (a missing key, an impossible value), `unsupported` (a model or a
 * feature this runtime doesn't have).
 *
 * @param file what messages call the first.
 */
export function parseModelConfig(config: unknown, generationConfig?: unknown, file = 'config.json'): ModelConfig {
  const reader = new ConfigReader(config, file);
  const generation =
    generationConfig == null ? undefined : new ConfigReader(generationConfig, 'generation_config.json');
  const { family, modelType } = findFamily(reader);
  const common = parseCommon(modelType, reader, generation);
  const { numLayers: _, ...parsed } = { ...common, ...family.config(reader, common) };
  reader.refuseNearMisses();
  checkSupported(parsed, file);
  return parsed;
}

function findFamily(config: ConfigReader): { readonly family: Family; readonly modelType: string } {
  const known = rows.flatMap(({ family, models }) =>
    Object.entries(models).map(([modelType, className]) => ({ family, modelType, className })),
  );
  const modelType = config.optionalString('model_type');
  const architectures = config.raw('architectures') ?? [];
  if (!Array.isArray(architectures) || architectures.some((name) => typeof name !== 'string')) {
    throw config.invalid('architectures', architectures, 'a list of class names');
  }
  const className: string | undefined = architectures[0];
  const types = known.map((model) => model.modelType);
  const supported = `supported are ${types.join(', ')}.`;
  if (modelType !== undefined) {
    const found = known.find((model) => model.modelType === modelType);
    if (!found) throw config.unsupported('model_type', modelType, supported + didYouMean(modelType, types));
    if (className !== undefined && className !== found.className) {
      throw config.unsupported('architectures', className, `model_type '${modelType}' runs as ${found.className}`);
    }
    return found;
  }
  if (className === undefined) return config.missing('model_type');
  const found = known.find((model) => model.className === className);
  if (found) return found;
  const classNames = known.map((model) => model.className);
  throw config.unsupported('architectures', className, supported + didYouMean(className, classNames));
}
