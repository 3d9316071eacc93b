/**
 * Room: which tensors a rank needs, in which type, and how they become GPU buffers. Here is what a rank holds;
 * weight_map.ts says where it comes from, weight_loader.ts loads it, weight_bytes.ts counts it beforehand.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import type { Device } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { loadNorm, type Norm } from '../layers/norm.js';
import { attentionKinds, type AttentionWeights, mlpKinds, type MlpWeights } from '../layers/weight_kinds.js';
import { mapSpecs, modelMap } from './model_map.js';
import type { RankSlice } from '../shape.js';
import { type LoadWeightsOptions, type VocabMatrix, WeightLoader } from './weight_loader.js';

/** A rank's slice of a layer. Vectors that aren't cut are whole. */
export interface LayerWeights {
  /** Of the layer in the model. */
  readonly index: number;
  readonly attention: HalfWeights<AttentionWeights>;
  readonly mlp: HalfWeights<MlpWeights>;
}

/** Of attention or the MLP, with the norms before and behind it. */
export interface HalfWeights<Weights> {
  readonly before: Norm | undefined;
  readonly weights: Weights;
  readonly behind: Norm | undefined;
}

export interface ModelWeights {
  readonly type: WeightType;
  readonly embedding: VocabMatrix | undefined;
  /** Layers of which the rank holds weights, ascending. */
  readonly layers: readonly LayerWeights[];
  /** Where the head is. */
  readonly norm: Norm | undefined;
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
  for (const { index, attention, mlp } of map.layers) {
    layers.push({
      index,
      attention: {
        before: await loadNorm(loader, attention.before),
        weights: await attentionKinds[attention.specs.kind].load(loader, attention.specs),
        behind: await loadNorm(loader, attention.behind),
      },
      mlp: {
        before: await loadNorm(loader, mlp.before),
        weights: await mlpKinds[mlp.specs.kind].load(loader, mlp.specs),
        behind: await loadNorm(loader, mlp.behind),
      },
    });
  }
  const norm = await loadNorm(loader, map.norm);
  const head = map.head === map.embedding ? embedding : await loader.vocab(map.head);
  return { type, embedding, layers, norm, head, bytes: loader.bytes, parameters: loader.parameters };
}
