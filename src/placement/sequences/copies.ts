import { chooseCopyMoves, type CopiedHead, type CopyPiece } from './copy_moves.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../owner.js';
import { range, sum } from '../../base/lists.js';
import type { Plan, RankShare, Stage } from '../plan.js';

/** A rank's part of a copied head. */
export interface Holder {
  readonly rank: number;
  readonly share: number;
}

/** Ranks that hold a head of a stage, ascending, and the share of each; one with a share of 1 where it isn't copied. */
export const holdersOf = ({ shares }: Pick<Stage, 'shares'>, head: number): Holder[] =>
  shares
    .filter(({ heads }) => heads.includes(head))
    .map(({ rank, copies = [] }) => ({ rank, share: copies.find((copy) => copy.head === head)?.share ?? 1 }))
    .toSorted((a, b) => a.rank - b.rank);

/** The rank that merges the lanes of a head and projects it, where copies share lanes: the one with most of it. */
export const homeOf = (holders: readonly Holder[]): number =>
  holders.reduce((best, holder) => (holder.share > best.share ? holder : best)).rank;

/**
 * Who holds each merge lane of a head whose copies share lanes, before an offset rotates them: in proportion to the shares, every copy
 * at least one, and spread out, so that a sequence of few chunks is shared too.
 */
export function laneHolders(holders: readonly Holder[]): number[] {
  const exact = holders.map(({ share }) => share * MERGE_LANES);
  const counts = exact.map((lanes) => Math.max(1, Math.floor(lanes)));
  for (let left = MERGE_LANES - sum(counts); left !== 0; left -= Math.sign(left)) {
    // Who lacks most gets one more; who has most too many, one less.
    const lack = (at: number): number => exact[at]! - counts[at]!;
    const able = range(0, counts.length).filter((at) => left > 0 || counts[at]! > 1);
    const at = able.reduce((best, next) => ((lack(next) - lack(best)) * left > 0 ? next : best));
    counts[at]! += Math.sign(left);
  }
  // Smooth weighted round robin: each step the one that is most behind.
  const credit = counts.map(() => 0);
  return range(0, MERGE_LANES).map(() => {
    for (const [at, count] of counts.entries()) credit[at]! += count;
    const at = credit.indexOf(Math.max(...credit));
    credit[at]! -= MERGE_LANES;
    return holders[at]!.rank;
  });
}

/** Sequences of a copied head that one copy may come to hold, of `slots`. */
const copySlots = (share: number, slots: number): number => Math.min(slots, Math.ceil(share * slots - 1e-9));

/** Whole chunks of room that a rank needs for a head: of `slots` sequences of up to `tokens` tokens. */
export function chunkRoom(
  stage: Pick<Stage, 'shares'>,
  sharing: Plan['sharing'],
  { rank, head }: { readonly rank: number; readonly head: number },
  { slots, tokens }: { readonly slots: number; readonly tokens: number },
): number {
  const chunks = Math.ceil(tokens / CHUNK_TOKENS);
  const holders = holdersOf(stage, head);
  if (holders.length < 2) return slots * chunks;
  if (sharing === 'sequences') return copySlots(holders.find((holder) => holder.rank === rank)!.share, slots) * chunks;
  const lanes = laneHolders(holders);
  const held = (offset: number): number =>
    range(0, chunks).filter((chunk) => lanes[(chunk + offset) % MERGE_LANES] === rank).length;
  return slots * Math.max(...range(0, MERGE_LANES).map(held));
}

/** A sequence that is there, as far as sharing it out needs it. */
export interface SharedSequence {
  readonly slot: number;
  /** Positions that its cache has, those of the step to come included. */
  readonly length: number;
  /** Entries that a head has of them, on average: fewer where its prompt was compressed. */
  readonly entries: number;
  /** Steps that it may still run; 0 while it mustn't move. */
  readonly remaining: number;
}

/** A sequence's cache of a copied head, in the layers of a stage, goes from one copy to another. */
export interface CopyMove {
  readonly stage: number;
  readonly head: number;
  readonly slot: number;
  readonly from: number;
  readonly to: number;
  /** Positions, as in `SharedSequence`. */
  readonly length: number;
}

interface Copied {
  readonly holders: readonly Holder[];
  readonly home: number;
  /** 'lanes': by lane. */
  readonly lanes: readonly number[];
  /** 'sequences': tokens and sequences of each holder, and who holds each slot's. */
  readonly tokens: number[];
  readonly sequences: number[];
  readonly bySlot: Map<number, number>;
}

