import type { WeightType } from '../../shaders/linear/pack.js';
import type { Buffer, Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import type { LlamaConfig } from './llama_config.js';
import { llamaMap } from './llama_map.js';
import type { Matrix } from './matrix.js';
import { type LoadWeightsOptions, WeightLoader } from './weight_loader.js';

export interface LlamaLayerWeights {
  readonly inputNorm: Buffer;
  readonly qkv: Matrix;
  readonly qkvBias: Buffer | undefined;
  readonly qNorm: Buffer | undefined;
  readonly kNorm: Buffer | undefined;
  readonly o: Matrix;
  readonly oBias: Buffer | undefined;
  readonly postNorm: Buffer;
  readonly gateUp: Matrix;
  readonly gateUpBias: Buffer | undefined;
  readonly down: Matrix;
  readonly downBias: Buffer | undefined;
}

export interface LlamaWeights {
  readonly type: WeightType;
  readonly embedding: Matrix;
  readonly layers: readonly LlamaLayerWeights[];
  readonly norm: Buffer;
  /** The embedding itself when they are tied. */
  readonly head: Matrix;
  readonly bytes: number;
  readonly parameters: number;
}

/**
 * Loads a Llama-family checkpoint.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `limit` for an adapter too small, `aborted`.
 */
export async function loadLlamaWeights(
  device: Device,
  config: LlamaConfig,
  reader: TensorReader,
  type: WeightType,
  options: LoadWeightsOptions = {},
): Promise<LlamaWeights> {
  const map = llamaMap(config);
  const specs = [map.embedding, ...map.layers.flatMap((layer) => Object.values(layer)), map.norm, map.head];
  const loader = new WeightLoader(device, reader, type, specs, options);
  const embedding = await loader.matrix(map.embedding);
  const layers: LlamaLayerWeights[] = [];
  for (const layer of map.layers) {
    layers.push({
      inputNorm: await loader.vector(layer.inputNorm),
      qkv: await loader.matrix(layer.qkv),
      qkvBias: await loader.vector(layer.qkvBias),
      qNorm: await loader.vector(layer.qNorm),
      kNorm: await loader.vector(layer.kNorm),
      o: await loader.matrix(layer.o),
      oBias: await loader.vector(layer.oBias),
      postNorm: await loader.vector(layer.postNorm),
      // Gate and up tiles are read together, so they can't lie in different bindings.
      gateUp: await loader.matrix(layer.gateUp, { whole: true }),
      gateUpBias: await loader.vector(layer.gateUpBias),
      down: await loader.matrix(layer.down),
      downBias: await loader.vector(layer.downBias),
    });
  }
  const norm = await loader.vector(map.norm);
  const head = map.head ? await loader.matrix(map.head) : embedding;
  return { type, embedding, layers, norm, head, bytes: loader.bytes, parameters: loader.parameters };
}
