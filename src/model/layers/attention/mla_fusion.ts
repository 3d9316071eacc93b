import { decodesBytes } from '../../../../shaders/linear/fast/fast.js';
import { linearGroupedMerge } from '../../../../shaders/linear/linear_grouped_merge/index.js';
import { mlaAbsorbAppend } from '../../../../shaders/rope/mla_absorb_append/index.js';
import { canUp, mlaUpAppend } from '../../../../shaders/rope/mla_up_append/index.js';
import type { MlaConfig } from '../../config/model_config.js';
import type { Matrix } from '../../weights/matrix.js';
import { fuses, isLone, isOwn } from '../fusion.js';
import type { StageContext } from '../layer.js';
import { isAdapted, type StageRows } from '../rows.js';
import type { SpreadAttention } from './spread_attention.js';

/**
 * What of latent attention is done in one with what is before or behind it: whether q is absorbed, and the latent appended, in one, after
 * q's up-projection or with it, which must be multiplied exactly; and of a lone row, chunks merged where values come from.
 */
export function fusedMla({ device }: StageContext, rows: StageRows, attention: SpreadAttention) {
  const own = isOwn(attention, rows);
  return {
    appends: (absorb: Matrix): boolean => own && !isAdapted(rows, absorb) && fuses(device, mlaAbsorbAppend),
    ups: (config: MlaConfig, qUp: Matrix, absorb: Matrix): boolean => {
      const { type, shards, inFeatures } = qUp;
      return (
        own &&
        !isAdapted(rows, qUp, absorb) &&
        shards.length === 1 &&
        !decodesBytes(device.traits, type) &&
        canUp({ ...config, loraRank: inFeatures, absorbType: absorb.type }, device.traits) &&
        fuses(device, mlaUpAppend)
      );
    },
    merges: (valueUp: Matrix): boolean =>
      isLone(attention, rows) && !isAdapted(rows, valueUp) && fuses(device, linearGroupedMerge),
  };
}
