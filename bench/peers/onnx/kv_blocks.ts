import { kvCacheBytes, keyUnit, type KvShape, valueUnit } from '../../../shaders/cache/kv_cache.js';
import { writeKvVector } from '../../../shaders/cache/kv_vector.js';
import { ceilDiv } from '../../../src/base/math.js';

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
  const words = kvCacheBytes(shape, ceilDiv(tokens, block)) / 4;
  const out = kvType === 'f32' ? new Float32Array(words) : new Uint32Array(words);
  for (let head = 0; head < kvHeads; head++) {
    for (let token = 0; token < tokens; token++) {
      const from = (head * length + token) * headDim;
      const at = (unit: number): number => unitOf(shape, Math.floor(token / block), head, unit, token % block);
      writeKvVector(kvType, out, at, present.subarray(from, from + headDim));
    }
  }
  return new Uint8Array(out.buffer);
}
