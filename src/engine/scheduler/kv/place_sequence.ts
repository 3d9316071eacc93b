/** A KV pool that has room for a new sequence. */
export interface PlacePool {
  readonly index: number;
  /** Its share of the work, in any unit. */
  readonly weight: number;
  /** Tokens that its sequences attend to in a step, those that are about to start included. */
  readonly attended: number;
  /** Tokens of the new sequence that it has cached. */
  readonly cached: number;
}

/**
 * The pool for a new sequence of `tokens` tokens: where attention, for the pool's share, is least with it. Tokens that must be computed
 * count once for all pools together, so that of pools about equal the one with its beginning in the cache gets it. Pools that have
 * nothing to attend to come first: with as many sequences as pools, every rank works.
 * @returns undefined without pools
 */
export function placeSequence(pools: readonly PlacePool[], tokens: number): number | undefined {
  const weights = pools.reduce((sum, { weight }) => sum + weight, 0);
  let best: number | undefined;
  let least = Infinity;
  const idle = pools.filter(({ attended }) => attended === 0);
  for (const { index, weight, attended, cached } of idle.length > 0 ? idle : pools) {
    const cost = (attended + tokens) / weight + (tokens - cached) / weights;
    if (cost < least) [best, least] = [index, cost];
  }
  return best;
}
