import type { SchedulerConfig } from '../config.js';
import type { RankState, WorkList } from '../rank_state.js';

/** What a decode row and a context row take; equal while not known. */
export interface RowSeconds {
  readonly generation: number;
  readonly context: number;
}

/** A rank while contexts are being placed on it. */
export class Site {
  /** Rows that the iteration's budget still has. */
  room: number;
  /** Sequences whose prefill may still start in this iteration ... */
  starts: number;
  /** ... and free slots for them. */
  slots: number;
  /** Seconds of its rows. */
  load: number;
  active: number;
  /** Blocks taken, and sequences placed. */
  readonly blocks: number[] = [];
  placed = 0;

  constructor(
    readonly rank: RankState,
    work: WorkList,
    private readonly seconds: RowSeconds,
    private readonly config: SchedulerConfig,
  ) {
    const generations = work.decodes.length;
    const context = rank.outstandingContext;
    // A rank with a bound request that waits (preempted, or too large for now) takes no other before it.
    const closed = rank.pending.length + work.preempted.length > 0;
    this.room = config.maxTokensPerIteration - generations - context;
    this.starts = closed ? 0 : config.maxPrefillSequences - (rank.running.length - rank.numDecoding);
    this.slots = rank.numFreeSlots;
    this.load = seconds.generation * generations + seconds.context * context;
    this.active = rank.numActive;
  }

  copy(): Site {
    return Object.assign(Object.create(Site.prototype) as Site, this);
  }

  /** Without chunks a context runs whole; with them it may run on into the next iterations. */
  hasRoom(rows: number): boolean {
    return this.starts > 0 && (this.config.chunkedPrefill ? this.room > 0 : rows <= this.room);
  }

  /** Its load with another context. */
  loadWith(rows: number): number {
    return this.load + rows * this.seconds.context;
  }

  add(rows: number): void {
    this.load = this.loadWith(rows);
    this.room -= rows;
    this.starts--;
    this.slots--;
    this.active++;
    this.placed++;
  }

  /** Takes a context away again, as far as its load goes. */
  drop(rows: number): void {
    this.load = this.loadWith(-rows);
  }
}
