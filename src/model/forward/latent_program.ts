import type { Device } from '../../gpu/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { DeepseekForward, type DeepseekWeights } from './deepseek.js';
import type { CacheOptions, Forward } from './forward.js';
import type { ModelWeights } from '../weights/model_weights.js';
import type { World } from '../layers/world.js';

/** The forward program of latent attention and mixtures of experts. */
export const latentForward = (
  device: Device,
  config: ModelConfig,
  weights: ModelWeights,
  cache: CacheOptions,
  world: World,
): Forward => new DeepseekForward(device, config, weights as DeepseekWeights, cache, world);
