import { parseSiglip, tokensOf } from '../config/vision_config.js';
import { defineFamily } from './family.js';
import { llama } from './llama.js';

/** SmolVLM, SmolVLM2 and Idefics 3: a Llama beside a SigLIP encoder of tiles, whose patches are joined and projected. */
export const idefics3 = defineFamily({
  ...llama,
  vision(config) {
    const vision = config.optionalObject('vision_config');
    if (!vision) return config.missing('vision_config');
    // The class's defaults, with which files leave keys out.
    const defaults = { hidden_size: 1152, num_attention_heads: 16, patch_size: 32 };
    const merge = config.optionalInteger('scale_factor', { min: 1, max: 16 }) ?? 2;
    const tokens = tokensOf(config, ['image_token_id'], 128257);
    return { kind: 'tiles', ...tokens, ...parseSiglip(vision, () => merge, defaults) };
  },
  mmproj: (clip, idOf) => ({
    image_token_id: idOf('<image>'),
    scale_factor: clip.optionalInteger('projector.scale_factor'),
  }),
});
