import type { NormConfig } from '../config/model_config.js';
import type { SamplesConfig } from '../config/sound_config.js';
import type { VisionConfig } from '../config/vision_config.js';
import { type NormSpec, normSpec, plainNorm } from '../layers/norm.js';
import { wholeMatrix, wholeVector } from '../weights/weight_map.js';

export type EmbedderSpecs = ReturnType<typeof embedderSpecs>;

/** Of LayerNorms, from torch's class. */
const EPS = 1e-5;

/**
 * What makes rows where there is no encoder: a norm without weights and the projection [textWidth, hidden]. Patches are embedded before:
 * placed(behind(matrix(before(pixels)) + bias) + places), by a matrix [hidden, 3 * patch * patch].
 * @param textWidth hidden size of the decoder
 */
export function embedderSpecs(of: VisionConfig | SamplesConfig, textWidth: number) {
  if ('frame' in of) {
    const norm = plainNorm({ kind: 'rms', eps: of.eps }, 'sound.norm', of.frame);
    return { patches: undefined, norm, project: wholeMatrix('sound.project', textWidth, of.frame) };
  }
  const { patch, tower } = of;
  const { hiddenSize: hidden } = tower;
  const width = 3 * patch * patch;
  const norm = (at: number, length: number, eps = EPS): NormSpec => {
    const config: NormConfig = { kind: 'layer', eps, bias: true };
    return normSpec(config, `vision.patch_norm.${at}`, `vision.patch_norm.${at}`, length);
  };
  return {
    patches: {
      // Pixels are given from -1 to 1, the model has them from 0 to 1: their variance is a fourth.
      before: norm(1, width, 4 * EPS),
      matrix: wholeMatrix('vision.patches', hidden, width),
      bias: wholeVector('vision.patches_bias', 'vision.patches.bias', hidden),
      behind: norm(2, hidden),
      placed: norm(3, hidden),
    },
    norm: plainNorm(tower.norm, 'vision.norm', hidden),
    project: wholeMatrix('vision.project', textWidth, hidden),
  };
}
