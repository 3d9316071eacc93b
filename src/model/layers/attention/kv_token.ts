import { kvCacheBytes } from '../../../../shaders/cache/kv_cache.js';
import { latentCacheBytes } from '../../../../shaders/cache/latent_cache.js';
import type { PagedAttention } from '../../config/model_config.js';
import type { KvType } from './kv_cache.js';

/** Bytes that a token takes in a layer's cache, of one kv head or of the latent. */
export const kvTokenBytes = (attention: PagedAttention, kvType: KvType): number =>
  attention.kind === 'gqa'
    ? 2 * kvCacheBytes({ kvHeads: 1, headDim: attention.headDim, kvType, block: 1 }, 1)
    : latentCacheBytes({ ...attention, kvType, block: 1 }, 1);
