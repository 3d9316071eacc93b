import { loadFast } from '../../shaders/linear/fast/fast.js';
import type { WeightType } from '../../shaders/linear/pack.js';
import type { Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import type { ModelConfig } from './config/model_config.js';
import { Decoder } from './forward/decoder.js';
import type { Forward } from './forward/forward.js';
import { layerKinds } from './forward/layer_kinds.js';
import type { CacheOptions } from './layers/attention/cache.js';
import { loadModelWeights } from './weights/model_weights.js';
import { rankSlice } from './shape.js';
import type { LoadWeightsOptions } from './weights/weight_loader.js';
import type { World } from './layers/world.js';

/** A model's weights on a device, and the program that runs them. */
export interface DeviceModel {
  readonly type: WeightType;
  /** Bytes of the weights on the GPU. */
  readonly bytes: number;
  /** Numbers in the checkpoint tensors that were read. */
  readonly parameters: number;
  createForward(cache: CacheOptions): Forward;
}

/** Loads a rank's weights of any supported model. @throws as `loadModelWeights`. */
export async function loadWeights(
  device: Device,
  config: ModelConfig,
  reader: TensorReader,
  type: WeightType,
  world: World,
  options: LoadWeightsOptions = {},
): Promise<DeviceModel> {
  const slice = rankSlice(world.plan, world.rank, config);
  const weights = await loadModelWeights(device, config, reader, type, { ...options, slice });
  const kinds = await layerKinds(config);
  if (device.traits.fast) await loadFast();
  return { ...weights, createForward: (cache) => new Decoder(device, config, weights, cache, world, kinds) };
}
