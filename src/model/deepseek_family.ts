import type { WeightType } from '../../shaders/linear/pack.js';
import type { Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import { DeepseekForward } from './deepseek.js';
import type { DeepseekConfig } from './deepseek_config.js';
import { loadDeepseekWeights } from './deepseek_weights.js';
import type { DeviceModel } from './family.js';
import { rankSlice } from './shape.js';
import type { LoadWeightsOptions } from './weight_loader.js';
import type { World } from './world.js';

/** `loadWeights` for latent attention and mixtures of experts: a part of its own, which other models needn't download. */
export async function loadDeepseek(
  device: Device,
  config: DeepseekConfig,
  reader: TensorReader,
  type: WeightType,
  world: World,
  options: LoadWeightsOptions,
): Promise<DeviceModel> {
  const slice = rankSlice(world.plan, world.rank, config);
  const weights = await loadDeepseekWeights(device, config, reader, type, { ...options, slice });
  return { ...weights, createForward: (cache) => new DeepseekForward(device, config, weights, cache, world) };
}
