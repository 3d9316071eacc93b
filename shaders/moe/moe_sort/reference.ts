/** For each expert, row * topK + slot of the (row, slot)s that chose it, in ascending order. */
export function pairsOf(ids: ArrayLike<number>, rows: number, topK: number, experts: number): number[][] {
  const lists: number[][] = Array.from({ length: experts }, () => []);
  for (let pair = 0; pair < rows * topK; pair++) lists[ids[pair]!]!.push(pair);
  return lists;
}
