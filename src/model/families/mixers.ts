import type { GgufMetadata } from '../config/config_reader.js';
import { countRange } from './common_keys.js';

/**
 * Of models whose layers have attention or another mixer by GGUF metadata: kv heads, and each layer's type in the words of config.json.
 * `head_count_kv` has a 0 for each layer without attention; a file without such a list has attention in all.
 */
export function ggufMixers<Type extends string>(
  metadata: GgufMetadata,
  other: Type,
  attention: Type,
): { readonly kvHeads: number; readonly types: Type[] } {
  const key = 'attention.head_count_kv';
  const counts = metadata.raw(key);
  const list = Array.isArray(counts) ? (counts as number[]) : [];
  const kvHeads = list.find((count) => count > 0) ?? metadata.integer(key, countRange);
  if (list.some((count) => count !== 0 && count !== kvHeads))
    throw metadata.unsupported(key, counts, 'layers with attention must be alike');
  const length = metadata.integer('block_count', countRange);
  return { kvHeads, types: Array.from({ length }, (_, layer) => (list[layer] === 0 ? other : attention)) };
}
