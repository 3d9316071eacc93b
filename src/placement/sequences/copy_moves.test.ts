import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { chooseCopyMoves, type CopiedHead, type CopyPiece, excessByRank } from './copies.js';

const head = (number: number, ranks: readonly number[], parts: readonly number[], room = 100): CopiedHead => {
  const all = parts.reduce((a, b) => a + b);
  return { head: number, holders: ranks.map((rank, at) => ({ rank, share: parts[at]! / all, room })) };
};

/** Heads on two to four of six ranks, and up to eight sequences, each somewhere. */
const stages = fc
  .array(
    fc.record({
      ranks: fc.uniqueArray(fc.integer({ min: 0, max: 5 }), { minLength: 2, maxLength: 4 }),
      parts: fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 4, maxLength: 4 }),
      room: fc.integer({ min: 1, max: 8 }),
      places: fc.array(fc.nat(), { minLength: 8, maxLength: 8 }),
    }),
    { minLength: 1, maxLength: 4 },
  )
  .chain((list) =>
    fc
      .array(fc.record({ entries: fc.integer({ min: 1, max: 3000 }), remaining: fc.integer({ min: 0, max: 200 }) }), {
        maxLength: 8,
      })
      .map((sequences) => {
        const heads = list.map(({ ranks, parts, room }, at) => head(at, ranks, parts.slice(0, ranks.length), room));
        const pieces = list.flatMap(({ ranks, places }, at): CopyPiece[] =>
          sequences.map((sequence, slot) => ({
            head: at,
            slot,
            rank: ranks[places[slot]! % ranks.length]!,
            ...sequence,
          })),
        );
        return { heads, pieces };
      }),
  );

const after = (pieces: readonly CopyPiece[], moves: ReturnType<typeof chooseCopyMoves>): CopyPiece[] =>
  pieces.map((piece) => {
    const move = moves.find(({ head: of, slot }) => of === piece.head && slot === piece.slot);
    return move ? { ...piece, rank: move.to } : piece;
  });

const most = (heads: readonly CopiedHead[], pieces: readonly CopyPiece[]): number =>
  Math.max(...excessByRank(heads, pieces).values());

/** Entries that the busiest rank has at least, whichever copies keep which pieces. */
function leastBusiest(heads: readonly CopiedHead[], pieces: readonly CopyPiece[]): number {
  let least = Infinity;
  const place = (index: number, by: ReadonlyMap<number, number>): void => {
    const most = Math.max(0, ...by.values());
    if (most >= least) return;
    const piece = pieces[index];
    if (!piece) {
      least = most;
      return;
    }
    for (const { rank } of heads[piece.head]!.holders) {
      place(index + 1, new Map(by).set(rank, (by.get(rank) ?? 0) + piece.entries));
    }
  };
  place(0, new Map());
  return least;
}

