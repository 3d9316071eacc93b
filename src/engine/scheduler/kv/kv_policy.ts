import { nth, sum } from '../../../base/lists.js';
import type { SchedulerConfig } from '../config.js';
import type { Sequence } from '../sequence.js';
import { type Client, nextInTurn } from '../priority.js';
import type { WorkList } from '../iteration.js';
import type { RankState } from '../rank_state.js';
import type { ContextPolicy, Move } from '../routing.js';
import type { WaitingQueue } from '../waiting_queue.js';

/** Steps that a better balance is taken to last for, at most: others come and go. */
export const LASTING = 64;
/** Attending to a token in one step costs 1: reading it, sending it over the host and writing it costs so much. */
export const MOVING = 8;
/** Loads that differ by less are left alone. */
const SLACK = 0.1;

/**
 * Pools that only keep caches (token parallelism): the same ranks compute all rows. A sequence is placed when it can start, where
 * attention is least for the pool's share; running ones are moved where the balance would otherwise be bad.
 */
export class KvPolicy implements ContextPolicy {
  /** @param moves false where caches can't be copied block by block: heads have blocks of their own, or several ranks parts of a sequence */
  constructor(private readonly moves: boolean) {}

  static of({ shiftsSlots, eviction }: Pick<SchedulerConfig, 'shiftsSlots' | 'eviction'>): KvPolicy {
    return new KvPolicy(shiftsSlots && eviction === undefined);
  }

  route(waiting: WaitingQueue, ranks: readonly RankState[]): void {
    // Whoever hasn't started is placed anew: another pool may have room by now.
    for (const rank of ranks) for (const sequence of rank.unbindPending()) waiting.insert(sequence);
    const placed = ranks.map(() => ({ blocks: [] as number[], sequences: 0, tokens: 0 }));
    const ready = ({ outstanding, hasPrompt }: Sequence): boolean => outstanding === 0 && hasPrompt;
    const given = new Map<Client, number>();
    for (;;) {
      const next = nextInTurn(waiting.firsts(ready), given);
      if (!next) return;
      const pools = ranks.flatMap((rank, index) => {
        const { blocks, sequences, tokens } = nth(placed, index);
        const room =
          rank.numFreeSlots > sequences && rank.canEverHold(next) && rank.wouldAdmit(next, blocks, sequences);
        if (!room) return [];
        const { limits } = rank;
        return { index, weight: limits.numBlocks, attended: rank.attended + tokens, cached: rank.cachedTokens(next) };
      });
      const index = placeSequence(pools, next.target);
      // None overtakes the first.
      if (index === undefined) return;
      const taken = nth(placed, index);
      for (const [lane, count] of nth(ranks, index).demand(next).fresh.entries()) {
        taken.blocks[lane] = (taken.blocks[lane] ?? 0) + count;
      }
      taken.sequences++;
      taken.tokens += next.target;
      waiting.remove(next);
      given.set(next.client, (given.get(next.client) ?? 0) + 1);
      nth(ranks, index).bind(next);
    }
  }

