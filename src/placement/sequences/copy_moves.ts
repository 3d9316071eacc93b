/** One sequence's cache of a copied head. */
export interface CopyPiece {
  readonly head: number;
  readonly slot: number;
  /** Who keeps it. */
  readonly rank: number;
  /** Entries that a step attends to. */
  readonly entries: number;
  /** Steps that it may still be there for; 0: it stays where it is. */
  readonly remaining: number;
}

/** A head of a stage that several ranks hold: their shares, and of how many sequences each has room for. */
export interface CopiedHead {
  readonly head: number;
  readonly holders: readonly { readonly rank: number; readonly share: number; readonly room: number }[];
}

export interface PieceMove {
  readonly head: number;
  readonly slot: number;
  readonly from: number;
  readonly to: number;
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
  const excess = whole ? entriesByRank(whole, pieces) : excessByRank(heads, pieces);
  const places = new Map(heads.map(({ head, holders }) => [head, holders.map((holder) => ({ ...holder }))]));
  for (const { head, rank } of pieces) places.get(head)!.find((place) => place.rank === rank)!.room--;
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
    excess.set(from, excess.get(from)! - entries);
    excess.set(to.rank, (excess.get(to.rank) ?? 0) + entries);
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
  const add = (to: Map<number, number>, key: number, entries: number): void =>
    void to.set(key, (to.get(key) ?? 0) + entries);
  for (const { head, rank, entries } of pieces) {
    add(all, head, entries);
    add(excess, rank, entries);
  }
  for (const { head, holders } of heads) {
    for (const { rank, share } of holders) add(excess, rank, -share * (all.get(head) ?? 0));
  }
  return excess;
}

function entriesByRank(
  whole: ReadonlyMap<number, number>,
  pieces: readonly Pick<CopyPiece, 'rank' | 'entries'>[],
): Map<number, number> {
  const all = new Map(whole);
  for (const { rank, entries } of pieces) all.set(rank, (all.get(rank) ?? 0) + entries);
  return all;
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
    for (const to of places.get(head)!) {
      if (to.rank === busiest || to.room <= 0) continue;
      const saved = most - Math.max(most - entries, (excess.get(to.rank) ?? 0) + entries);
      const worth = saved * Math.min(remaining, LASTING) - MOVING * entries;
      if (worth > bestWorth) [best, bestWorth] = [{ piece, to }, worth];
    }
  }
  return best;
}
