import type { WeightType } from '../../shaders/linear/pack.js';
import type { Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import { isDeepseek, type ModelConfig } from './config.js';
import type { CacheOptions, Forward } from './forward.js';
import { LlamaForward } from './llama.js';
import { loadLlamaWeights } from './llama_weights.js';
import { rankSlice } from './shape.js';
import type { LoadWeightsOptions } from './weight_loader.js';
import type { World } from './world.js';

/** A model's weights on a device, and the program that runs them. */
export interface DeviceModel {
  readonly type: WeightType;
  /** Bytes of the weights on the GPU. */
  readonly bytes: number;
  /** Numbers in the checkpoint tensors that were read. */
  readonly parameters: number;
  createForward(cache: CacheOptions): Forward;
}

/** Loads a rank's weights of any supported model. @throws as the family's loader does. */
export async function loadWeights(
  device: Device,
  config: ModelConfig,
  reader: TensorReader,
  type: WeightType,
  world: World,
  options: LoadWeightsOptions = {},
): Promise<DeviceModel> {
  if (isDeepseek(config)) {
    const { loadDeepseek } = await import('./deepseek_family.js');
    return loadDeepseek(device, config, reader, type, world, options);
  }
  const slice = rankSlice(world.plan, world.rank, config);
  const weights = await loadLlamaWeights(device, config, reader, type, { ...options, slice });
  return { ...weights, createForward: (cache) => new LlamaForward(device, config, weights, cache, world) };
}
