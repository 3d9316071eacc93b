/**
 * Room: which tensors a rank needs, in which type, and how they become GPU buffers. Here is what a rank holds;
 * weight_map.ts says where it comes from, weight_loader.ts loads it, weight_bytes.ts counts it beforehand.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import type { Device } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { type HalfMap, type LayerMap, type ModelMap, modelMap } from './model_map.js';
import type { RankSlice } from '../shape.js';
import { type LoadWeightsOptions, WeightLoader } from './weight_loader.js';
import type { Loaded } from './weight_map.js';

/** A rank's slice of a layer. Vectors that aren't cut are whole. */
export type LayerWeights = Loaded<LayerMap>;

/** Of attention or the MLP, with the norms before and behind it. */
export type HalfWeights<Weights> = Loaded<Omit<HalfMap<unknown>, 'weights'>> & { readonly weights: Weights };

/** A rank's slice of a model on a device. Tied tables of the same rows are one object. */
export interface ModelWeights extends Loaded<ModelMap> {
  readonly type: WeightType;
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
  const loader = new WeightLoader(device, reader, type, modelMap(config, options.slice), options);
  const loaded = await loader.load();
  return { ...loaded, type, bytes: loader.bytes, parameters: loader.parameters };
}
