import { SplitkvError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import type { BlockRun } from '../../placement/pools.js';
import { laneBlocks, laneOf, type RankLimits, type SchedulerConfig, type WindowLimits } from './config.js';
import type { PrefixCache } from './prefix_cache.js';
import type { Sequence } from './sequence.js';

/**
 * One rank's KV blocks: free, held by sequences (a block may be held by several), or kept: held by nobody but with content that
 * the prefix cache knows. Kept blocks count as free; the one unused for longest is given out first, after all empty ones.
 *
 * Blocks are of lanes, as many of each: lane l has blocks [l * n, (l + 1) * n). A sequence that several ranks split takes each block from
 * the lane of its chunk.
 */
export class BlockPool {
  readonly #holders: Int32Array;
  readonly #lanes: readonly Lane[];

  /**
   * @param isCached whether the prefix cache knows a block's content
   * @param forget told when a kept block is given out for other content
   */
  constructor(
    readonly numBlocks: number,
    private readonly isCached: (block: number) => boolean = () => false,
    private readonly forget: (block: number) => void = () => {},
    lanes = 1,
  ) {
    this.#holders = new Int32Array(numBlocks);
    const each = numBlocks / lanes;
    this.#lanes = Array.from({ length: lanes }, (_, lane) => ({
      empty: Array.from({ length: each }, (_block, index) => (lane + 1) * each - 1 - index),
      kept: new Set<number>(),
    }));
  }

  /** Blocks that `allocate` could give out, of all lanes. */
  get numFree(): number {
    return sum(this.#lanes.map(freeOf));
  }

  /** As `numFree`, of one lane. */
  freeIn(lane: number): number {
    return freeOf(this.#lanes[lane]!);
  }

  laneOf(block: number): number {
    return Math.floor((block * this.#lanes.length) / this.numBlocks);
  }

  holders(block: number): number {
    return this.#holders[block]!;
  }

  /** A block for one holder. @throws SplitkvError `internal` when none is free: ask `freeIn` first. */
  allocate(lane = 0): number {
    const { empty, kept } = this.#lanes[lane]!;
    let block = empty.pop();
    if (block === undefined) {
      const oldest = kept.values().next();
      if (oldest.done) throw new SplitkvError('internal', `all KV blocks of lane ${lane} are held`);
      block = oldest.value;
      kept.delete(block);
      this.forget(block);
    }
    this.#holders[block] = 1;
    return block;
  }

  /** One more holder of a block that is held or kept. */
  hold(block: number): void {
    if (this.#holders[block]! === 0 && !this.#lanes[this.laneOf(block)]!.kept.delete(block)) {
      throw new SplitkvError('internal', `KV block ${block} is neither held nor kept`);
    }
    this.#holders[block]!++;
  }

  /** Gives up one hold on each block. The last ones are reused first: a prefix is of use without its tail, not the other way. */
  release(blocks: readonly number[]): void {
    for (let i = blocks.length - 1; i >= 0; i--) {
      const block = blocks[i]!;
      if (!(this.#holders[block]! > 0)) {
        throw new SplitkvError('internal', `KV block ${block} is released but not held`);
      }
      if (--this.#holders[block]! > 0) continue;
      const { empty, kept } = this.#lanes[this.laneOf(block)]!;
      if (this.isCached(block)) kept.add(block);
      else empty.push(block);
    }
  }
}

interface Lane {
  readonly empty: number[];
  /** In order of last use: a Set keeps the order of insertion. */
  readonly kept: Set<number>;
}

const freeOf = ({ empty, kept }: Lane): number => empty.length + kept.size;

/** What of a sequence decides which blocks it holds. */
export type Windowed = Pick<Sequence, 'windows' | 'windowsFrom' | 'offset' | 'most' | 'computed' | 'confirmed'>;

const NONE: BlockRun = { first: 0, blocks: [] };

/**
 * A rank's blocks in layers with windows: a sequence holds those that its next rows see and write, and gives up the others as it goes
 * on. One is admitted only where there is room for all that it may ever hold at once, so none ever lacks a block.
 */
export class WindowBlocks {
  readonly pool: BlockPool;
  readonly #lanes: number;
  /** Blocks of a lane that are set aside for running sequences. */
  #promised = 0;

  constructor(
    readonly limits: WindowLimits,
    lanes: RankLimits['lanes'],
    private readonly config: Pick<SchedulerConfig, 'blockTokens' | 'chunkTokens'>,
    cache?: PrefixCache,
  ) {
    this.#lanes = lanes ?? 1;
    this.pool = new BlockPool(
      limits.numBlocks,
      (block) => cache?.hasWindow(block) ?? false,
      (block) => cache?.forgetWindow(block),
      lanes,
    );
  }

  /** Of a lane, whichever has most. */
  #mostOf({ most }: Windowed): number {
    return Math.min(this.limits.most, Math.max(...laneBlocks(most, this.#lanes, this.config)));
  }

  /** Whether there is room for another sequence. */
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
    sequence.windows = NONE;
    sequence.windowsFrom = 0;
  }
}

const oldestRow = ({ confirmed, windowsFrom }: Windowed): number => Math.max(confirmed, windowsFrom);

/**
 * Copies of recurrent layers' states, each of one position of some content that the prefix cache knows. The one unused for longest is
 * given out again when none is free.
 */
export class StatePool {
  readonly #free: number[];
  /** In the order of their last use, with what makes the cache forget them. */
  readonly #known = new Map<number, () => void>();

  constructor(readonly count: number) {
    this.#free = Array.from({ length: count }, (_, place) => count - 1 - place);
  }

  /** A place to copy a state to; undefined where all are waiting for theirs. */
  take(): number | undefined {
    const place = this.#free.pop();
    if (place !== undefined) return place;
    const oldest = this.#known.entries().next();
    if (oldest.done) return undefined;
    const [known, forget] = oldest.value;
    this.#known.delete(known);
    forget();
    return known;
  }

  /** A taken place's state is there, and can be found. */
  settle(place: number, forget: () => void): void {
    this.#known.set(place, forget);
  }

  /** A sequence begins with it. */
  use(place: number): void {
    const forget = this.#known.get(place);
    if (!forget) return;
    this.#known.delete(place);
    this.#known.set(place, forget);
  }

  /** Nobody will look for it. */
  release(place: number): void {
    this.#known.delete(place);
    this.#free.push(place);
  }
}
