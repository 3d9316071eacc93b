import { ioError, SplitkvError } from '../../base/errors.js';
import {
  findMmproj,
  type GgufFile,
  openGguf,
  type Source,
  type TensorIndex,
  TensorReader,
} from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { projectorsOf } from '../../model/families/registry.js';
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
  images: boolean | string | undefined,
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
  const encoder = images && (await openEncoder(source, gguf, text, architecture.arch, images, signal));
  const config = { ...text, ...(encoder && { vision: encoder.vision }) };
  return {
    config,
    sampling: recommendedSampling(ggufSampling(metadata), onWarning, what),
    tokenizerFiles: async () => {
      if (tokenizer instanceof SplitkvError) throw tokenizer;
      return tokenizer;
    },
    sentence: async (reader) => (await import('./sentence_files.js')).ggufSentenceFiles(metadata, reader),
    pictures: async () => (encoder ? encoder.pictures : {}),
    reader: async () => {
      const index = ggufTensorIndex(gguf, architecture, config);
      return new TensorReader(source, encoder ? encoder.add(index) : index);
    },
  };
}

/**
 * The encoder of images in the file beside a model; undefined where models of the architecture have none.
 * @param images the file, or true for the one that lies there
 * @throws SplitkvError `io` where there is none, as `openGguf`, `mmprojVision`
 */
async function openEncoder(
  source: Source,
  { file, metadata }: GgufFile,
  config: ModelConfig,
  arch: string,
  images: true | string,
  signal: AbortSignal | undefined,
) {
  if (projectorsOf(arch).length === 0) return undefined;
  const name = images === true ? await findMmproj(source, file, signal) : images;
  if (name === undefined) {
    throw ioError(
      `images: no mmproj file lies beside ${file} of ${source.name}: put llama.cpp's mmproj-*.gguf of the same model there, or name it (mmproj); leave images out for text alone`,
    );
  }
  const mmproj = await openGguf(source, name, signal);
  const { mmprojPictures, mmprojVision, withMmproj } = await import('../../model/gguf/mmproj.js');
  const vision = await mmprojVision(mmproj, config, arch, metadata.get('tokenizer.ggml.tokens'));
  return {
    vision,
    pictures: mmprojPictures(mmproj),
    add: (index: TensorIndex): TensorIndex => withMmproj(index, mmproj, vision),
  };
}

/** The ids that the file names itself, where its tokenizer isn't read. */
function namedIds(metadata: GgufFile['metadata']): Record<string, unknown> {
  const names = ['bos_token_id', 'eos_token_id'] as const;
  return Object.fromEntries(
    names.map((name) => [name, metadata.get(`tokenizer.ggml.${name}`)]).filter(([, id]) => Number.isInteger(id)),
  );
}
