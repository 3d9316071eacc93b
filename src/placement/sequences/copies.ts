import { CHUNK_TOKENS, MERGE_LANES } from '../owner.js';
import { nth, range, sum } from '../../base/lists.js';
import type { Plan, RankShare, Stage } from '../plan.js';

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
  const parts = holders.map(({ rank, share }) => {
    const exact = share * MERGE_LANES;
    return { rank, exact, lanes: Math.max(1, Math.floor(exact)), credit: 0 };
  });
  type Part = (typeof parts)[number];
  for (let left = MERGE_LANES - sum(parts.map(({ lanes }) => lanes)); left !== 0; left -= Math.sign(left)) {
    // Who lacks most gets one more; who has most too many, one less.
    const lack = ({ exact, lanes }: Part): number => exact - lanes;
    const able = parts.filter(({ lanes }) => left > 0 || lanes > 1);
    able.reduce((best, next) => ((lack(next) - lack(best)) * left > 0 ? next : best)).lanes += Math.sign(left);
  }
  // Smooth weighted round robin: each step the one that is most behind.
  return range(0, MERGE_LANES).map(() => {
    for (const part of parts) part.credit += part.lanes;
    const next = parts.reduce((best, part) => (part.credit > best.credit ? part : best));
    next.credit -= MERGE_LANES;
    return next.rank;
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
  if (sharing === 'sequences')
    return copySlots(holders.find((holder) => holder.rank === rank)?.share ?? 0, slots) * chunks;
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
  /** Those of each kv head, on average in the layers of each stage, once they are known: [stage][head]. */
  readonly heads?: readonly (readonly number[])[] | undefined;
  /** Steps that it may still run; 0 while it mustn't move. */
  readonly remaining: number;
}

/** A sequence's cache of a copied head goes from one copy to another. */
export interface PieceMove {
  readonly head: number;
  readonly slot: number;
  readonly from: number;
  readonly to: number;
}

/** The same in the layers of a stage. */
export interface CopyMove extends PieceMove {
  readonly stage: number;
  /** Positions, as in `SharedSequence`. */
  readonly length: number;
}

/** A copy of a head, with the tokens and sequences that it keeps where copies share sequences. */
interface Copy extends Holder {
  readonly room: number;
  tokens: number;
  sequences: number;
}

interface Copied {
  readonly copies: readonly Copy[];
  readonly home: number;
  /** 'lanes': ranks by lane, before an offset rotates them. */
  readonly lanes: readonly number[];
  /** 'sequences': who keeps each slot's. */
  readonly bySlot: Map<number, Copy>;
}

/** What heads of a stage are expected to keep, as a part of the mean. */
interface HeadLoads {
  readonly of: (head: number) => number;
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

  /** `roomy`: every copy has room for all sequences, as where prompts are compressed; otherwise for its share of them. */
  constructor(
    readonly plan: Plan,
    readonly slots: number,
    roomy = false,
  ) {
    const { sharing } = plan;
    this.#loads = plan.stages.map(headLoads);
    this.#copied = plan.stages.map(
      (stage) => new Map(copiedHeads(stage).map((head) => [head, copiedOf(stage, head, sharing, slots, roomy)])),
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
      const all = [...stage.values()];
      // Those with most to read first.
      const heads = loads ? [...stage].toSorted(([a], [b]) => loads.of(b) - loads.of(a) || a - b) : stage;
      for (const [head, { copies, bySlot }] of heads) {
        const open = copies.filter(({ sequences, room }) => sequences < room);
        const copy = busy ? leastBusy(open, busy) : mostBehind(open, tokens, all);
        if (busy) addTo(busy, copy.rank, tokens * loads.of(head));
        bySlot.set(slot, copy);
        copy.tokens += tokens;
        copy.sequences++;
      }
    }
  }

  /** Tokens that each rank has of a stage, as heads are expected to keep them; of a sequence that comes, those of whole heads. */
  #tokensByRank(stage: ReadonlyMap<number, Copied>, { of, whole }: HeadLoads): Map<number, number> {
    const all = sum([...this.#offsets.values()].map(({ tokens }) => tokens));
    const busy = new Map([...whole].map(([rank, load]) => [rank, load * all]));
    for (const [head, { copies }] of stage) {
      for (const { rank, tokens } of copies) addTo(busy, rank, tokens * of(head));
    }
    return busy;
  }

  release(slot: number): void {
    const held = this.#offsets.get(slot);
    if (!held) return;
    this.#offsets.delete(slot);
    for (const { bySlot } of this.#copied.flatMap((stage) => [...stage.values()])) {
      const copy = bySlot.get(slot);
      if (!copy) continue;
      bySlot.delete(slot);
      copy.tokens -= held.tokens;
      copy.sequences--;
    }
  }

  /**
   * Decides anew which copy has which of the sequences that are there, now that others came or went, and takes the moves as done. Nothing
   * moves where copies share lanes.
   */
  balance(sequences: readonly SharedSequence[]): CopyMove[] {
    const lengths = new Map(sequences.map(({ slot, length }) => [slot, length]));
    return this.#copied.flatMap((stage, index) => {
      const loads = this.#loads[index];
      const entriesOf = ({ heads, entries }: SharedSequence, head: number): number =>
        heads?.[index]?.[head] ?? entries * (loads?.of(head) ?? 1);
      const pieces: CopyPiece[] = [];
      for (const [head, { bySlot }] of stage) {
        for (const sequence of sequences) {
          const { slot, remaining } = sequence;
          const copy = bySlot.get(slot);
          if (copy) pieces.push({ head, slot, rank: copy.rank, entries: entriesOf(sequence, head), remaining });
        }
      }
      if (pieces.length === 0) return [];
      const heads = [...stage].map(([head, { copies }]): CopiedHead => ({ head, holders: copies }));
      const isKnown = loads || sequences.every((sequence) => sequence.heads);
      const whole = isKnown ? new Map<number, number>() : undefined;
      for (const { rank, heads: held } of whole ? nth(this.plan.stages, index).shares : []) {
        const alone = held.filter((head) => !stage.has(head));
        addTo(whole!, rank, sum(alone.flatMap((head) => sequences.map((sequence) => entriesOf(sequence, head)))));
      }
      return chooseCopyMoves(heads, pieces, whole).map((move) => {
        this.#move(stage.get(move.head), move.slot, move.to);
        return { stage: index, ...move, length: lengths.get(move.slot) ?? 0 };
      });
    });
  }

  #move(copied: Copied | undefined, slot: number, rank: number): void {
    const { tokens = 0 } = this.#offsets.get(slot) ?? {};
    const [from, to] = [copied?.bySlot.get(slot), copied?.copies.find((copy) => copy.rank === rank)];
    if (!copied || !from || !to) return;
    copied.bySlot.set(slot, to);
    from.tokens -= tokens;
    to.tokens += tokens;
    from.sequences--;
    to.sequences++;
  }

  /** Whether a rank holds a chunk of a slot's cache of a head that is its own, or one of its own copies. */
  holds(rank: number, stage: number, head: number, slot: number, chunk: number): boolean {
    const copied = this.#copied[stage]?.get(head);
    if (!copied) return true;
    if (this.plan.sharing === 'sequences') return this.home(stage, head, slot) === rank;
    return copied.lanes[this.#turned(slot, chunk)] === rank;
  }

  /** The ranks that have the merge lanes of a slot's head, by lane; undefined of a head that isn't copied. */
  lanes(stage: number, head: number, slot: number): readonly number[] | undefined {
    const lanes = this.#copied[stage]?.get(head)?.lanes;
    return lanes?.map((_, lane) => nth(lanes, this.#turned(slot, lane)));
  }

  /** The lane that the plan has a chunk of a slot's sequence in. */
  #turned(slot: number, chunk: number): number {
    return (chunk + (this.#offsets.get(slot)?.offset ?? 0)) % MERGE_LANES;
  }

  /** The rank whose output of a copied head counts, for a slot's rows; slots without a sequence have one too. */
  home(stage: number, head: number, slot: number): number {
    const copied = this.#copied[stage]?.get(head);
    return copied?.bySlot.get(slot)?.rank ?? copied?.home ?? -1;
  }
}

export const copiedHeads = ({ shares }: Pick<Stage, 'shares'>): number[] =>
  [...new Set(shares.flatMap(({ copies = [] }: RankShare) => copies.map(({ head }) => head)))].toSorted(
    (a, b) => a - b,
  );

function copiedOf(stage: Stage, head: number, sharing: Plan['sharing'], slots: number, roomy: boolean): Copied {
  const holders = holdersOf(stage, head);
  const roomOf = (share: number): number => (roomy ? slots : copySlots(share, slots));
  return {
    copies: holders.map((holder) => ({ ...holder, room: roomOf(holder.share), tokens: 0, sequences: 0 })),
    home: homeOf(holders),
    lanes: sharing === 'lanes' ? laneHolders(holders) : [],
    bySlot: new Map(),
  };
}

function headLoads({ shares, loads = [] }: Stage): HeadLoads | undefined {
  const all = sum(loads);
  if (all === 0) return undefined;
  const of = (head: number): number => ((loads[head] ?? 0) * loads.length) / all;
  const whole = new Map<number, number>();
  for (const { rank, heads: own, copies = [] } of shares) {
    for (const head of own) if (!copies.some((copy) => copy.head === head)) addTo(whole, rank, of(head));
  }
  return { of, whole };
}

const addTo = (to: Map<number, number>, rank: number, load: number): void =>
  void to.set(rank, (to.get(rank) ?? 0) + load);

const leastBusy = (open: readonly Copy[], busy: ReadonlyMap<number, number>): Copy =>
  open.reduce((best, copy) => ((busy.get(copy.rank) ?? 0) < (busy.get(best.rank) ?? 0) ? copy : best));

/** The copy that would least exceed its share; of equals the one whose rank has fewest sequences. */
function mostBehind(open: readonly Copy[], added: number, all: readonly Copied[]): Copy {
  const busy = ({ rank }: Copy): number =>
    sum(all.map(({ copies }) => copies.find((copy) => copy.rank === rank)?.sequences ?? 0));
  const load = ({ tokens, share }: Copy): number => (tokens + added) / share;
  return open.reduce((best, copy) => {
    const [a, b] = [load(best), load(copy)];
    if (Math.abs(a - b) > 1e-9 * Math.max(a, b)) return b < a ? copy : best;
    return busy(copy) < busy(best) ? copy : best;
  });
}

/** One sequence's cache of a copied head. */
export interface CopyPiece {
  readonly head: number;
  readonly slot: number;
  readonly rank: number;
  /** Entries that a step attends to. */
  readonly entries: number;
  /** Steps that it may still be there for; 0: it stays where it is. */
  readonly remaining: number;
}

/** A head of a stage that several ranks hold: their shares, and of how many sequences each has room for. */
export interface CopiedHead {
  readonly head: number;
  readonly holders: readonly (Holder & { readonly room: number })[];
}

/** Steps that a better balance is taken to last for, at most: others come and go. */
const LASTING = 64;
/** Attending to an entry in one step costs 1: reading it, sending it over the host and writing it costs so much. */
const MOVING = 8;

/**
 * Which pieces of a stage's copied heads should move, so that ranks have their shares again after sequences came or went. The rank that
 * is furthest above its shares, of all the heads it holds copies of, gives away the piece whose move is worth most: the entries that a
 * step waits for less, over the steps that the sequence may still run, less what moving them costs. Then again, while any is worth it;
 * no piece moves twice. A head's copies never come to hold more sequences than they have room for, leaving ones included.
 * @param whole by rank, entries of heads that aren't copied, where all are known: the rank with most entries then gives away
 */
export function chooseCopyMoves(
  heads: readonly CopiedHead[],
  pieces: readonly CopyPiece[],
  whole?: ReadonlyMap<number, number>,
): PieceMove[] {
  const excess = new Map(whole ?? excessByRank(heads, pieces));
  if (whole) for (const { rank, entries } of pieces) addTo(excess, rank, entries);
  const places = new Map(heads.map(({ head, holders }) => [head, holders.map((holder) => ({ ...holder }))]));
  for (const { head, rank } of pieces)
    for (const place of places.get(head) ?? []) if (place.rank === rank) place.room--;
  // Moving saves no more than the piece itself, in each step.
  const left = new Set(pieces.filter(({ remaining }) => remaining > MOVING));
  const moves: PieceMove[] = [];
  for (;;) {
    const best = worthiest(left, places, excess);
    if (!best) return moves;
    const { piece, to } = best;
    const { head, slot, rank: from, entries } = piece;
    moves.push({ head, slot, from, to: to.rank });
    left.delete(piece);
    addTo(excess, from, -entries);
    addTo(excess, to.rank, entries);
    to.room--;
  }
}

/** Entries that each rank has of copied heads beyond its shares of them; added up over ranks, 0. */
export function excessByRank(
  heads: readonly CopiedHead[],
  pieces: readonly Pick<CopyPiece, 'head' | 'rank' | 'entries'>[],
): Map<number, number> {
  const excess = new Map<number, number>();
  const all = new Map<number, number>();
  for (const { head, rank, entries } of pieces) {
    addTo(all, head, entries);
    addTo(excess, rank, entries);
  }
  for (const { head, holders } of heads) {
    for (const { rank, share } of holders) addTo(excess, rank, -share * (all.get(head) ?? 0));
  }
  return excess;
}

/** A copy of a head, and how many sequences more it has room for. */
interface Place {
  readonly rank: number;
  room: number;
}

/** From the rank with most too much the piece whose move is worth most, and where to; undefined when none is worth it. */
function worthiest(
  pieces: ReadonlySet<CopyPiece>,
  places: ReadonlyMap<number, readonly Place[]>,
  excess: ReadonlyMap<number, number>,
): { readonly piece: CopyPiece; readonly to: Place } | undefined {
  let [busiest, most] = [-1, 0];
  for (const [rank, entries] of excess) {
    if (entries > most || (entries === most && rank < busiest)) [busiest, most] = [rank, entries];
  }
  let best: { readonly piece: CopyPiece; readonly to: Place } | undefined;
  let bestWorth = 0;
  for (const piece of pieces) {
    if (piece.rank !== busiest) continue;
    const { head, entries, remaining } = piece;
    for (const to of places.get(head) ?? []) {
      if (to.rank === busiest || to.room <= 0) continue;
      const saved = most - Math.max(most - entries, (excess.get(to.rank) ?? 0) + entries);
      const worth = saved * Math.min(remaining, LASTING) - MOVING * entries;
      if (worth > bestWorth) [best, bestWorth] = [{ piece, to }, worth];
    }
  }
  return best;
}
