import { halfFromFloat } from '../../../../shaders/linear/float16.js';
import { keyUnit, type KvShape, valueUnit } from '../../../../shaders/cache/kv_cache.js';
import { ceilDiv } from '../../../base/math.js';

/**
 * Lays keys or values out as the cache's blocks.
 * @param tokens how many of them
 * @param present f32 [kv_heads][at least `tokens`][head_dim]
 * @returns [block][...] as the cache has it; what is past the last token is zero
 */
export function cacheBlocks(
  which: 'key' | 'value',
  present: Float32Array,
  tokens: number,
  shape: KvShape,
): Uint8Array<ArrayBuffer> {
  const { kvHeads, headDim, block, kvType } = shape;
  const unitOf = which === 'key' ? keyUnit : valueUnit;
  const length = present.length / kvHeads / headDim;
  const elements = ceilDiv(tokens, block) * block * kvHeads * headDim;
  const out = kvType === 'f32' ? new Float32Array(elements) : new Uint16Array(elements);
  const stored = kvType === 'f32' ? (value: number) => value : halfFromFloat;
  for (let head = 0; head < kvHeads; head++) {
    for (let token = 0; token < tokens; token++) {
      const from = (head * length + token) * headDim;
      for (let unit = 0; unit < headDim / 4; unit++) {
        const to = unitOf(shape, Math.floor(token / block), head, unit, token % block) * 4;
        for (let lane = 0; lane < 4; lane++) out[to + lane] = stored(present[from + unit * 4 + lane]!);
      }
    }
  }
  return new Uint8Array(out.buffer);
}
