import { keptSlots, rankTopology, slotRanges } from '../model/topology.js';
import type { Plan, RowRange } from '../placement/index.js';

/** Tokens [start, start + tokens.length) of one slot, to be run in one call. */
export interface SlotTokens {
  readonly slot: number;
  readonly tokens: Uint32Array;
  readonly start: number;
}

/** Who runs a slot's rows: every rank all of them, or (attention data parallelism) each rank those of its own slots. */
export class SlotOwners {
  /** Slots of a batch that share a KV pool: of each place that sequences are dealt out to, else all. */
  readonly pools: readonly RowRange[];
  /** Where ranks run their own rows: the ranks, in the order of `StepShape.blocks`. */
  readonly ranks: readonly number[] | undefined;
  readonly #plan: Plan;
  /** By batch: asked for in every step. */
  readonly #ranges: (readonly RowRange[])[] = [];

  constructor(
    plan: Plan,
    readonly slots: number,
  ) {
    this.#plan = plan;
    this.pools = slotRanges(plan, slots);
    this.ranks = rankTopology(plan, 0).ownRows?.ranks.map(({ rank }) => rank);
  }

  /** The slots of a batch that each of `ranks` runs. */
  rangesOf(batch: number): readonly RowRange[] {
    return (this.#ranges[batch] ??= slotRanges(this.#plan, this.slots, batch));
  }

  /** The place among `ranks` of the one that runs a slot; 0 where all do. */
  placeOf(slot: number): number {
    if (!this.ranks) return 0;
    const row = slot % this.slots;
    return this.rangesOf(Math.floor(slot / this.slots)).findIndex(([first, end]) => row >= first && row < end);
  }

  /** Whether a rank keeps a slot's cache, as far as whole sequences are dealt out to ranks. */
  keeps(rank: number, slot: number): boolean {
    const batch = Math.floor(slot / this.slots);
    const kept = keptSlots(this.#plan, rank, this.slots, batch + 1);
    if (!kept) return true;
    const [first, end] = kept[batch]!;
    return slot % this.slots >= first && slot % this.slots < end;
  }

  /** The items by call, each call with one at most for each rank: side by side where ranks run their own rows, else one by one. */
  rounds<Item extends SlotTokens>(items: readonly Item[]): Item[][] {
    if (!this.ranks) return items.map((item) => [item]);
    const rounds: Item[][] = [];
    const taken = this.ranks.map(() => 0);
    for (const item of items) {
      const place = this.placeOf(item.slot);
      (rounds[taken[place]!++] ??= []).push(item);
    }
    return rounds;
  }

  /** What a rank runs of a round, and how many rows each rank has there; a rank that has none is given no tokens. */
  shareOf<Item extends SlotTokens>(
    round: readonly Item[],
    rank: number,
  ): { readonly item: Item | undefined; readonly rows: readonly number[] | undefined } {
    const { ranks } = this;
    if (!ranks) return { item: round[0], rows: undefined };
    const rows = ranks.map(() => 0);
    for (const { slot, tokens } of round) rows[this.placeOf(slot)] = tokens.length;
    return { item: round.find(({ slot }) => ranks[this.placeOf(slot)] === rank), rows };
  }
}
