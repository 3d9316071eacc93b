import { formatError, unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import {
  type GgufFile,
  type GgufTensor,
  openGguf,
  type Source,
  type TensorEntry,
  TensorReader,
  transposedView,
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
  // The model's tensors are named as its checkpoint's; rows of b are ordered, and columns of a, as those of the tensor itself would be.
  const base: GgufFile['metadata'] = new Map([...metadata].filter(([key]) => key !== 'general.type'));
  const architecture = await ggufArchitecture({ ...gguf, metadata: base });
  const named = (half: 'a' | 'b'): ReadonlyMap<string, TensorEntry> =>
    ggufTensorIndex({ ...gguf, metadata: base, tensors: halves[half] }, architecture, config).tensors;
  const { embedding } = config.tensors;
  const [ofA, ofB] = [named('a'), named('b')];
  const starts = new Set([...ofB].flatMap(([name, { start }]) => (name.endsWith('.weight') ? start : [])));
  const strange = [...halves.b].find(([, { start }]) => !starts.has(start));
  if (strange) throw unsupportedError(`${what}: the adapter changes '${strange[0]}', which this model doesn't have`);
  const tensors = new Map<string, TensorEntry>();
  const pairs = [...ofB].map(([tensor, entry]): StoredPair => {
    const module = tensor.slice(0, -'.weight'.length);
    const [a, b] = [`${module}.lora_a`, `${module}.lora_b`];
    const ofModel = ofA.get(tensor);
    if (ofModel) {
      const { slice, ...plain } = ofModel;
      // What isn't made is ordered rows.
      const columns = { ...plain, ...(plain.isMade && slice && { slice }) };
      // Of the embedding, A has tokens as rows.
      tensors.set(a, { ...(module === embedding ? transposedView(columns, { first: 0, step: 1 }) : columns), name: a });
    }
    tensors.set(b, { ...entry, name: b });
    return { module, a, b, scaleOf: (rank) => (alpha === 0 ? 1 : alpha / rank) };
  });
  if (pairs.length === 0) throw formatError(`${what}: the adapter is empty`);
  return { reader: new TensorReader(source, { ...gguf, tensors, totalBytes: 0 }), pairs };
}
