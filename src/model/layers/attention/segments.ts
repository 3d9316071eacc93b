import type { Segments } from '../../../../shaders/linear/segments.js';
import type { PagedAttention } from '../../config/model_config.js';

/**
 * The attention segments of o's contraction, which plans hand out: a kv head (or several, `GqaConfig.segments`) with its query heads, or
 * with a latent cache 8 groups of query heads, as even as whole heads allow.
 */
export const attentionSegments = (attention: PagedAttention): { readonly modelInFeatures: number } & Segments =>
  attention.kind === 'gqa'
    ? { modelInFeatures: attention.heads * attention.headDim, total: attention.segments ?? attention.kvHeads, align: 8 }
    : { modelInFeatures: attention.heads * attention.vHeadDim, total: 8, align: attention.vHeadDim };
