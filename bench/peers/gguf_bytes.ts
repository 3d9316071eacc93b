import type { TensorReader } from '../../src/loader/index.js';
import { matrixShape } from '../../src/loader/index.js';
import type { ModelConfig } from '../../src/model/config/model_config.js';
import { modelToGguf } from '../../src/model/testing/gguf/model.js';
import type { GgufValue } from '../../src/model/testing/gguf/file.js';
import type { ReferenceTensor } from '../../src/model/testing/reference/reference.js';
import type { WeightType } from '../../shaders/linear/pack.js';

const MATRICES = { f32: 'F32', f16: 'F16', q8: 'Q8_0', q4: 'Q4_0' } as const;

/** The checkpoint as a GGUF file; its matrices hold the numbers that ours hold. */
export async function ggufBytes(
  config: ModelConfig,
  reader: TensorReader,
  weights: WeightType,
  vocabulary?: Readonly<Record<string, GgufValue>>,
): Promise<Uint8Array<ArrayBuffer>> {
  const tensors = new Map<string, ReferenceTensor>();
  for (const [name, { shape }] of reader.index.tensors) {
    tensors.set(name, { shape: [...shape], data: await reader.readRows(name, 0, matrixShape({ shape }).rows) });
  }
  return modelToGguf(config, tensors, {
    typeOf: (_name, shape) => (shape.length === 2 ? MATRICES[weights] : undefined),
    metadata: vocabulary,
  });
}
