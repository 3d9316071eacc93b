import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { chooseGroup, chooseShift, type GroupLoad, groupsWorth } from './micro_batches.js';

interface Held {
  readonly rank: number;
  readonly group: number;
  readonly tokens: number;
  readonly remaining: number;
}

interface State {
  /** Slots of each rank in each group. */
  readonly slots: number;
  readonly ranks: number;
  readonly groups: number;
  readonly rowsEach: number;
  readonly held: readonly Held[];
}

const indices = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

const rowsOf = ({ groups, held }: State): number[] =>
  indices(groups).map((group) => held.filter((each) => each.group === group).length);

/** By rank and group. */
function loads(state: State): GroupLoad[][] {
  const rows = rowsOf(state);
  return indices(state.ranks).map((rank) =>
    rows.map((count, group) => {
      const own = state.held.filter((each) => each.rank === rank && each.group === group);
      return {
        rows: count,
        attended: own.reduce((sum, { tokens }) => sum + tokens, 0),
        freeSlots: state.slots - own.length,
      };
    }),
  );
}

/** The step of the micro-batch that takes longest: its part of the rows, and of the attention of its busiest rank. */
function longest(state: State): number {
  const all = loads(state);
  const busiest = Math.max(1, ...all.map((groups) => groups.reduce((sum, { attended }) => sum + attended, 0)));
  return Math.max(
    ...rowsOf(state).map(
      (rows, group) => rows / state.held.length + Math.max(...all.map((of) => of[group]!.attended)) / busiest,
    ),
  );
}

const state: fc.Arbitrary<State> = fc
  .record({
    slots: fc.integer({ min: 1, max: 8 }),
    ranks: fc.integer({ min: 1, max: 3 }),
    groups: fc.integer({ min: 1, max: 4 }),
    rowsEach: fc.constantFrom(1, 2, 8),
    sequences: fc.array(
      fc.record({
        rank: fc.nat(2),
        group: fc.nat(3),
        tokens: fc.integer({ min: 1, max: 400 }),
        remaining: fc.integer({ min: 1, max: 500 }),
      }),
      { maxLength: 30 },
    ),
  })
  .map(({ sequences, ...rest }) => {
    let held: State['held'] = [];
    for (const { rank, group, ...sequence } of sequences) {
      const next = { ...sequence, rank: rank % rest.ranks, group: group % rest.groups };
      const place = loads({ ...rest, held })[next.rank]![next.group]!;
      if (place.freeSlots > 0) held = [...held, next];
    }
    return { ...rest, held };
  });

describe('placing', () => {
  test('in a free slot where there is one; no micro-batch is opened before another would be worth it or those open are full', () => {
    fc.assert(
      fc.property(state, fc.nat(2), fc.integer({ min: 1, max: 400 }), (now, at, tokens) => {
        const own = loads(now)[at % now.ranks]!;
        const group = chooseGroup(own, tokens, now.rowsEach);
        const free = own.filter(({ freeSlots }) => freeSlots > 0);
        if (group === undefined) {
          expect(free).toEqual([]);
          return;
        }
        expect(own[group]!.freeSlots).toBeGreaterThan(0);
        const used = own.filter(({ rows }) => rows > 0);
        const opens = own[group]!.rows === 0;
        if (opens && used.some(({ freeSlots }) => freeSlots > 0)) {
          expect(used.length).toBeLessThan(groupsWorth(now.held.length + 1, now.rowsEach, now.groups));
        }
      }),
      { numRuns: 1000, seed: 1 },
    );
  });

  test.each([[1], [8]])(
    'sequences that come one by one, another micro-batch for each %i: rows and attention are halved',
    (rowsEach) => {
      let now: State = { slots: 12, ranks: 2, groups: 2, rowsEach, held: [] };
      for (const index of indices(24)) {
        const sequence = { rank: index % 2, tokens: 100 + ((index * 37) % 90), remaining: 300 };
        const group = chooseGroup(loads(now)[sequence.rank]!, sequence.tokens, rowsEach)!;
        now = { ...now, held: [...now.held, { ...sequence, group }] };
      }
      const [one, other] = rowsOf(now);
      expect(Math.abs(one! - other!)).toBeLessThanOrEqual(2);
      for (const groups of loads(now)) {
        const [least, most] = groups.map(({ attended }) => attended).toSorted((a, b) => a - b);
        expect(least! / most!).toBeGreaterThan(0.7);
      }
    },
  );

  test('few sequences stay in one micro-batch', () => {
    expect([1, 8, 9, 16, 17, 40].map((sequences) => groupsWorth(sequences, 8, 2))).toEqual([1, 1, 2, 2, 2, 2]);
    expect([1, 2, 3, 4, 9].map((sequences) => groupsWorth(sequences, 1, 4))).toEqual([1, 2, 3, 4, 4]);
  });
});

describe('shifts', () => {
  test('each goes to a free slot, and either shortens the longest step or brings few together; they come to an end', () => {
    let seen = 0;
    fc.assert(
      fc.property(state, (before) => {
        let now = before;
        for (let shifts = 0; ; shifts++) {
          const own = loads(now);
          const shift = chooseShift(own, now.held, now.rowsEach);
          if (!shift) break;
          seen++;
          expect(shifts, 'shifts without end').toBeLessThan(60);
          const { sequence, to } = shift;
          expect(to).not.toBe(sequence.group);
          expect(own[sequence.rank]![to]!.freeSlots).toBeGreaterThan(0);
          const next = { ...now, held: now.held.map((each) => (each === sequence ? { ...each, group: to } : each)) };
          const rows = rowsOf(now);
          const used = rows.filter((count) => count > 0).length;
          if (now.held.length * 2 <= now.rowsEach * (used - 1)) {
            expect(rows[sequence.group]).toBe(Math.min(...rows.filter((count) => count > 0)));
            expect(rows[to]).toBeGreaterThan(0);
          } else expect(longest(next)).toBeLessThan(longest(now));
          now = next;
        }
      }),
      { numRuns: 1000, seed: 2 },
    );
    expect(seen).toBeGreaterThan(500);
  });

  const group = (count: number, of: number, remaining = 200): Held[] =>
    Array.from({ length: count }, () => ({ rank: 0, group: of, tokens: 100, remaining }));
  const shifted = (held: readonly Held[], rowsEach = 8) =>
    chooseShift(loads({ slots: 16, ranks: 1, groups: 2, rowsEach, held }), held, rowsEach);

  test('ten and two become even, six and six stay, and so do ten and two that end soon', () => {
    expect(shifted([...group(10, 0), ...group(2, 1)])).toMatchObject({ sequence: { group: 0 }, to: 1 });
    expect(shifted([...group(6, 0), ...group(6, 1)])).toBeUndefined();
    expect(shifted([...group(10, 0, 8), ...group(2, 1, 8)])).toBeUndefined();
  });

  test('few come together, with a gap between where they part and where they join', () => {
    expect(shifted([...group(3, 0), ...group(1, 1)])).toMatchObject({ sequence: { group: 1 }, to: 0 });
    expect(shifted([...group(3, 0), ...group(3, 1)])).toBeUndefined();
    expect(shifted([...group(3, 0), ...group(1, 1)], 1)).toMatchObject({ sequence: { group: 0 }, to: 1 });
  });
});
