import { nth } from '../../../base/lists.js';
import type { SchedulerConfig } from '../config.js';
import { inOrder } from '../priority.js';
import type { WorkList } from '../iteration.js';
import type { RankState } from '../rank_state.js';
import { LASTING } from '../kv/kv_policy.js';
import type { Situation } from '../routing.js';
import type { Sequence } from '../sequence.js';

/** Requests that a rank may be ahead of its share: room to even out context rows rather than counts. */
const COUNT_SLACK = 2;

/** What a decode row and a context row take; equal while not known. And what reading a cached token takes, in every step. */
interface RowSeconds {
  readonly generation: number;
  readonly context: number;
  readonly cached: number;
}

class Site {
  /** Rows that the iteration's budget still has. */
  room: number;
  /** Sequences whose prefill may still start in this iteration ... */
  starts: number;
  /** ... and free slots for them. */
  slots: number;
  /** Seconds of its rows. */
  load: number;
  active: number;
  /** Cached tokens that its sequences attend to. */
  attended: number;
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
    this.attended = rank.attended;
  }

  copy(): Site {
    return Object.assign(Object.create(Site.prototype) as Site, this);
  }

  /** Without chunks a context runs whole; with them it may run on into the next iterations. */
  hasRoom(rows: number): boolean {
    return this.starts > 0 && (this.config.chunkedPrefill ? this.room > 0 : rows <= this.room);
  }

  /** Seconds of the steps to come in which cached tokens are read, with more of them. */
  readingWith(tokens: number): number {
    return (this.attended + tokens) * this.seconds.cached * LASTING;
  }

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

export interface Assignment {
  readonly sequence: Sequence;
  readonly rank: RankState;
  readonly rows: number;
}

export class Placement {
  /** Seconds by which the slowest rank's rows exceed those of an iteration without contexts. */
  readonly excess: number;

  constructor(
    readonly assigned: readonly Assignment[],
    private readonly sites: readonly Site[],
    private readonly generationLoad: number,
  ) {
    this.excess = excess(sites, generationLoad);
  }

  get rows(): number {
    return this.assigned.reduce((sum, { rows }) => sum + rows, 0);
  }

  /**
   * Leaves out what keeps one rank busy long after the others: cuts every rank's load at the level where the seconds saved most
   * exceed what the rows left out will cost later. A rank keeps its oldest ones, and those that must run.
   * @param rowCost seconds that a row left out will cost
   */
  cut(rowCost: number, mustRun: (sequence: Sequence) => boolean): Placement {
    const oldestFirst = this.assigned.toSorted((a, b) => inOrder(a.sequence, b.sequence));
    let best: Placement | undefined;
    let bestGain = 0;
    for (const level of new Set(this.sites.map(({ load }) => load))) {
      const sites = this.sites.map((site) => site.copy());
      for (const { rank, rows } of this.assigned) nth(sites, rank.index).drop(rows);
      let left = 0;
      const kept = oldestFirst.filter(({ sequence, rank, rows }) => {
        const site = nth(sites, rank.index);
        // Sums of the same rows in another order may differ in the last bits.
        const keeps = site.loadWith(rows) <= level * (1 + 1e-9) || mustRun(sequence);
        if (keeps) site.drop(-rows);
        else left += rows;
        return keeps;
      });
      const gain = this.excess - excess(sites, this.generationLoad) - left * rowCost;
      if (kept.length > 0 && gain > bestGain) {
        best = new Placement(kept, sites, this.generationLoad);
        bestGain = gain;
      }
    }
    return best ?? this;
  }

  /**
   * Seconds by which the iteration would become longer with more contexts, one after the other, each on the least loaded rank
   * that has room; ends at the first that none has room for. Send it the rows of the next one.
   * @param withSlot each comes when a slot frees up, on whichever rank
   */
  *lengthening(withSlot: boolean): Generator<number, undefined, number> {
    const sites = this.sites.map((site) => site.copy());
    let rows = yield 0;
    for (;;) {
      let best: Site | undefined;
      for (const site of sites) {
        if (!site.hasRoom(rows) || !(withSlot || site.slots > 0)) continue;
        if (!best || site.load < best.load) best = site;
      }
      if (!best) return undefined;
      best.add(rows);
      rows = yield excess(sites, this.generationLoad) - this.excess;
    }
  }
}

const excess = (sites: readonly Site[], generationLoad: number): number =>
  Math.max(0, Math.max(...sites.map(({ load }) => load)) - generationLoad);

/**
 * Spreads waiting requests over the ranks: the oldest that the budget of all ranks together holds, longest first, each to the
 * rank that is least loaded with it, by its rows now and the cached tokens that it reads in the steps to come. Counts are kept even as
 * well, within two: a request's decode row stays on its rank for as long as it generates, while its context is there once.
 * @param candidates in order
 */
export function placeContexts(
  config: SchedulerConfig,
  { ranks, work }: Situation,
  seconds: RowSeconds,
  candidates: readonly Sequence[],
): Placement {
  const sites = ranks.map((rank, index) => new Site(rank, nth(work, index), seconds, config));
  const oldest = withinBudget(sites, candidates);
  const slots = ranks.reduce((sum, rank) => sum + rank.limits.slots, 0);
  const active = ranks.reduce((sum, rank) => sum + rank.numActive, oldest.length);
  const assigned: Assignment[] = [];
  for (const sequence of oldest.toSorted((a, b) => b.promptLength - a.promptLength || inOrder(a, b))) {
    let best: { readonly site: Site; readonly rows: number; readonly load: number } | undefined;
    for (const site of sites) {
      const { rank } = site;
      const share = Math.ceil((active * rank.limits.slots) / slots) + COUNT_SLACK;
      if (site.slots === 0 || site.active >= share) continue;
      const rows = sequence.target - rank.cachedTokens(sequence);
      const load = site.loadWith(rows) + site.readingWith(sequence.target);
      if (!site.hasRoom(rows) || (best && load >= best.load)) continue;
      if (!rank.canEverHold(sequence) || !rank.wouldAdmit(sequence, site.blocks, site.placed)) continue;
      best = { site, rows, load };
    }
    if (!best) continue;
    const { site, rows } = best;
    assigned.push({ sequence, rank: site.rank, rows });
    for (const [lane, count] of site.rank.demand(sequence).fresh.entries()) {
      site.blocks[lane] = (site.blocks[lane] ?? 0) + count;
    }
    site.add(rows);
    site.attended += sequence.target;
  }
  return new Placement(assigned, sites, Math.max(...work.map(({ decodes }) => seconds.generation * decodes.length)));
}

function withinBudget(sites: readonly Site[], candidates: readonly Sequence[]): readonly Sequence[] {
  let rows = sites.reduce((sum, { room }) => sum + Math.max(0, room), 0);
  let count = 0;
  for (; count < candidates.length && rows > 0; count++) rows -= nth(candidates, count).target;
  return candidates.slice(0, count);
}
