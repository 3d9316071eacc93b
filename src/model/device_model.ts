import type { WeightType } from '../../shaders/linear/pack.js';
import type { Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import { cachesLatent, type ModelConfig } from './config/model_config.js';
import type { CacheOptions, Forward } from './forward/forward.js';
import { LlamaForward, type LlamaWeights } from './forward/llama.js';
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
  if (cachesLatent(config)) {
    // A part of its own, which other models needn't download.
    const { latentForward } = await import('./forward/latent_program.js');
    return { ...weights, createForward: (cache) => latentForward(device, config, weights, cache, world) };
  }
  return {
    ...weights,
    createForward: (cache) => new LlamaForward(device, config, weights as LlamaWeights, cache, world),
  };
}
