import type { SchedulerConfig } from '../config.js';
import type { RankState } from '../rank_state.js';
import type { Situation } from '../routing.js';
import { inOrder, type Sequence } from '../sequence.js';

/** Requests that a rank may be ahead of its share: room to even out context rows rather than counts. */
const COUNT_SLACK = 2;

/** A rank while contexts are being placed on it. */
interface Site {
  readonly rank: RankState;
  /** Rows that the iteration's budget still has. */
  room: number;
  /** Sequences that may still start in one iteration ... */
  starts: number;
  /** ... and free slots for them. */
  slots: number;
  /** Seconds of its rows, or rows while seconds aren't known. */
  load: number;
  /** Context rows it would run. */
  context: number;
  active: number;
  blocks: number;
  placed: number;
}

export interface RowSeconds {
  readonly generation: number;
  readonly context: number;
}

/**
 * Which contexts would run now, and where: the oldest that the budget of all ranks together holds, longest first, each on the
 * rank with the least load that has room. Counts are kept even as well, within two: a request's decode row stays on its rank
 * for as long as it generates, while its context is there once.
 */
export class Placement {
  readonly assigned: { readonly sequence: Sequence; readonly rank: RankState }[] = [];
  readonly #sites: Site[];
  readonly #generationLoad: number;

  constructor(
    private readonly config: SchedulerConfig,
    { ranks, work }: Situation,
    private readonly seconds: RowSeconds,
  ) {
    this.#sites = ranks.map((rank, index) => {
      const generations = work[index]!.decodes.length;
      const context = rank.outstandingContext;
      const prefilling = rank.running.length - rank.numDecoding;
      // A rank with a bound request that waits (preempted, or too large for now) takes no other before it.
      const closed = rank.pending.length + work[index]!.preempted.length > 0;
      return {
        rank,
        room: config.maxTokensPerIteration - generations - context,
        starts: closed ? 0 : config.maxPrefillSequences - prefilling,
        slots: rank.numFreeSlots,
        load: seconds.generation * generations + seconds.context * context,
        context,
        active: rank.numActive,
        blocks: 0,
        placed: 0,
      };
    });
    this.#generationLoad = Math.max(...work.map(({ decodes }) => seconds.generation * decodes.length));
  }

  /** Places what fits of the candidates, which are in order. */
  place(candidates: readonly Sequence[]): void {
    const oldest = this.#withinBudget(candidates);
    const slots = this.#sites.reduce((sum, { rank }) => sum + rank.slots, 0);
    const active = this.#sites.reduce((sum, site) => sum + site.active, oldest.length);
    for (const sequence of oldest.toSorted((a, b) => b.promptLength - a.promptLength || inOrder(a, b))) {
      let best: Site | undefined;
      let bestRows = 0;
      for (const site of this.#sites) {
        const share = Math.ceil((active * site.rank.slots) / slots) + COUNT_SLACK;
        if (site.starts <= 0 || site.slots === 0 || site.active >= share) continue;
        const rows = sequence.target - site.rank.cachedTokens(sequence);
        if (!this.#fits(site, rows) || !site.rank.canEverHold(sequence)) continue;
        if (best && site.load + rows * this.seconds.context >= best.load + bestRows * this.seconds.context) continue;
        if (!site.rank.wouldAdmit(sequence, site.blocks, site.placed)) continue;
        best = site;
        bestRows = rows;
      }
      if (!best) continue;
      this.assigned.push({ sequence, rank: best.rank });
      best.blocks += best.rank.demand(sequence).fresh;
      best.placed++;
      best.slots--;
      best.active++;
      this.#add(best, bestRows);
    }
  }

  #withinBudget(candidates: readonly Sequence[]): Sequence[] {
    let rows = this.#sites.reduce((sum, { room }) => sum + Math.max(0, room), 0);
    let count = 0;
    for (; count < candidates.length && rows > 0; count++) rows -= candidates[count]!.target;
    return candidates.slice(0, count);
  }

  /** Without chunks a context runs whole; with them it may run on into the next iterations. */
  #fits(site: Site, rows: number): boolean {
    return this.config.chunkedPrefill ? site.room > 0 : rows <= site.room;
  }

  #add(site: Site, rows: number): void {
    site.room -= rows;
    site.starts--;
    site.context += rows;
    site.load += rows * this.seconds.context;
  }

  /**
   * One more context of so many rows, on the least loaded rank that has room; false when none has. It may come with a slot that
   * frees up, so slots don't count.
   */
  imagine(rows: number): boolean {
    let best: Site | undefined;
    for (const site of this.#sites) {
      if (site.starts > 0 && this.#fits(site, rows) && (!best || site.load < best.load)) best = site;
    }
    if (best) this.#add(best, rows);
    return best !== undefined;
  }

  /** Seconds by which the slowest rank's rows exceed those of an iteration without contexts. */
  get excess(): number {
    return Math.max(0, Math.max(...this.#sites.map(({ load }) => load)) - this.#generationLoad);
  }
}
