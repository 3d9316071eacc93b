import type { WeightType } from '../../shaders/linear/pack.js';
import type { ModelWork } from '../placement/index.js';
import { isDeepseek, type ModelConfig } from './config.js';
import type { KvType } from './kv_cache.js';
import { modelSizes } from './model_sizes.js';
import { modelShape } from './shape.js';

/** Embedding, the norm and projection of the head, and two for sampling. */
const STEP_DISPATCHES = 5;

/** What the planner asks about a model whose weights are kept as `type`. */
export function modelWork(config: ModelConfig, type: WeightType, kvType: KvType): ModelWork {
  const common = {
    shape: modelShape(config),
    sizes: modelSizes(config, type, kvType),
    stepDispatches: STEP_DISPATCHES,
  };
  if (isDeepseek(config)) {
    const { kvLoraRank, qkRopeHeadDim, moe } = config;
    return {
      ...common,
      expertsPerToken: moe?.expertsPerToken ?? 0,
      queryBytes: (kvLoraRank + qkRopeHeadDim) * 4,
      newKvBytes: 0,
      stateBytes: (kvLoraRank + 2) * 4,
    };
  }
  const { headDim } = config;
  return {
    ...common,
    expertsPerToken: 0,
    queryBytes: headDim * 4,
    newKvBytes: 2 * headDim * 4,
    stateBytes: (headDim + 2) * 4,
  };
}
