import type { CompressionOptions } from './options.js';
import { sum } from '../../base/lists.js';

/** Entries that a head keeps of a prompt of `length` tokens on average, window included. */
export const capacity = ({ budget, window }: Pick<CompressionOptions, 'budget' | 'window'>, length: number): number =>
  Math.min(length, Math.max(window, Math.round(budget * length)));

/** The same beside the window. */
export const baseEntries = (options: Pick<CompressionOptions, 'budget' | 'window'>, length: number): number =>
  Math.max(0, capacity(options, length) - options.window);

/** Whether anything of such a prompt is evicted: not of one within the budget, nor of one within the window. */
export const isCompressed = (options: Pick<CompressionOptions, 'budget' | 'window'>, length: number): boolean =>
  capacity(options, length) < length;

/**
 * Kept entries in proportion to loads: integers from `least` to `most` that add up to `total` as far as these allow. What a bound takes
 * from a head or gives it goes to the others in proportion; what rounding leaves goes to the largest remainders, the first of equals.
 */
export function proportionalEntries(
  loads: readonly number[],
  total: number,
  { least, most }: { readonly least: number; readonly most: number },
): number[] {
  const wanted = Math.min(Math.max(total, least * loads.length), most * loads.length);
  const at = (scale: number): number[] => loads.map((load) => Math.min(most, Math.max(least, scale * load)));
  const smallest = Math.min(...loads.filter((load) => load > 0));
  let low = 0;
  let high = most / smallest;
  for (let i = 0; i < 100; i++) {
    const middle = (low + high) / 2;
    if (sum(at(middle)) < wanted) low = middle;
    else high = middle;
  }
  const shares = at(high);
  const entries = shares.map((share) => Math.floor(share + 1e-9));
  const order = shares
    .map((share, head) => ({ head, rest: share - entries[head]! }))
    .sort((a, b) => b.rest - a.rest || a.head - b.head);
  let left = wanted - sum(entries);
  // Heads without load only get what the others can't hold.
  for (let round = 0; left > 0; round++) {
    for (const { head } of order) {
      if (left === 0) break;
      if (entries[head]! >= most || (round === 0 && loads[head] === 0)) continue;
      entries[head]!++;
      left--;
    }
  }
  return entries;
}

/**
 * 'snap', 'static': entries beside the window by [layer][kv head] of the whole model, as the host knows them before a prompt ends.
 * 'ada' counts its own. Every head keeps at most the prompt.
 */
export function givenBudgets(
  options: CompressionOptions,
  { numLayers, numKvHeads }: { readonly numLayers: number; readonly numKvHeads: number },
  length: number,
): number[][] {
  const { policy, window, loads } = options;
  const base = baseEntries(options, length);
  if (policy !== 'static' || !loads) {
    return Array.from({ length: numLayers }, () => new Array<number>(numKvHeads).fill(base));
  }
  const kept = proportionalEntries(loads.flat(), numLayers * numKvHeads * capacity(options, length), {
    least: Math.min(window, length),
    most: length,
  });
  return loads.map((layer, at) => {
    const first = loads.slice(0, at).reduce((sum, { length: heads }) => sum + heads, 0);
    return layer.map((_, head) => kept[first + head]! - Math.min(window, length));
  });
}
