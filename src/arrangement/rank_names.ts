import type { LayerPlacement } from './types.js';

/**
 * Names for each layer's ranks that spread copies evenly over ranks: which rank is which makes no difference to a layer's peak,
 * but a rank's memory holds its copies of all layers.
 *
 * @param copies [layer][rank]
 * @param memory copies a rank may hold
 * @returns [layer][rank]: the rank's new name
 */
export function evenNames(copies: readonly (readonly number[])[], memory: number): number[][] {
  const ranks = copies[0]!.length;
  const used = new Array<number>(ranks).fill(0);
  const names = copies.map(() => new Array<number>(ranks).fill(0));
  const spread = (layer: number): number => Math.max(...copies[layer]!) - Math.min(...copies[layer]!);
  const order = [...copies.keys()].sort((a, b) => spread(b) - spread(a) || a - b);
  for (const layer of order) {
    const row = copies[layer]!;
    const fullest = [...row.keys()].sort((a, b) => row[b]! - row[a]! || a - b);
    const emptiest = [...used.keys()].sort((a, b) => used[a]! - used[b]! || a - b);
    for (const [i, rank] of fullest.entries()) {
      names[layer]![rank] = emptiest[i]!;
      used[emptiest[i]!]! += row[rank]!;
    }
  }
  while (Math.max(...used) > memory && exchange(copies, names, used));
  return names;
}

/** Exchanges the name of the fullest rank with another's in the layer where that evens them out most. */
function exchange(copies: readonly (readonly number[])[], names: readonly number[][], used: number[]): boolean {
  const fullest = used.indexOf(Math.max(...used));
  let best: { readonly row: number[]; readonly a: number; readonly b: number; readonly less: number } | undefined;
  let least = used[fullest]!;
  for (const [layer, row] of names.entries()) {
    const a = row.indexOf(fullest);
    for (const [b, name] of row.entries()) {
      const less = copies[layer]![a]! - copies[layer]![b]!;
      const fuller = Math.max(used[fullest]! - less, used[name]! + less);
      if (less > 0 && fuller < least) [best, least] = [{ row, a, b, less }, fuller];
    }
  }
  if (!best) return false;
  const { row, a, b, less } = best;
  used[fullest]! -= less;
  used[row[b]!]! += less;
  [row[a], row[b]] = [row[b]!, row[a]!];
  return true;
}

export const rename = (heads: LayerPlacement, names: readonly number[]): LayerPlacement =>
  heads.map((copies) =>
    copies.map(({ rank, share }) => ({ rank: names[rank]!, share })).sort((a, b) => a.rank - b.rank),
  );
