import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { MERGE_LANES } from '../../cache/kv_cache.js';
import { localLanes } from '../share.js';
import { mostLanesOf, slotsOf } from '../share_fixture.js';
import { type LaneContributor, laneSources } from './lane_sources.js';

const ROWS = 3;

/** Masks of 1 to 8 ranks, each slot of one of them; some may hold none. */
function randomMasks(random: Random): number[] {
  const masks = Array.from({ length: 1 + random.integer(MERGE_LANES) }, () => 0);
  for (let slot = 0; slot < MERGE_LANES; slot++) masks[random.integer(masks.length)]! |= 1 << slot;
  return masks;
}

/** The state of a lane as the kernel finds it (attention_merge.wgsl); `sharers`: ranks that share sequences, or copies. */
function stateOf(
  sources: Uint32Array,
  bundleHeads: number,
  [head, row, lane, offset]: readonly number[],
  sharers?: number,
): number {
  const slots = sharers ?? MERGE_LANES;
  const at = (Math.floor(head! / bundleHeads) * slots + ((lane! + offset!) % slots)) * 2;
  const [base, mask] = [sources[at]!, sources[at + 1]!];
  const rotated = ((mask >> offset!) | (mask << (MERGE_LANES - offset!))) & 0xff;
  const below = rotated & ((1 << lane!) - 1);
  const local = sharers ? Math.floor(lane! / sharers) : below.toString(2).replaceAll('0', '').length;
  return base + (local * ROWS + row!) * bundleHeads + (head! % bundleHeads);
}

test('every lane is found where the rank that holds it wrote it, whatever the offset', () => {
  const random = new Random(71);
  for (let round = 0; round < 40; round++) {
    const bundleHeads = 1 + random.integer(3);
    const bundles = Array.from({ length: 1 + random.integer(3) }, () => randomMasks(random));
    let end = random.integer(10);
    const contributors = bundles.map((masks) =>
      masks.map((mask): LaneContributor => {
        const slots = slotsOf(mask);
        const lanes = mostLanesOf(slots, MERGE_LANES);
        const base = end;
        end += lanes * ROWS * bundleHeads + random.integer(5);
        return { slots, base, lanes };
      }),
    );
    const sources = laneSources(contributors, { rows: ROWS, bundleHeads });
    expect(sources).toHaveLength(bundles.length * MERGE_LANES * 2);
    for (let offset = 0; offset < MERGE_LANES; offset++) {
      // Brute force: each rank writes its lanes, those that it has of lanes 0 to 7, one behind the other.
      const written = new Map<number, string>();
      for (const [bundle, ranks] of contributors.entries()) {
        for (const { slots, base } of ranks) {
          let next = base;
          for (let lane = 0; lane < MERGE_LANES; lane++) {
            if (!slots.includes((lane + offset) % MERGE_LANES)) continue;
            for (let row = 0; row < ROWS; row++) {
              for (let i = 0; i < bundleHeads; i++) written.set(next++, `${bundle * bundleHeads + i} ${row} ${lane}`);
            }
          }
        }
      }
      for (let head = 0; head < bundles.length * bundleHeads; head++) {
        for (let row = 0; row < ROWS; row++) {
          for (let lane = 0; lane < MERGE_LANES; lane++) {
            const state = stateOf(sources, bundleHeads, [head, row, lane, offset]);
            expect(written.get(state)).toBe(`${head} ${row} ${lane}`);
          }
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
        expect(stateOf(sources, 2, [1, 2, lane, offset], ranks)).toBe(at + 2 * 2 + 1);
      }
    }
    for (let chunks = 1; chunks < 12; chunks++) {
      const most = localLanes(chunks, { ranks });
      expect(mostLanesOf([ranks - 1], chunks, ranks)).toBe([2, 4].includes(ranks) ? 1 : most);
    }
  }
});

test('lanes that no rank or two hold are refused, and states in the same place', () => {
  const states = { rows: ROWS, bundleHeads: 2 };
  const of = (...masks: readonly number[]): LaneContributor[] =>
    masks.map((mask, i) => ({ slots: slotsOf(mask), base: i * 48, lanes: 8 }));
  expect(() => laneSources([of(0xff), of(0x7f)], states)).toThrow(/lane slot 7 of bundle 1 is held by 0 ranks/);
  expect(() => laneSources([of(0xff, 2)], states)).toThrow(/lane slot 1 of bundle 0 is held by 2 ranks/);
  expect(() => laneSources([of(0x0f, 0xf0), of(0xff)], states)).toThrow(/of bundle [01] from 0 on overlap/);
  const narrow = of(0x0f, 0xf0).map((contributor, i) => ({ ...contributor, base: i * 47 }));
  expect(() => laneSources([narrow], states)).toThrow(/from 47 on overlap those of bundle 0, which end at 48/);
});
