import { openGguf, type Source, TensorReader } from '../loader/index.js';
import { ggufArchitecture, ggufConfig } from '../model/gguf_config.js';
import { ggufTensorIndex } from '../model/gguf_tensors.js';
import { ggufTokenizerFiles, loadTokenizer } from '../tokenizer/index.js';
import type { ModelFiles } from './model_files.js';

/** What a GGUF file's metadata says of the model in it. */
export async function openGgufFiles(
  source: Source,
  file: string,
  signal: AbortSignal | undefined,
): Promise<ModelFiles> {
  const gguf = await openGguf(source, file, signal);
  const tokenizerFiles = ggufTokenizerFiles(gguf.metadata, gguf.what);
  const config = await ggufConfig(source, gguf, tokenizerFiles?.generationConfig, signal);
  return {
    config,
    tokenizer: async () => tokenizerFiles && loadTokenizer(tokenizerFiles),
    reader: async () => new TensorReader(source, ggufTensorIndex(gguf, ggufArchitecture(gguf), config)),
  };
}
