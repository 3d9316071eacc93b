import { SplitkvError } from '../../base/errors.js';
import { type GgufFile, openGguf, type Source, TensorReader } from '../../loader/index.js';
import { ggufArchitecture, ggufConfig } from '../../model/gguf/config.js';
import { ggufTensorIndex } from '../../model/gguf/tensors.js';
import { ggufTokenizerFiles, type TokenizerFiles } from '../../tokenizer/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { ggufSampling, type ModelFiles, recommendedSampling } from './model_files.js';

/** What a GGUF file's metadata says of the model in it. */
export async function openGgufFiles(
  source: Source,
  file: string,
  signal: AbortSignal | undefined,
  onWarning: LoadOptions['onWarning'],
  wanted: boolean | string | undefined,
): Promise<ModelFiles> {
  const gguf = await openGguf(source, file, signal);
  const { metadata, what } = gguf;
  let tokenizer: TokenizerFiles | SplitkvError | undefined;
  try {
    tokenizer = ggufTokenizerFiles(metadata, what);
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'unsupported')) throw error;
    tokenizer = error;
  }
  const generation = tokenizer instanceof SplitkvError ? namedIds(metadata) : tokenizer?.generationConfig;
  const text = await ggufConfig(source, gguf, generation, signal);
  const architecture = await ggufArchitecture(gguf);
  const { openMmproj } = wanted ? await import('../../model/gguf/mmproj.js') : {};
  const encoder = await openMmproj?.(source, gguf, text, wanted, signal);
  const config = { ...text, ...encoder?.configs };
  return {
    config,
    sampling: recommendedSampling(ggufSampling(metadata), onWarning, what),
    tokenizerFiles: async () => {
      if (tokenizer instanceof SplitkvError) throw tokenizer;
      return tokenizer;
    },
    sentence: async (reader) => (await import('./sentence_files.js')).ggufSentenceFiles(metadata, reader),
    pictures: async () => encoder?.pictures ?? {},
    // llama.cpp makes frames as transformers does by default.
    sounds: async () => ({}),
    reader: async () => {
      const index = ggufTensorIndex(gguf, architecture, config);
      return new TensorReader(source, encoder ? encoder.add(index) : index);
    },
  };
}

/** The ids that the file names itself, where its tokenizer isn't read. */
function namedIds(metadata: GgufFile['metadata']): Record<string, unknown> {
  const names = ['bos_token_id', 'eos_token_id'] as const;
  return Object.fromEntries(
    names.map((name) => [name, metadata.get(`tokenizer.ggml.${name}`)]).filter(([, id]) => Number.isInteger(id)),
  );
}
