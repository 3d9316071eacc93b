import type { TensorReader } from '../../src/loader/index.js';
import { matrixShape } from '../../src/loader/index.js';
import type { ModelConfig } from '../../src/model/config/model_config.js';
import { modelToGguf } from '../../src/model/testing/gguf/model.js';
import type { GgufValue } from '../../src/model/testing/gguf/file.js';
import type { ReferenceTensor } from '../../src/model/testing/reference/reference.js';
import type { WritableType } from '../../src/loader/gguf/testing/quantise.js';
import type { PeerWeights } from './peer_weights.js';

const MATRICES = { f32: 'F32', f16: 'F16', q8: 'Q8_0', q4: 'Q4_0' } as const;

/** What llama-quantize takes for rows that aren't whole blocks of 256. */
const NARROW = { Q4_K: 'Q5_0', Q6_K: 'Q8_0' } as const;

/** The type that llama-quantize gives a matrix of a Q4_K_M file (llama_tensor_get_type of its llama-quant.cpp). */
function q4KM(name: string, columns: number, layers: number, tied: boolean): WritableType {
  const layer = Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? 0);
  const eighth = Math.floor(layers / 8);
  const more = layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
  const isOutput = name === 'output.weight' || (tied && name === 'token_embd.weight');
  const type = isOutput || (more && /attn_v|ffn_down/.test(name)) ? 'Q6_K' : 'Q4_K';
  return columns % 256 === 0 ? type : NARROW[type];
}

/** The checkpoint as a GGUF file. But for q4_k_m, whose blocks ours reads from the same file, its matrices hold the numbers that ours hold. */
export async function ggufBytes(
  config: ModelConfig,
  reader: TensorReader,
  weights: PeerWeights,
  vocabulary?: Readonly<Record<string, GgufValue>>,
): Promise<Uint8Array<ArrayBuffer>> {
  const tensors = new Map<string, ReferenceTensor>();
  for (const [name, { shape }] of reader.index.tensors) {
    tensors.set(name, { shape: [...shape], data: await reader.readRows(name, 0, matrixShape({ shape }).rows) });
  }
  const typeOf = (name: string, columns: number): WritableType =>
    weights === 'q4_k_m' ? q4KM(name, columns, config.layers.length, config.tieWordEmbeddings) : MATRICES[weights];
  return modelToGguf(config, tensors, {
    typeOf: (name, shape) => (shape.length === 2 ? typeOf(name, shape[1]!) : undefined),
    metadata: vocabulary,
  });
}
