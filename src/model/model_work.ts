import type { WeightType } from '../../shaders/linear/pack.js';
import { partialsPerSlot } from '../../shaders/sampling/params.js';
import { alignUp } from '../base/math.js';
import type { CargoWidths, ModelWork } from '../placement/index.js';
import { attentionOf, expertsOf, type ModelConfig } from './config/model_config.js';
import type { KvType } from './layers/attention/cache.js';
import { modelSizes } from './model_sizes.js';
import { activationStride, queryRow, queryStride } from './layers/roles.js';
import { modelShape } from './shape.js';

/** Embedding, the norm and projection of the head, and two for sampling. */
const STEP_DISPATCHES = 5;

/** What the planner asks about a model whose weights are kept as `type`. Exchanges are those of the first layer, where layers differ in their heads. */
export function modelWork(config: ModelConfig, type: WeightType, kvType: KvType): ModelWork {
  const common = {
    shape: modelShape(config),
    sizes: modelSizes(config, type, kvType),
    stepDispatches: STEP_DISPATCHES,
  };
  const { segmentHeads } = common.shape;
  const headsOf = (segments: readonly number[]): number =>
    segments.reduce((sum, segment) => sum + segmentHeads[segment]!, 0);
  const attention = attentionOf(config);
  const expertsPerToken = expertsOf(config)?.expertsPerToken ?? 0;
  if (attention.kind === 'mla') {
    const { kvLoraRank, qkRopeHeadDim } = attention;
    return {
      ...common,
      expertsPerToken,
      widths: {
        ...widths(config, headsOf, expertsPerToken),
        queries: (groups, withTokens) =>
          queryStride(groups, (segments) =>
            alignUp((headsOf(segments) + (withTokens ? 1 : 0)) * (kvLoraRank + qkRopeHeadDim), 32),
          ) * 4,
        state: (kvLoraRank + 2) * 4,
        attended: (segments) => activationStride(headsOf(segments) * kvLoraRank) * 4,
      },
    };
  }
  const { headDim } = attention;
  return {
    ...common,
    expertsPerToken,
    widths: {
      ...widths(config, headsOf, expertsPerToken),
      queries: (groups) =>
        queryStride(groups, (segments) => queryRow(attention, headsOf(segments), segments.length)) * 4,
      state: (headDim + 2) * 4,
      attended: (segments) => activationStride(headsOf(segments) * headDim) * 4,
      ...(attention.qkNorm === 'whole' && { squares: alignUp(2, 64) * 4 }),
    },
  };
}

/** Of what doesn't depend on the kind of attention, as the forward program lays it out. */
function widths(
  { hiddenSize }: ModelConfig,
  heads: CargoWidths['heads'],
  expertsPerToken: number,
): Omit<CargoWidths, 'queries' | 'state' | 'attended'> {
  const hidden = activationStride(hiddenSize) * 4;
  return {
    heads,
    segment: alignUp(hiddenSize, 64) * 4,
    hidden,
    expertIds: expertsPerToken * 4,
    experts: expertsPerToken * hidden,
    candidates: (rows) => partialsPerSlot(rows) * 8,
  };
}
