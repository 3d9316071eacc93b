import { internalError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import type { BlockRun } from '../../placement/pools.js';
import { laneBlocks, laneOf, type RankLimits, type SchedulerConfig, type WindowLimits } from './config.js';
import type { PrefixCache } from './prefix_cache.js';
import { NO_WINDOWS, type Sequence } from './sequence.js';

interface Contents {
  has(block: number): boolean;
  forget(block: number): void;
}

/**
 * A rank's KV blocks, slots, or copies of states: free, held (a block may be held by several), or kept: held by nobody but with content
 * that the prefix cache knows. Kept ones count as free; the one unused for longest is given out first, after all empty ones.
 *
 * Blocks are of lanes, one after the other. A sequence that several ranks split takes each block from the lane of its chunk.
 */
export class Pool {
  readonly #holders: Int32Array;
  readonly #laneOf: readonly number[];
  readonly #lanes: readonly Lane[];

  /**
   * @param sizes blocks of each lane
   * @param contents what the prefix cache knows; left out where it knows nothing
   * @param lowestFirst of a lane the lowest empty one is given out, as of slots: a step computes rows up to the highest in use
   */
  constructor(
    sizes: readonly number[],
    private readonly contents?: Contents,
    private readonly lowestFirst = false,
  ) {
    this.#laneOf = sizes.flatMap((size, lane) => new Array<number>(size).fill(lane));
    this.#holders = new Int32Array(this.size);
    this.#lanes = sizes.map(() => ({ empty: [], kept: new Set<number>() }));
    for (let block = this.size - 1; block >= 0; block--) this.#lane(this.laneOf(block)).empty.push(block);
  }

  get size(): number {
    return this.#laneOf.length;
  }

  get numFree(): number {
    return sum(this.#lanes.map(freeOf));
  }

  freeIn(lane: number): number {
    return freeOf(this.#lane(lane));
  }

  laneOf(block: number): number {
    return this.#laneOf[block]!;
  }

  holders(block: number): number {
    return this.#holders[block]!;
  }

  #lane(lane: number): Lane {
    return this.#lanes[lane]!;
  }

  /** A block for one holder. @throws SplitkvError `internal` when none is free: ask `freeIn` first. */
  allocate(lane = 0): number {
    const { empty, kept } = this.#lane(lane);
    let block = empty.pop();
    if (block === undefined) {
      const oldest = kept.values().next();
      if (oldest.done) throw internalError(`all blocks of lane ${lane} are held`);
      block = oldest.value;
      kept.delete(block);
      this.contents?.forget(block);
    }
    this.#holders[block] = 1;
    return block;
  }

  hold(block: number): void {
    if (this.holders(block) === 0 && !this.#lane(this.laneOf(block)).kept.delete(block)) {
      throw internalError(`block ${block} is neither held nor kept`);
    }
    this.#holders[block]!++;
  }

  /** Gives up one hold on each block. The last ones are reused first: a prefix is of use without its tail, not the other way. */
  release(blocks: readonly number[]): void {
    for (const block of blocks.toReversed()) {
      if (!(this.holders(block) > 0)) throw internalError(`block ${block} is released but not held`);
      if (--this.#holders[block]! > 0) continue;
      const { empty, kept } = this.#lane(this.laneOf(block));
      if (this.contents?.has(block)) kept.add(block);
      else empty.push(block);
      if (this.lowestFirst) empty.sort((a, b) => b - a);
    }
  }
}

interface Lane {
  readonly empty: number[];
  /** In order of last use: a Set keeps the order of insertion. */
  readonly kept: Set<number>;
}

const freeOf = ({ empty, kept }: Lane): number => empty.length + kept.size;

export const evenLanes = (numBlocks: number, lanes = 1): number[] =>
  Array.from({ length: lanes }, () => numBlocks / lanes);

/** What of a sequence decides which blocks it holds. */
export type Windowed = Pick<Sequence, 'windows' | 'windowsFrom' | 'offset' | 'most' | 'computed' | 'confirmed'>;

/**
 * A rank's blocks in layers with windows: a sequence holds those that its next rows see and write, and gives up the others as it goes
 * on. One is admitted only where there is room for all that it may ever hold at once, so none ever lacks a block.
 */
export class WindowBlocks {
  readonly pool: Pool;
  readonly #lanes: number;
  #promised = 0;

  constructor(
    readonly limits: WindowLimits,
    lanes: RankLimits['lanes'],
    private readonly config: Pick<SchedulerConfig, 'blockTokens' | 'chunkTokens'>,
    cache?: PrefixCache,
  ) {
    this.#lanes = lanes ?? 1;
    this.pool = new Pool(evenLanes(limits.numBlocks, lanes), cache?.windowed);
  }

  /** Of a lane, whichever has most. */
  #mostOf({ most }: Windowed): number {
    const blocks = ceilDiv(most, this.config.blockTokens);
    return Math.min(this.limits.most, Math.max(...laneBlocks([0, blocks], 0, this.#lanes, this.config)));
  }

  fits(sequence: Windowed): boolean {
    return this.#promised + this.#mostOf(sequence) <= this.limits.numBlocks / this.#lanes;
  }

  /** Sets room aside for a sequence that `fits`, which holds what a cached beginning has. */
  admit(sequence: Windowed, windows: BlockRun): void {
    this.#promised += this.#mostOf(sequence);
    for (const block of windows.blocks) this.pool.hold(block);
    sequence.windows = windows;
  }

  /** Tokens that a sequence may have in flight besides those that it has: iterations not known to be complete still read its window. */
  room(sequence: Windowed): number {
    return Math.max(0, this.limits.step - (sequence.computed - oldestRow(sequence)));
  }

  /**
   * Holds what rows in flight and later ones see, and what they write below `end`, and no more. True where those are other blocks than
   * before.
   */
  advance(sequence: Windowed, end: number): boolean {
    const { blockTokens } = this.config;
    const { first, blocks } = sequence.windows;
    const start = Math.floor(Math.max(0, oldestRow(sequence) - this.limits.tokens + 1) / blockTokens);
    const held = first + blocks.length;
    const last = Math.max(held, Math.ceil(end / blockTokens));
    if (held === last && (start <= first || blocks.length === 0)) return false;
    const gone = blocks.slice(0, Math.max(0, start - first));
    this.pool.release(gone);
    const kept = blocks.slice(gone.length);
    const begin = kept.length > 0 ? first + gone.length : Math.max(start, held);
    for (let at = begin + kept.length; at < last; at++) {
      kept.push(this.pool.allocate(laneOf(at, sequence.offset, this.#lanes, this.config)));
    }
    sequence.windows = { first: begin, blocks: kept };
    return true;
  }

  /** Admits a sequence of another rank. Returns other blocks for what it holds there. */
  takeIn(sequence: Windowed): BlockRun {
    const { windows, offset } = sequence;
    this.#promised += this.#mostOf(sequence);
    const blocks = windows.blocks.map((_, at) =>
      this.pool.allocate(laneOf(windows.first + at, offset, this.#lanes, this.config)),
    );
    return { first: windows.first, blocks };
  }

  release(sequence: Windowed): void {
    this.#promised -= this.#mostOf(sequence);
    this.pool.release(sequence.windows.blocks);
    sequence.windows = NO_WINDOWS;
    sequence.windowsFrom = 0;
  }
}

const oldestRow = ({ confirmed, windowsFrom }: Windowed): number => Math.max(confirmed, windowsFrom);
