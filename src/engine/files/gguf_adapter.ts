import { formatError, unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import {
  entryOf,
  type GgufFile,
  type GgufTensor,
  openGguf,
  type Source,
  type TensorEntry,
  TensorReader,
} from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { ggufNames } from '../../model/families/registry.js';
import { ggufArchitecture } from '../../model/gguf/config.js';
import { ggufTensorIndex } from '../../model/gguf/tensors.js';
import type { StoredAdapter, StoredPair } from './adapter_files.js';

/** Norms that llama.cpp leaves out, too. */
const NORM = /_norm\.weight$/;

/** A low-rank adapter as llama.cpp has it: `NAME.lora_a` [rank, columns] and `NAME.lora_b` [rows, rank] of a model's tensor NAME. */
export async function openGgufAdapter(
  source: Source,
  file: string,
  config: ModelConfig,
  signal: AbortSignal | undefined,
): Promise<StoredAdapter> {
  const gguf = await openGguf(source, file, signal);
  const { metadata, what } = gguf;
  const alpha = metadata.get('adapter.lora.alpha') ?? 0;
  for (const [key, expected] of Object.entries({ 'general.type': 'adapter', 'adapter.type': 'lora' })) {
    const value = metadata.get(key);
    if (value !== expected) throw formatError(`${what}: ${key} is ${show(value ?? null)}; expected '${expected}'`);
  }
  if (metadata.has('adapter.alora.invocation_tokens'))
    throw unsupportedError(`${what}: adapters that begin behind tokens of their own (aLoRA) are not supported`);
  if (typeof alpha !== 'number' || !Number.isFinite(alpha))
    throw formatError(`${what}: adapter.lora.alpha is ${show(alpha)}; expected a number`);
  const arch = metadata.get('general.architecture');
  const known = ggufNames(config.architecture);
  if (typeof arch !== 'string' || !known.includes(arch))
    throw formatError(`${what} is of '${String(arch)}'; this model is ${known.join(' or ')} in GGUF`);
  const halves = { a: new Map<string, GgufTensor>(), b: new Map<string, GgufTensor>() };
  for (const [name, tensor] of gguf.tensors) {
    const [, own, half] = /^(.+)\.lora_([ab])$/.exec(name) ?? [];
    if (own !== undefined) halves[half as 'a' | 'b'].set(own, { ...tensor, name: own });
    else if (!NORM.test(name)) throw unsupportedError(`${what}: tensor '${name}' is no half of a low-rank pair`);
  }
  // The model's tensors are named as its checkpoint's, and rows of b ordered so, as those of the tensor itself would be.
  const base: GgufFile['metadata'] = new Map([...metadata].filter(([key]) => key !== 'general.type'));
  const pseudo = { ...gguf, metadata: base, tensors: halves.b };
  const named = ggufTensorIndex(pseudo, await ggufArchitecture(pseudo), config).tensors;
  const byStart = new Map([...named].map(([name, entry]) => [entry.start, name]));
  const tensors = new Map<string, TensorEntry>(
    [...halves.a].map(([name, tensor]) => [`${name}.lora_a`, { ...entryOf(tensor), name: `${name}.lora_a` }]),
  );
  const pairs = [...halves.b].map(([name, { start }]): StoredPair => {
    const tensor = byStart.get(start);
    if (tensor === undefined || !tensor.endsWith('.weight'))
      throw unsupportedError(`${what}: the adapter changes '${name}', which this model doesn't have`);
    const b = `${name}.lora_b`;
    tensors.set(b, { ...named.get(tensor)!, name: b });
    const scaleOf = (rank: number): number => (alpha === 0 ? 1 : alpha / rank);
    return { module: tensor.slice(0, -'.weight'.length), a: `${name}.lora_a`, b, scaleOf };
  });
  if (pairs.length === 0) throw formatError(`${what}: the adapter is empty`);
  return { reader: new TensorReader(source, { ...gguf, tensors, totalBytes: 0 }), pairs };
}
