import type { WeightType } from '../../shaders/linear/pack.js';
import { isBlockType, readJson, readText, type Source, TensorReader } from '../loader/index.js';
import { type ModelConfig, parseModelConfig } from '../model/config.js';
import { loadTokenizer, type Tokenizer } from '../tokenizer/index.js';

/** What a model's files say, read as far as it is asked for. */
export interface ModelFiles {
  readonly config: ModelConfig;
  /** Undefined where there is none. */
  tokenizer(): Promise<Tokenizer | undefined>;
  reader(): Promise<TensorReader>;
}

/** Of a Hugging Face folder, or of the GGUF file that `source.gguf` names. */
export async function openModelFiles(source: Source, signal?: AbortSignal): Promise<ModelFiles> {
  // A page that reads no GGUF file doesn't download what reads them.
  if (source.gguf !== undefined) return (await import('./gguf_files.js')).openGgufFiles(source, source.gguf, signal);
  const config = parseModelConfig(
    await readJson(source, 'config.json', signal),
    await readJson(source, 'generation_config.json', signal),
  );
  return {
    config,
    tokenizer: () => readTokenizer(source, signal),
    reader: () => TensorReader.open(source, signal),
  };
}

async function readTokenizer(source: Source, signal: AbortSignal | undefined): Promise<Tokenizer | undefined> {
  const tokenizerJson = await readText(source, 'tokenizer.json', signal);
  if (tokenizerJson === undefined) return undefined;
  const [tokenizerConfig, generationConfig, chatTemplate] = await Promise.all([
    readText(source, 'tokenizer_config.json', signal),
    readText(source, 'generation_config.json', signal),
    readText(source, 'chat_template.jinja', signal),
  ]);
  return loadTokenizer({ tokenizerJson, tokenizerConfig, generationConfig, chatTemplate });
}

/**
 * The type that keeps what the checkpoint's matrices say without taking more room than need be: that of the most bytes. Q4_0 is
 * q4 as it is; the other quantised types have finer scales or more bits than q4, so they become q8.
 */
export function storedType({ index }: TensorReader): WeightType {
  // By bytes: a checkpoint in 16 bits may well keep a router or a table in 32.
  const bytes: Record<WeightType, number> = { f16: 0, f32: 0, q8: 0, q4: 0 };
  for (const { dtype, start, end } of index.tensors.values()) {
    const type = isBlockType(dtype)
      ? dtype === 'Q4_0'
        ? 'q4'
        : 'q8'
      : dtype === 'F32' || dtype === 'F64'
        ? 'f32'
        : 'f16';
    bytes[type] += end - start;
  }
  return (Object.keys(bytes) as WeightType[]).reduce((most, type) => (bytes[type] > bytes[most] ? type : most));
}