/** What heads of a stage are expected to keep, as a part of the mean. */
interface HeadLoads {
  /** By head. */
  readonly heads: readonly number[];
  /** By rank, of heads that aren't copied. */
  readonly whole: ReadonlyMap<number, number>;
}

/**
 * Who holds which copied head's cache of which sequence: by lanes, or whole sequences. A sequence that comes goes to the copies with
 * which the busiest rank has least to read, where heads' loads are known, otherwise to those most behind their shares of tokens; that is
 * decided anew (`balance`) as others come and go. Every rank keeps one of these and tells it the same, so all decide alike.
 */
export class CopyOwners {
  /** By stage, by head; only copied ones. */
  readonly #copied: readonly ReadonlyMap<number, Copied>[];
  /** By stage. */
  readonly #loads: readonly (HeadLoads | undefined)[];
  readonly #offsets = new Map<number, { readonly offset: number; readonly tokens: number }>();

  constructor(
    readonly plan: Plan,
    readonly slots: number,
  ) {
    const { sharing } = plan;
    this.#loads = plan.stages.map(headLoads);
    this.#copied = plan.stages.map(
      (stage) => new Map(copiedHeads(stage).map((head) => [head, copiedOf(stage, head, sharing)])),
    );
  }

  /** A sequence comes: `tokens` that it may have, as far as that is known; `offset` rotates its chunks. */
  admit(slot: number, tokens: number, offset: number): void {
    this.release(slot);
    this.#offsets.set(slot, { offset, tokens });
    if (this.plan.sharing !== 'sequences') return;
    for (const [index, stage] of this.#copied.entries()) {
      const loads = this.#loads[index];
      const busy = loads && this.#tokensByRank(stage, loads);
      for (const head of loads ? largestFirst(stage, loads) : stage.keys()) {
        const copied = stage.get(head)!;
        const at = busy
          ? leastBusy(copied, this.slots, busy)
          : mostBehind(copied, tokens, this.slots, [...stage.values()]);
        if (busy) addTo(busy, copied.holders[at]!.rank, tokens * loads!.heads[head]!);
        copied.bySlot.set(slot, at);
        copied.tokens[at]! += tokens;
        copied.sequences[at]!++;
      }
    }
  }

  /** Tokens that each rank has of a stage, as heads are expected to keep them; of a sequence that comes, those of whole heads. */
  #tokensByRank(stage: ReadonlyMap<number, Copied>, { heads, whole }: HeadLoads): Map<number, number> {
    const all = sum([...this.#offsets.values()].map(({ tokens }) => tokens));
    const busy = new Map([...whole].map(([rank, load]) => [rank, load * all]));
    for (const [head, { holders, tokens }] of stage) {
      for (const [at, { rank }] of holders.entries()) addTo(busy, rank, tokens[at]! * heads[head]!);
    }
    return busy;
  }

  release(slot: number): void {
    const held = this.#offsets.get(slot);
    if (!held) return;
    this.#offsets.delete(slot);
    for (const copied of this.#copied.flatMap((stage) => [...stage.values()])) {
      const at = copied.bySlot.get(slot);
      if (at === undefined) continue;
      copied.bySlot.delete(slot);
      copied.tokens[at]! -= held.tokens;
      copied.sequences[at]!--;
    }
  }

  /**
   * Decides anew which copy has which of the sequences that are there, now that others came or went, and takes the moves as done. Nothing
   * moves where copies share lanes.
   */
  balance(sequences: readonly SharedSequence[]): CopyMove[] {
    const lengths = new Map(sequences.map(({ slot, length }) => [slot, length]));
    const entries = sum(sequences.map((sequence) => sequence.entries));
    return this.#copied.flatMap((stage, index) => {
      const loads = this.#loads[index];
      const pieces: CopyPiece[] = [];
      for (const [head, { bySlot, holders }] of stage) {
        const load = loads?.heads[head] ?? 1;
        for (const { slot, entries: own, remaining } of sequences) {
          const at = bySlot.get(slot);
          if (at !== undefined) pieces.push({ head, slot, rank: holders[at]!.rank, entries: own * load, remaining });
        }
      }
      if (pieces.length === 0) return [];
      const heads = [...stage].map(([head, { holders }]): CopiedHead => ({
        head,
        holders: holders.map((holder) => ({ ...holder, room: copySlots(holder.share, this.slots) })),
      }));
      const whole = loads && new Map([...loads.whole].map(([rank, load]) => [rank, load * entries]));
      return chooseCopyMoves(heads, pieces, whole).map((move) => {
        this.#move(stage.get(move.head)!, move.slot, move.to);
        return { stage: index, ...move, length: lengths.get(move.slot)! };
      });
    });
  }

  #move(copied: Copied, slot: number, rank: number): void {
    const { tokens } = this.#offsets.get(slot)!;
    const [before, after] = [copied.bySlot.get(slot)!, copied.holders.findIndex((holder) => holder.rank === rank)];
    copied.bySlot.set(slot, after);
    copied.tokens[before]! -= tokens;
    copied.tokens[after]! += tokens;
    copied.sequences[before]!--;
    copied.sequences[after]!++;
  }

  /** Whether a rank holds a chunk of a slot's cache of a head that is its own, or one of its own copies. */
  holds(rank: number, stage: number, head: number, slot: number, chunk: number): boolean {
    const copied = this.#copied[stage]!.get(head);
    if (!copied) return true;
    if (this.plan.sharing === 'sequences') return this.home(stage, head, slot) === rank;
    const offset = this.#offsets.get(slot)?.offset ?? 0;
    return copied.lanes[(chunk + offset) % MERGE_LANES] === rank;
  }

  /** The rank whose output of a copied head counts, for a slot's rows; slots without a sequence have one too. */
  home(stage: number, head: number, slot: number): number {
    const copied = this.#copied[stage]!.get(head)!;
    const at = copied.bySlot.get(slot);
    return at === undefined ? copied.home : copied.holders[at]!.rank;
  }
}

