import type { ModelShape } from '../plan.js';
import type { ModelSizes } from '../memory.js';

/** Sizes of a model of this shape with 1-byte weights and heads of 64, MLA's latent 128 wide; expert layers all but the first. */
export function sizesOf(shape: ModelShape, options: Partial<ModelSizes> = {}): ModelSizes {
  const { hiddenSize, segmentHeads, mlpSegments, numExperts, latent } = shape;
  return {
    layers: Array.from({ length: shape.numLayers }, (_, layer) => ({
      attentionSegments: segmentHeads.map((heads) => hiddenSize * 64 * (latent ? 3 * heads : 2 * heads + 2)),
      attentionShared: hiddenSize * (latent ? 128 + 4 : 4),
      mlpSegments: mlpSegments.map((columns) => 3 * hiddenSize * columns),
      mlpShared: hiddenSize * 4,
      expert: numExperts > 0 && layer > 0 ? 3 * hiddenSize * 64 : 0,
      kvToken: latent ? 128 : 128 * 2,
    })),
    embeddingRow: hiddenSize,
    headRow: hiddenSize,
    tied: false,
    finalNorm: hiddenSize * 4,
    ...options,
  };
}
