import type { WeightType } from '../../shaders/linear/pack.js';
import { unsupportedError } from '../base/errors.js';
import type { Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import { isDeepseek, type ModelConfig } from './config.js';
import type { CacheOptions, Forward } from './forward.js';
import { LlamaForward } from './llama.js';
import { loadLlamaWeights } from './llama_weights.js';
import type { LoadWeightsOptions } from './weight_loader.js';

/** A model's weights on a device, and the program that runs them. */
export interface DeviceModel {
  readonly type: WeightType;
  /** Bytes of the weights on the GPU. */
  readonly bytes: number;
  /** Numbers in the checkpoint tensors that were read. */
  readonly parameters: number;
  createForward(cache: CacheOptions): Forward;
}

/** Loads the weights of any supported model. @throws as the family's loader does. */
export async function loadWeights(
  device: Device,
  config: ModelConfig,
  reader: TensorReader,
  type: WeightType,
  options: LoadWeightsOptions = {},
): Promise<DeviceModel> {
  if (isDeepseek(config)) {
    throw unsupportedError(`${config.architecture}: this model's configuration is read, but running it isn't supported yet`);
  }
  const weights = await loadLlamaWeights(device, config, reader, type, options);
  return { ...weights, createForward: (cache) => new LlamaForward(device, config, weights, cache) };
}