  /**
   * Begins a move where one helps; runs it as soon as nothing of its sequence is in flight. One at a time.
   * @param work of each rank, in which nothing is planned yet
   * @param begins false only ends the one that was begun
   */
  move(ranks: readonly RankState[], work: readonly WorkList[], begins = true): void {
    const leaving = ranks.flatMap((rank) => rank.running.find(({ leavingFor }) => leavingFor >= 0) ?? [])[0];
    const sequence = leaving ?? (begins && this.moves ? this.#begin(ranks) : undefined);
    if (!sequence || sequence.outstanding > 0) return;
    const target = nth(ranks, sequence.leavingFor);
    sequence.leavingFor = -1;
    if (target.canTakeIn(sequence)) target.takeIn(sequence, nth(ranks, sequence.rank), nth(work, target.index));
    // The room is gone: it goes on where it is, and its row is made again.
    else nth(work, sequence.rank).tables.push(sequence);
  }

  #begin(ranks: readonly RankState[]): Sequence | undefined {
    const pools = ranks.map((rank) => ({
      weight: rank.limits.numBlocks,
      attended: rank.attended,
      blocks: rank.limits.numBlocks,
      freeBlocks: rank.pool.numFree,
      freeSlots: rank.numFreeSlots,
      growing: rank.numDecoding,
    }));
    const movable = ranks.flatMap((rank, pool) =>
      rank.running.flatMap((sequence) => {
        const remaining = sequence.maxTokens - sequence.sampled;
        if (sequence.status !== 'decode' || remaining <= 0 || sequence.shiftsTo >= 0) return [];
        const blocks = sequence.blocks.length;
        return { sequence, pool, tokens: sequence.computed, blocks, most: rank.mostBlocks(sequence), remaining };
      }),
    );
    const move = chooseMove(pools, movable);
    if (!move) return undefined;
    const { sequence } = move.sequence;
    sequence.leavingFor = move.to;
    return sequence;
  }
}

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
  const weights = sum(pools.map(({ weight }) => weight));
  let best: number | undefined;
  let least = Infinity;
  const idle = pools.filter(({ attended }) => attended === 0);
  for (const { index, weight, attended, cached } of idle.length > 0 ? idle : pools) {
    const cost = (attended + tokens) / weight + (tokens - cached) / weights;
    if (cost < least) [best, least] = [index, cost];
  }
  return best;
}

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

export interface Movable {
  readonly pool: number;
  readonly tokens: number;
  readonly blocks: number;
  /** Blocks that it has at its longest. */
  readonly most: number;
  /** Tokens that it may still generate. */
  readonly remaining: number;
}

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

const hasRoom = (pool: PoolLoad, { blocks, most }: Movable): boolean =>
  pool.freeSlots > 0 && pool.blocks >= most && pool.freeBlocks - blocks > pool.growing;

function bestTarget(pools: readonly PoolLoad[], sequence: Movable): number | undefined {
  let best: number | undefined;
  for (const [index, pool] of pools.entries()) {
    if (index === sequence.pool || !hasRoom(pool, sequence)) continue;
    if (best === undefined || load(pool, sequence.tokens) < load(nth(pools, best), sequence.tokens)) best = index;
  }
  return best;
}

/** From a pool that lacks blocks the smallest sequence: it is there soonest. */
function relief<M extends Movable>(pools: readonly PoolLoad[], movable: readonly M[]): Move<M> | undefined {
  let best: Move<M> | undefined;
  for (const sequence of movable) {
    // One that ends soon gives its blocks back by itself.
    if (!lacks(nth(pools, sequence.pool)) || sequence.remaining <= sequence.blocks) continue;
    if (best && sequence.tokens >= best.sequence.tokens) continue;
    const to = bestTarget(pools, sequence);
    if (to !== undefined) best = { sequence, to };
  }
  return best;
}

function balance<M extends Movable>(pools: readonly PoolLoad[], movable: readonly M[]): Move<M> | undefined {
  const busiest = pools.reduce((most, pool, index) => (load(pool) > load(nth(pools, most)) ? index : most), 0);
  const from = nth(pools, busiest);
  const weights = sum(pools.map(({ weight }) => weight));
  const even = sum(pools.map(({ attended }) => attended)) / weights;
  if (load(from) <= even * (1 + SLACK)) return undefined;
  let best: Move<M> | undefined;
  let most = 0;
  for (const sequence of movable) {
    if (sequence.pool !== busiest) continue;
    const to = bestTarget(pools, sequence);
    if (to === undefined) continue;
    const { tokens, remaining } = sequence;
    const after = Math.max(load(from, -tokens), load(nth(pools, to), tokens));
    // In tokens that all pools together attend to in the time.
    const saved = (load(from) - after) * weights * Math.min(remaining, LASTING);
    const worth = saved - MOVING * tokens;
    if (worth > most) [best, most] = [{ sequence, to }, worth];
  }
  return best;
}
