import type { BlockRun } from '../../placement/pools.js';
import { BlockPool } from './block_pool.js';
import { laneBlocks, laneOf, type RankLimits, type SchedulerConfig, type WindowLimits } from './config.js';
import type { PrefixCache } from './prefix_cache.js';
import type { Sequence } from './sequence.js';

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