/** Heads of a stage that several ranks hold, ascending. */
export const copiedHeads = ({ shares }: Pick<Stage, 'shares'>): number[] =>
  [...new Set(shares.flatMap(({ copies = [] }: RankShare) => copies.map(({ head }) => head)))].toSorted(
    (a, b) => a - b,
  );

function copiedOf(stage: Stage, head: number, sharing: Plan['sharing']): Copied {
  const holders = holdersOf(stage, head);
  return {
    holders,
    home: homeOf(holders),
    lanes: sharing === 'lanes' ? laneHolders(holders) : [],
    tokens: holders.map(() => 0),
    sequences: holders.map(() => 0),
    bySlot: new Map(),
  };
}

/** Undefined where nothing is known of them. */
function headLoads({ shares, loads = [] }: Stage): HeadLoads | undefined {
  const all = sum(loads);
  if (all === 0) return undefined;
  const heads = loads.map((load) => (load * loads.length) / all);
  const whole = new Map<number, number>();
  for (const { rank, heads: own, copies = [] } of shares) {
    for (const head of own) if (!copies.some((copy) => copy.head === head)) addTo(whole, rank, heads[head]!);
  }
  return { heads, whole };
}

const addTo = (to: Map<number, number>, rank: number, load: number): void =>
  void to.set(rank, (to.get(rank) ?? 0) + load);

/** Copied heads, those with most to read first. */
const largestFirst = (stage: ReadonlyMap<number, unknown>, { heads }: HeadLoads): number[] =>
  [...stage.keys()].toSorted((a, b) => heads[b]! - heads[a]! || a - b);

/** The copy, with room for another sequence, whose rank has least to read. */
const leastBusy = ({ holders, sequences }: Copied, slots: number, busy: ReadonlyMap<number, number>): number =>
  range(0, holders.length)
    .filter((at) => sequences[at]! < copySlots(holders[at]!.share, slots))
    .reduce((best, at) => ((busy.get(holders[at]!.rank) ?? 0) < (busy.get(holders[best]!.rank) ?? 0) ? at : best));

/** The copy, with room for another sequence, that would least exceed its share; of equals the one whose rank has fewest sequences. */
function mostBehind(
  { holders, tokens, sequences }: Copied,
  added: number,
  slots: number,
  all: readonly Copied[],
): number {
  const busy = ({ rank }: Holder): number =>
    sum(all.map((other) => other.sequences[other.holders.findIndex((holder) => holder.rank === rank)] ?? 0));
  const load = (at: number): number => (tokens[at]! + added) / holders[at]!.share;
  return range(0, holders.length)
    .filter((at) => sequences[at]! < copySlots(holders[at]!.share, slots))
    .reduce((best, at) => {
      const [a, b] = [load(best), load(at)];
      if (Math.abs(a - b) > 1e-9 * Math.max(a, b)) return b < a ? at : best;
      return busy(holders[at]!) < busy(holders[best]!) ? at : best;
    });
}