describe('pieces of copied heads that move', () => {
  test('two heads on three ranks: as even as two sequences can be, if they run long enough; one leaves a rank idle', () => {
    const heads = [head(0, [0, 1], [5, 3]), head(1, [1, 2], [3, 5])];
    const pieces = (remaining: number): CopyPiece[] =>
      [
        { head: 0, slot: 0, rank: 0, entries: 331 },
        { head: 0, slot: 1, rank: 0, entries: 390 },
        { head: 1, slot: 0, rank: 1, entries: 331 },
        { head: 1, slot: 1, rank: 2, entries: 390 },
      ].map((piece) => ({ ...piece, remaining }));
    const busiest = (all: readonly CopyPiece[]): number =>
      Math.max(...[0, 1, 2].map((of) => all.reduce((sum, { rank, entries }) => sum + (rank === of ? entries : 0), 0)));
    const [lasting, short] = [pieces(100), pieces(6)];
    expect(busiest(lasting)).toBe(721);
    expect(busiest(after(lasting, chooseCopyMoves(heads, lasting)))).toBe(leastBusiest(heads, lasting));
    expect(leastBusiest(heads, lasting)).toBe(662);
    // To move 331 entries takes longer than six steps with 59 entries less to read.
    expect(chooseCopyMoves(heads, short)).toEqual([]);
    const lone = lasting.filter(({ slot }) => slot === 0);
    expect(busiest(lone)).toBe(leastBusiest(heads, lone));
  });

  test('each once, to another copy, within its room; and the busiest rank never becomes busier', () => {
    fc.assert(
      fc.property(stages, ({ heads, pieces }) => {
        const moves = chooseCopyMoves(heads, pieces);
        expect(new Set(moves.map(({ head: of, slot }) => `${of} ${slot}`)).size).toBe(moves.length);
        for (const { head: of, slot, from, to } of moves) {
          const piece = pieces.find((one) => one.head === of && one.slot === slot)!;
          expect(piece.rank).toBe(from);
          expect(piece.remaining).toBeGreaterThan(0);
          expect(to).not.toBe(from);
          const { room } = heads[of]!.holders.find(({ rank }) => rank === to)!;
          // Those that leave are still there while others come.
          const there = pieces.filter((one) => one.head === of && one.rank === to).length;
          const come = moves.filter((one) => one.head === of && one.to === to).length;
          expect(there + come).toBeLessThanOrEqual(room);
        }
        const now = after(pieces, moves);
        expect(most(heads, now)).toBeLessThanOrEqual(most(heads, pieces) + 1e-9);
        // Every rank decides for itself, alike.
        expect(chooseCopyMoves(heads, pieces)).toEqual(moves);
      }),
    );
  });

  test('one head on two ranks: as even as single moves can make it, where they cost little', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.integer({ min: 1, max: 3000 }), fc.boolean()), { minLength: 1, maxLength: 10 }),
        fc.integer({ min: 1, max: 4 }),
        (sequences, part) => {
          const heads = [head(0, [2, 5], [part, 1])];
          const pieces = sequences.map(([entries, first], slot) => ({
            head: 0,
            slot,
            rank: first ? 2 : 5,
            entries,
            remaining: 500,
          }));
          const now = after(pieces, chooseCopyMoves(heads, pieces));
          const excess = excessByRank(heads, now);
          const [above, over] = [...excess].reduce((a, b) => (b[1] > a[1] ? b : a));
          const moved = new Set(now.filter((piece, at) => piece.rank !== pieces[at]!.rank).map(({ slot }) => slot));
          for (const { rank, slot, entries } of now) {
            if (rank !== above || moved.has(slot)) continue;
            // Moving it would take less than an eighth of itself off the busier rank's load.
            expect(over - Math.max(over - entries, entries - over)).toBeLessThanOrEqual(entries / 8 + 1e-6);
          }
        },
      ),
    );
  });

  const even = [head(3, [0, 1], [1, 1]), head(4, [0, 1], [1, 1])];
  const piece = (slot: number, of: number, rank: number, remaining = 100): CopyPiece => ({
    head: of,
    slot,
    rank,
    entries: 400,
    remaining,
  });

  test('what is left after half of the sequences ended is shared out again', () => {
    const one = even.slice(0, 1);
    const moves = chooseCopyMoves(one, [piece(0, 3, 0), piece(2, 3, 0)]);
    expect(moves).toEqual([{ head: 3, slot: 0, from: 0, to: 1 }]);
    expect(chooseCopyMoves(one, [piece(0, 3, 1), piece(2, 3, 0)])).toEqual([]);
  });

  test('heads are weighed together: of one sequence, one head each', () => {
    expect(chooseCopyMoves(even, [piece(0, 3, 1), piece(0, 4, 1)])).toHaveLength(1);
    expect(chooseCopyMoves(even, [piece(0, 3, 1), piece(0, 4, 0)])).toEqual([]);
  });

  test('not for sequences that end soon, may not move, or would help less than they cost', () => {
    const one = even.slice(0, 1);
    for (const [remaining, count] of [
      [0, 0],
      [8, 0],
      [9, 1],
    ] as const) {
      expect(chooseCopyMoves(one, [piece(0, 3, 0, remaining), piece(2, 3, 0, remaining)])).toHaveLength(count);
    }
    // 1000 of 1900 entries moved: 50 less on the busiest rank.
    const long = { ...piece(0, 3, 0), entries: 1000 };
    const short = { ...piece(1, 3, 1), entries: 900 };
    expect(chooseCopyMoves(one, [long, short])).toEqual([]);
  });

  test('not where there is no room', () => {
    const full = [head(3, [0, 1], [1, 1], 1)];
    const there = { ...piece(1, 3, 1), entries: 1 };
    expect(chooseCopyMoves(full, [{ ...piece(0, 3, 0), entries: 900 }, piece(2, 3, 0), there])).toEqual([]);
  });
});
