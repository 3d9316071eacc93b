/** What a KV pool holds and has room for. Blocks are of one size everywhere. */
export interface PoolLoad {
  /** Its share of the work, in any unit. */
  readonly weight: number;
  /** Tokens that its sequences attend to in a step. */
  readonly attended: number;
  readonly blocks: number;
  readonly freeBlocks: number;
  readonly freeSlots: number;
  /** Sequences that need a block each, sooner or later within as many steps as a block has tokens. */
  readonly growing: number;
}

/** A sequence that could go to another pool. */
export interface Movable {
  readonly pool: number;
  readonly tokens: number;
  readonly blocks: number;
  /** Blocks that it has at its longest. */
  readonly most: number;
  /** Tokens that it may still generate. */
  readonly remaining: number;
}

export interface Move<M extends Movable = Movable> {
  readonly sequence: M;
  readonly to: number;
}

/** Steps that a better balance is taken to last for, at most: others come and go. */
const LASTING = 64;
/** Attending to a token in one step costs 1: reading it, sending it over the host and writing it costs so much. */
const MOVING = 8;
/** Loads that differ by less are left alone. */
const SLACK = 0.1;

/**
 * The one move that helps most; undefined when none does.
 *
 * A pool that runs out of blocks within a block's worth of steps, where another wouldn't, gives a sequence away: otherwise one would
 * have to be computed again. Otherwise a sequence leaves the pool with most attention for its share, where the steps that become
 * shorter are worth the move.
 */
export function chooseMove<M extends Movable>(pools: readonly PoolLoad[], movable: readonly M[]): Move<M> | undefined {
  return relief(pools, movable) ?? balance(pools, movable);
}

const load = ({ attended, weight }: PoolLoad, more = 0): number => (attended + more) / weight;

const lacks = ({ freeBlocks, growing }: PoolLoad): boolean => freeBlocks < growing;

/** Whether a pool could take a sequence in and still not run out soon. */
const hasRoom = (pool: PoolLoad, { blocks, most }: Movable): boolean =>
  pool.freeSlots > 0 && pool.blocks >= most && pool.freeBlocks - blocks > pool.growing;

/** The pool that would have least to do with the sequence in it. */
function bestTarget(pools: readonly PoolLoad[], sequence: Movable): number | undefined {
  let best: number | undefined;
  for (const [index, pool] of pools.entries()) {
    if (index === sequence.pool || !hasRoom(pool, sequence)) continue;
    if (best === undefined || load(pool, sequence.tokens) < load(pools[best]!, sequence.tokens)) best = index;
  }
  return best;
}

/** From a pool that lacks blocks the smallest sequence: it is there soonest. */
function relief<M extends Movable>(pools: readonly PoolLoad[], movable: readonly M[]): Move<M> | undefined {
  let best: Move<M> | undefined;
  for (const sequence of movable) {
    // One that ends soon gives its blocks back by itself.
    if (!lacks(pools[sequence.pool]!) || sequence.remaining <= sequence.blocks) continue;
    if (best && sequence.tokens >= best.sequence.tokens) continue;
    const to = bestTarget(pools, sequence);
    if (to !== undefined) best = { sequence, to };
  }
  return best;
}

/** From the busiest pool the sequence whose move is worth most. */
function balance<M extends Movable>(pools: readonly PoolLoad[], movable: readonly M[]): Move<M> | undefined {
  const busiest = pools.reduce((most, pool, index) => (load(pool) > load(pools[most]!) ? index : most), 0);
  const from = pools[busiest]!;
  const weights = pools.reduce((sum, { weight }) => sum + weight, 0);
  const even = pools.reduce((sum, { attended }) => sum + attended, 0) / weights;
  if (load(from) <= even * (1 + SLACK)) return undefined;
  let best: Move<M> | undefined;
  let most = 0;
  for (const sequence of movable) {
    if (sequence.pool !== busiest) continue;
    const to = bestTarget(pools, sequence);
    if (to === undefined) continue;
    const { tokens, remaining } = sequence;
    const after = Math.max(load(from, -tokens), load(pools[to]!, tokens));
    // In tokens that all pools together attend to in the time.
    const saved = (load(from) - after) * weights * Math.min(remaining, LASTING);
    const worth = saved - MOVING * tokens;
    if (worth > most) [best, most] = [{ sequence, to }, worth];
  }
  return best;
}
