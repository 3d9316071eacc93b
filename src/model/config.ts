import { didYouMean } from '../base/errors.js';
import { ConfigReader } from './config_reader.js';
import { parseDeepseekConfig, type DeepseekArchitecture, type DeepseekConfig } from './deepseek_config.js';
import { parseLlamaConfig, type LlamaArchitecture, type LlamaConfig } from './llama_config.js';

export { isMoeLayer } from './deepseek_config.js';
export type { DeepseekArchitecture, DeepseekConfig, MoeConfig } from './deepseek_config.js';
export type { LlamaArchitecture, LlamaConfig } from './llama_config.js';
export type { RopeScaling } from './rope_config.js';

/** The configuration of any model this runtime can run, told apart by `architecture` (or `isDeepseek`). */
export type ModelConfig = LlamaConfig | DeepseekConfig;

/** True for models with latent attention: DeepSeek V2 and V3, MiniCPM3. */
export const isDeepseek = (config: ModelConfig): config is DeepseekConfig => 'kvLoraRank' in config;

interface Family {
  /** The entry of `architectures` in config.json that means a causal language model of this type. */
  className: string;
  parse(config: ConfigReader, generation: ConfigReader | undefined): ModelConfig;
}

const llamaFamily = (architecture: LlamaArchitecture, className: string): Family => ({
  className,
  parse: (config, generation) => parseLlamaConfig(architecture, config, generation),
});

const deepseekFamily = (architecture: DeepseekArchitecture, className: string): Family => ({
  className,
  parse: (config, generation) => parseDeepseekConfig(architecture, config, generation),
});

/** Every supported model, by the `model_type` of its config.json. A new family adds its lines here. */
const families: Record<string, Family> = {
  llama: llamaFamily('llama', 'LlamaForCausalLM'),
  qwen2: llamaFamily('qwen2', 'Qwen2ForCausalLM'),
  qwen3: llamaFamily('qwen3', 'Qwen3ForCausalLM'),
  mistral: llamaFamily('mistral', 'MistralForCausalLM'),
  deepseek_v2: deepseekFamily('deepseek_v2', 'DeepseekV2ForCausalLM'),
  deepseek_v3: deepseekFamily('deepseek_v3', 'DeepseekV3ForCausalLM'),
  minicpm3: deepseekFamily('minicpm3', 'MiniCPM3ForCausalLM'),
};

export const supportedModelTypes: readonly string[] = Object.keys(families);

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
  return findFamily(reader).parse(reader, generation);
}

function findFamily(config: ConfigReader): Family {
  const modelType = config.optionalString('model_type');
  const architectures = config.raw('architectures') ?? [];
  if (!Array.isArray(architectures) || architectures.some((name) => typeof name !== 'string')) {
    throw config.invalid('architectures', architectures, 'a list of class names');
  }
  const className: string | undefined = architectures[0];
  const supported = `supported are ${supportedModelTypes.join(', ')}.`;
  if (modelType !== undefined) {
    const family = Object.hasOwn(families, modelType) ? families[modelType] : undefined;
    if (family === undefined) {
      throw config.unsupported('model_type', modelType, supported + didYouMean(modelType, supportedModelTypes));
    }
    if (className !== undefined && className !== family.className) {
      throw config.unsupported('architectures', className, `model_type '${modelType}' runs as ${family.className}`);
    }
    return family;
  }
  if (className === undefined) return config.missing('model_type');
  const family = Object.values(families).find((candidate) => candidate.className === className);
  if (family !== undefined) return family;
  const classNames = Object.values(families).map((candidate) => candidate.className);
  throw config.unsupported('architectures', className, supported + didYouMean(className, classNames));
}
