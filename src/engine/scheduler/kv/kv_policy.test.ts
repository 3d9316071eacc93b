import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { chooseMove, type Movable, placeSequence, type PoolLoad } from './kv_policy.js';

const BLOCK = 16;

interface Held {
  readonly tokens: number;
  readonly remaining: number;
}

interface State {
  readonly pools: readonly { readonly weight: number; readonly blocks: number; readonly slots: number }[];
  readonly held: readonly (Held & { readonly pool: number })[];
}

const blocksOf = (tokens: number): number => Math.ceil(tokens / BLOCK);

/** Pools as the policy sees them. */
function loads({ pools, held }: State): PoolLoad[] {
  return pools.map(({ weight, blocks, slots }, index) => {
    const own = held.filter(({ pool }) => pool === index);
    return {
      weight,
      blocks,
      attended: own.reduce((sum, { tokens }) => sum + tokens, 0),
      freeBlocks: blocks - own.reduce((sum, { tokens }) => sum + blocksOf(tokens), 0),
      freeSlots: slots - own.length,
      growing: own.length,
    };
  });
}

const movable = ({ held }: State): (Movable & { readonly index: number })[] =>
  held.map(({ pool, tokens, remaining }, index) => ({
    index,
    pool,
    tokens,
    remaining,
    blocks: blocksOf(tokens),
    most: blocksOf(tokens + remaining),
  }));

const busiest = (state: State): number => Math.max(...loads(state).map(({ attended, weight }) => attended / weight));
const lacking = (state: State): number => loads(state).filter(({ freeBlocks, growing }) => freeBlocks < growing).length;

/** Pools that hold what they were given as long as there was room. */
const state: fc.Arbitrary<State> = fc
  .record({
    pools: fc.array(
      fc.record({
        weight: fc.double({ min: 0.25, max: 4, noNaN: true }),
        blocks: fc.integer({ min: 4, max: 60 }),
        slots: fc.integer({ min: 1, max: 8 }),
      }),
      { minLength: 2, maxLength: 5 },
    ),
    sequences: fc.array(
      fc.record({
        pool: fc.nat(4),
        tokens: fc.integer({ min: 1, max: 300 }),
        remaining: fc.integer({ min: 1, max: 500 }),
      }),
      { maxLength: 24 },
    ),
  })
  .map(({ pools, sequences }) => {
    const held: State['held'][number][] = [];
    for (const sequence of sequences) {
      const pool = sequence.pool % pools.length;
      const { freeBlocks, freeSlots } = loads({ pools, held })[pool]!;
      if (freeSlots > 0 && freeBlocks >= blocksOf(sequence.tokens)) held.push({ ...sequence, pool });
    }
    return { pools, held };
  });

function after(from: State, index: number, to: number): State {
  return { ...from, held: from.held.map((each, at) => (at === index ? { ...each, pool: to } : each)) };
}

describe('moves between pools', () => {
  test('each goes where there is room, and makes the busiest pool less busy or helps one that runs out', () => {
    fc.assert(
      fc.property(state, (before) => {
        const move = chooseMove(loads(before), movable(before));
        if (!move) return;
        const { index, pool, most } = move.sequence;
        expect(move.to).not.toBe(pool);
        const now = after(before, index, move.to);
        const { freeBlocks, freeSlots, growing, blocks } = loads(now)[move.to]!;
        expect(freeBlocks).toBeGreaterThanOrEqual(growing);
        expect(freeSlots).toBeGreaterThanOrEqual(0);
        expect(blocks).toBeGreaterThanOrEqual(most);
        if (lacking(before) === 0) expect(busiest(now)).toBeLessThan(busiest(before));
        else expect(lacking(now)).toBeLessThanOrEqual(lacking(before));
      }),
      { numRuns: 2000, seed: 3 },
    );
  });

  test('they come to an end, and leave no pool short that a move could have helped', () => {
    fc.assert(
      fc.property(state, (before) => {
        let now = before;
        for (let moves = 0; ; moves++) {
          const move = chooseMove(loads(now), movable(now));
          if (!move) break;
          expect(moves, 'moves without end').toBeLessThan(200);
          now = after(now, move.sequence.index, move.to);
        }
        const pools = loads(now);
        for (const sequence of movable(now)) {
          if (pools[sequence.pool]!.freeBlocks >= pools[sequence.pool]!.growing) continue;
          if (sequence.remaining <= sequence.blocks) continue;
          const helps = pools.some(
            ({ freeBlocks, freeSlots, growing, blocks }, index) =>
              index !== sequence.pool &&
              freeSlots > 0 &&
              blocks >= sequence.most &&
              freeBlocks - sequence.blocks > growing,
          );
          expect(helps).toBe(false);
        }
      }),
      { numRuns: 1000, seed: 4 },
    );
  });

  test('a long answer on a crowded rank goes to an idle one of equal weight; a short rest stays', () => {
    const pools = { pools: [0, 1].map(() => ({ weight: 1, blocks: 100, slots: 4 })) };
    const held = (remaining: number): State => ({
      ...pools,
      held: [300, 200, 100].map((tokens) => ({ pool: 0, tokens, remaining })),
    });
    const long = held(200);
    expect(chooseMove(loads(long), movable(long))).toMatchObject({ sequence: { tokens: 300 }, to: 1 });
    const short = held(3);
    expect(chooseMove(loads(short), movable(short))).toBeUndefined();
  });
});

describe('placing a new sequence', () => {
  const pool = (index: number, attended: number, weight = 1, cached = 0) => ({ index, attended, weight, cached });

  test.each([
    ['the least loaded', [pool(0, 500), pool(1, 100), pool(2, 300)], 1],
    ['loads count by share', [pool(0, 300, 4), pool(1, 200, 1)], 0],
    ['equals: the first', [pool(0, 100), pool(1, 100)], 0],
    ['of about equals the one with its beginning cached', [pool(0, 100), pool(1, 120, 1, 60)], 1],
    ['a cached beginning is no reason to crowd', [pool(0, 100), pool(1, 1000, 1, 60)], 0],
    ['none has room', [], undefined],
  ])('%s', (_name, pools, expected) => {
    expect(placeSequence(pools, 64)).toBe(expected);
  });
});
