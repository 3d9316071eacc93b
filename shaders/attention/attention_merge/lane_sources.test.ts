import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { laneWord } from '../../cache/head_tables.js';
import { MERGE_LANES } from '../../cache/kv_cache.js';
import { localLanes } from '../share.js';
import { mostLanesOf } from '../share_fixture.js';
import { type LaneContributor, laneSources } from './lane_sources.js';

const ROWS = 3;

/** Of the copies of a head, the number of the one that holds each lane; some may hold none. */
function randomCopies(random: Random): number[] {
  const copies = 1 + random.integer(MERGE_LANES);
  return Array.from({ length: MERGE_LANES }, () => random.integer(copies));
}

/** The state of a lane, from where its rank's begin, as the kernel finds it (attention_merge.wgsl). */
const stateAt = (base: number, local: number, bundleHeads: number, [head, row]: readonly number[]): number =>
  base + (local * ROWS + row!) * bundleHeads + (head! % bundleHeads);

test('copies: every lane is found where the rank that holds it wrote it', () => {
  const random = new Random(71);
  for (let round = 0; round < 40; round++) {
    const bundleHeads = 1 + random.integer(3);
    const bundles = Array.from({ length: 1 + random.integer(3) }, () => randomCopies(random));
    let end = random.integer(10);
    const contributors = bundles.map((byLane) =>
      Array.from({ length: Math.max(...byLane) + 1 }, (_, number): LaneContributor => {
        const lanes = byLane.filter((copy) => copy === number).length;
        const base = end;
        end += lanes * ROWS * bundleHeads + random.integer(5);
        return { slots: [number], base, lanes };
      }),
    );
    const sources = laneSources(contributors, { rows: ROWS, bundleHeads });
    expect(sources).toHaveLength(bundles.length * MERGE_LANES);
    // Brute force: each rank writes its lanes one behind the other.
    const written = new Map<number, string>();
    for (const [bundle, ranks] of contributors.entries()) {
      for (const [number, { base }] of ranks.entries()) {
        let next = base;
        for (let lane = 0; lane < MERGE_LANES; lane++) {
          if (bundles[bundle]![lane] !== number) continue;
          for (let row = 0; row < ROWS; row++) {
            for (let i = 0; i < bundleHeads; i++) written.set(next++, `${bundle * bundleHeads + i} ${row} ${lane}`);
          }
        }
      }
    }
    for (let head = 0; head < bundles.length * bundleHeads; head++) {
      const bundle = Math.floor(head / bundleHeads);
      const word = laneWord(bundles[bundle]!);
      const copyOf = (lane: number): number => (word >>> (4 * lane)) & 15;
      for (let row = 0; row < ROWS; row++) {
        for (let lane = 0; lane < MERGE_LANES; lane++) {
          const copy = copyOf(lane);
          const local = Array.from({ length: lane }, (_, other) => other).filter((other) => copyOf(other) === copy);
          const base = sources[bundle * MERGE_LANES + copy]!;
          expect(written.get(stateAt(base, local.length, bundleHeads, [head, row]))).toBe(`${head} ${row} ${lane}`);
        }
      }
    }
  }
});

test('ranks that share sequences: lane l of a sequence is the (l / ranks)th of its rank', () => {
  for (const ranks of [1, 2, 3, 4, 5, 6, 7, 8, 9, 16]) {
    const lanes = localLanes(MERGE_LANES, { ranks });
    const contributors = Array.from({ length: ranks }, (_, index): LaneContributor => ({
      slots: [index],
      base: 5 + index * lanes * ROWS * 2,
      lanes,
    }));
    const sources = laneSources([contributors], { rows: ROWS, bundleHeads: 2, slots: ranks });
    for (let offset = 0; offset < 20; offset++) {
      for (let lane = 0; lane < MERGE_LANES; lane++) {
        const rank = (lane + offset) % ranks;
        const at = 5 + (rank * lanes + Math.floor(lane / ranks)) * ROWS * 2;
        expect(stateAt(sources[rank]!, Math.floor(lane / ranks), 2, [1, 2])).toBe(at + 2 * 2 + 1);
      }
    }
    for (let chunks = 1; chunks < 12; chunks++) {
      const most = localLanes(chunks, { ranks });
      expect(mostLanesOf([ranks - 1], chunks, ranks)).toBe([2, 4].includes(ranks) ? 1 : most);
    }
  }
});

test('places that no rank or two hold are refused, and states in the same place', () => {
  const states = { rows: ROWS, bundleHeads: 2 };
  const of = (...places: readonly number[]): LaneContributor[] =>
    places.map((place, i) => ({ slots: [place], base: i * 48, lanes: 8 }));
  expect(() => laneSources([of(0, 2)], { ...states, slots: 3 })).toThrow(/place 1 of bundle 0 is held by 0 ranks/);
  expect(() => laneSources([of(0), of(1)], states)).toThrow(/place 0 of bundle 1 is held by 0 ranks/);
  expect(() => laneSources([of(0, 1, 1)], states)).toThrow(/place 1 of bundle 0 is held by 2 ranks/);
  expect(() => laneSources([of(0, 1), of(0)], states)).toThrow(/of bundle [01] from 0 on overlap/);
  const narrow = of(0, 1).map((contributor, i) => ({ ...contributor, base: i * 47 }));
  expect(() => laneSources([narrow], states)).toThrow(/from 47 on overlap those of bundle 0, which end at 48/);
});
