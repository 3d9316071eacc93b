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
 */
export function chooseCopyMoves(heads: readonly CopiedHead[], pieces: readonly CopyPiece[]): PieceMove[] {
  const excess = excessByRank(heads, pieces);
  const left = new Set(pieces);
  const room = new Map(
    heads.flatMap(({ head, holders }) =>
      holders.map(({ rank, room: most }) => {
        const held = pieces.filter((piece) => piece.head === head && piece.rank === rank).length;
        return [`${head} ${rank}`, most - held] as const;
      }),
    ),
  );
  const moves: PieceMove[] = [];
  for (;;) {
    const best = worthiest(heads, left, excess, (head, rank) => room.get(`${head} ${rank}`)! > 0);
    if (!best) return moves;
    const { piece, to } = best;
    const { head, slot, rank: from, entries } = piece;
    moves.push({ head, slot, from, to });
    left.delete(piece);
    excess.set(from, excess.get(from)! - entries);
    excess.set(to, excess.get(to)! + entries);
    room.set(`${head} ${to}`, room.get(`${head} ${to}`)! - 1);
  }
}

/** Entries that each rank has of copied heads beyond its shares of them; added up over ranks, 0. */
export function excessByRank(
  heads: readonly CopiedHead[],
  pieces: readonly Pick<CopyPiece, 'head' | 'rank' | 'entries'>[],
): Map<number, number> {
  const excess = new Map<number, number>();
  const add = (rank: number, entries: number): void => void excess.set(rank, (excess.get(rank) ?? 0) + entries);
  for (const { head, holders } of heads) {
    const own = pieces.filter((piece) => piece.head === head);
    const all = own.reduce((sum, { entries }) => sum + entries, 0);
    for (const { rank, share } of holders) add(rank, -share * all);
    for (const { rank, entries } of own) add(rank, entries);
  }
  return excess;
}

/** From the rank with most too much the piece whose move is worth most, and where to; undefined when none is worth it. */
function worthiest(
  heads: readonly CopiedHead[],
  pieces: ReadonlySet<CopyPiece>,
  excess: ReadonlyMap<number, number>,
  hasRoom: (head: number, rank: number) => boolean,
): { readonly piece: CopyPiece; readonly to: number } | undefined {
  const [busiest, most] = [...excess].reduce(
    (a, b) => (b[1] > a[1] || (b[1] === a[1] && b[0] < a[0]) ? b : a),
    [-1, 0],
  );
  let best: { readonly piece: CopyPiece; readonly to: number } | undefined;
  let bestWorth = 0;
  for (const piece of pieces) {
    if (piece.rank !== busiest) continue;
    const { head, entries, remaining } = piece;
    for (const { rank: to } of heads.find((copied) => copied.head === head)!.holders) {
      if (to === busiest || !hasRoom(head, to)) continue;
      const saved = most - Math.max(most - entries, excess.get(to)! + entries);
      const worth = saved * Math.min(remaining, LASTING) - MOVING * entries;
      if (worth > bestWorth) [best, bestWorth] = [{ piece, to }, worth];
    }
  }
  return best;
}
