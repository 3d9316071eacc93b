/**
 * Room: which tensors a rank needs, in which type, and how they become GPU buffers. Here is what a rank holds;
 * weight_map.ts says where it comes from, weight_loader.ts loads it, weight_bytes.ts counts it beforehand.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { attentionKinds, type AttentionWeights, mlpKinds, type MlpWeights } from '../layers/weight_kinds.js';
import { mapSpecs, modelMap } from './model_map.js';
import type { RankSlice } from '../shape.js';
import { type LoadWeightsOptions, type VocabMatrix, WeightLoader } from './weight_loader.js';

/** A rank's slice of a layer. Vectors that aren't cut are whole. */
export interface LayerWeights {
  /** Of the layer in the model. */
  readonly index: number;
  readonly inputNorm: Buffer;
  readonly attention: AttentionWeights;
  readonly postNorm: Buffer;
  readonly mlp: MlpWeights;
  readonly attentionOutNorm: Buffer | undefined;
  readonly mlpOutNorm: Buffer | undefined;
}

export interface ModelWeights {
  readonly type: WeightType;
  readonly embedding: VocabMatrix | undefined;
  /** Layers of which the rank holds weights, ascending. */
  readonly layers: readonly LayerWeights[];
  /** Where the head is. */
  readonly norm: Buffer | undefined;
  /** The embedding itself when they are tied and the rank holds the same rows of both. */
  readonly head: VocabMatrix | undefined;
  readonly bytes: number;
  readonly parameters: number;
}

/**
 * Loads a checkpoint: a rank's slice, or all of it.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `limit` for an adapter too small, `aborted`.
 */
export async function loadModelWeights(
  device: Device,
  config: ModelConfig,
  reader: TensorReader,
  type: WeightType,
  options: LoadWeightsOptions & { readonly slice?: RankSlice | undefined } = {},
): Promise<ModelWeights> {
  const map = modelMap(config, options.slice);
  const loader = new WeightLoader(device, reader, type, mapSpecs(map), options);
  const embedding = await loader.vocab(map.embedding);
  const layers: LayerWeights[] = [];
  for (const { index, inputNorm, attention, postNorm, mlp, attentionOutNorm, mlpOutNorm } of map.layers) {
    layers.push({
      index,
      inputNorm: await loader.vector(inputNorm),
      attention: await attentionKinds[attention.kind].load(loader, attention),
      postNorm: await loader.vector(postNorm),
      mlp: await mlpKinds[mlp.kind].load(loader, mlp),
      attentionOutNorm: await loader.vector(attentionOutNorm),
      mlpOutNorm: await loader.vector(mlpOutNorm),
    });
  }
  const norm = await loader.vector(map.norm);
  const head = map.head === map.embedding ? embedding : await loader.vocab(map.head);
  return { type, embedding, layers, norm, head, bytes: loader.bytes, parameters: loader.parameters };
}
