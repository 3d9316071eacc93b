import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  CHUNK_TOKENS,
  chunkOwner,
  lanesOf,
  leastLoadedOffset,
  localChunks,
  localChunksOfRun,
  localTokens,
  MERGE_LANES,
} from './owner.js';

const split = fc.integer({ min: 1, max: 20 });
const length = fc.integer({ min: 0, max: 20_000 });
const indices = (s: number) => Array.from({ length: s }, (_, index) => index);
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

test('the published example: 1100 tokens over 4', () => {
  expect(indices(4).map((index) => localTokens(1100, 4, index, 0))).toEqual([332, 256, 256, 256]);
  expect(indices(4).map((index) => localTokens(1100, 4, index, 3))).toEqual([256, 256, 256, 332]);
});

test('every token is held once, where its chunk is', () => {
  fc.assert(
    fc.property(split, length, fc.nat(20), (s, tokens, offset) => {
      const held = indices(s).map(() => 0);
      for (let chunk = 0; chunk * CHUNK_TOKENS < tokens; chunk++) {
        held[chunkOwner(chunk, s, offset)]! += Math.min(CHUNK_TOKENS, tokens - chunk * CHUNK_TOKENS);
      }
      expect(indices(s).map((index) => localTokens(tokens, s, index, offset))).toEqual(held);
      expect(sum(held)).toBe(tokens);
      const room = localChunks(tokens, s) * CHUNK_TOKENS;
      expect(Math.max(...held)).toBeLessThanOrEqual(room);
      // No more room than some offset needs.
      expect(localChunks(tokens, s)).toBe(
        Math.max(...indices(s).map((o) => Math.ceil(localTokens(tokens, s, 0, o) / CHUNK_TOKENS))),
      );
    }),
  );
});

test('an index holds whole merge lanes', () => {
  fc.assert(
    fc.property(split, fc.nat(20), fc.nat(1000), (s, offset, chunk) => {
      const owner = chunkOwner(chunk, s, offset);
      expect(indices(s)).toContain(owner);
      // The next chunk of its lane is there too; before an offset rotates them, lanes are those that a plan lists.
      expect(chunkOwner(chunk + MERGE_LANES, s, offset)).toBe(owner);
      expect(lanesOf(s, chunkOwner(chunk, s, 0))).toContain(chunk % MERGE_LANES);
    }),
  );
});

test('lanes of any number of ranks: every lane once, of more than 8 ranks a number each', () => {
  expect(indices(3).map((index) => lanesOf(3, index))).toEqual([
    [0, 3, 6],
    [1, 4, 7],
    [2, 5],
  ]);
  for (const s of indices(20).map((index) => index + 1)) {
    const all = indices(s).flatMap((index) => lanesOf(s, index));
    expect(all.toSorted((a, b) => a - b)).toEqual(indices(Math.max(s, MERGE_LANES)));
  }
});

test('room for a run of chunks, wherever it begins', () => {
  fc.assert(
    fc.property(split, fc.nat(40), fc.nat(30), fc.nat(20), (s, chunks, first, offset) => {
      const held = indices(s).map(() => 0);
      for (let chunk = first; chunk < first + chunks; chunk++) held[chunkOwner(chunk, s, offset)]!++;
      expect(Math.max(...held)).toBeLessThanOrEqual(localChunksOfRun(chunks, s));
      if (MERGE_LANES % s === 0) expect(localChunksOfRun(chunks, s)).toBe(Math.ceil(chunks / s));
    }),
  );
});

describe('leastLoadedOffset', () => {
  const add = (loads: number[], offset: number, chunks: number): void => {
    for (let chunk = 0; chunk < chunks; chunk++) loads[chunkOwner(chunk, loads.length, offset)]!++;
  };

  test('is the best of all offsets', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(20), { minLength: 1, maxLength: 8 }), fc.nat(40), (loads, chunks) => {
        const worst = indices(loads.length).map((offset) => {
          const after = [...loads];
          add(after, offset, chunks);
          return Math.max(...after);
        });
        expect(worst[leastLoadedOffset(loads, chunks)]).toBe(Math.min(...worst));
      }),
    );
  });

  test('the first chunk of a short sequence goes to the least loaded', () => {
    expect(leastLoadedOffset([3, 1, 2, 5], 1)).toBe(1);
    expect(leastLoadedOffset([3, 1, 2, 0], 0)).toBe(3);
    expect(leastLoadedOffset([0, 0], 1)).toBe(0);
  });

  test('keeps totals even, whatever the lengths', () => {
    fc.assert(
      fc.property(
        split,
        fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 50, maxLength: 200 }),
        (s, sequences) => {
          const loads = indices(s).map(() => 0);
          for (const chunks of sequences) add(loads, leastLoadedOffset(loads, chunks), chunks);
          // Without offsets the surplus of every sequence would pile up: hundreds of chunks. 8 lanes are uneven over 5 ranks, of which all
          // states that these lengths reach are within 12.
          expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(2 * Math.max(s, MERGE_LANES));
        },
      ),
    );
  });
});
