import type { TensorReader } from '../../loader/index.js';
import { matrixShape } from '../../loader/index.js';
import type { LlamaConfig } from '../../model/llama_config.js';
import { modelToGguf } from '../../model/testing/gguf.js';
import type { GgufValue } from '../../model/testing/gguf_file.js';
import type { ReferenceTensor } from '../../model/testing/reference.js';
import type { PeerWeights } from './decode_graph.js';

/** The checkpoint as a GGUF file: F32, or Q4_0 matrices, which hold the numbers that our q4 holds. */
export async function ggufBytes(
  config: LlamaConfig,
  reader: TensorReader,
  weights: PeerWeights,
  vocabulary?: Readonly<Record<string, GgufValue>>,
): Promise<Uint8Array<ArrayBuffer>> {
  const tensors = new Map<string, ReferenceTensor>();
  for (const [name, { shape }] of reader.index.tensors) {
    tensors.set(name, { shape: [...shape], data: await reader.readRows(name, 0, matrixShape({ shape }).rows) });
  }
  return modelToGguf(config, tensors, {
    typeOf: (_name, shape) => (weights === 'q4' && shape.length === 2 ? 'Q4_0' : undefined),
    metadata: vocabulary,
  });
}
