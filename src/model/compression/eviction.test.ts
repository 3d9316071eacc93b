import { describe, expect, test } from 'vitest';
import { adaBudgets } from '../../../shaders/compress/selection.js';
import { Random } from '../../base/random.js';
import { ceilDiv } from '../../base/math.js';
import { makePlan } from '../../placement/index.js';
import { gqaShape } from '../../placement/testing/shapes.js';
import { baseEntries, countedEntries, givenBudgets, isCompressed, promptEviction } from './budgets.js';
import { compressionOptions, type KvPolicy } from './options.js';

const BLOCK = 64;
const HEADS = 4;
const shape = gqaShape(HEADS);
const model = { numLayers: shape.numLayers, numKvHeads: HEADS };

/** Scores of which some heads have nearly all the best. */
function scoresOf(random: Random, keys: number): Float64Array[] {
  return Array.from({ length: HEADS }, () => {
    const weight = 10 ** (3 * random.next());
    return Float64Array.from({ length: keys }, () => weight * random.next());
  });
}

describe('what a pager that counts tokens takes for compressed heads', () => {
  test.each<[KvPolicy, string, number]>([
    ['snap', 'tp', 4],
    ['ada', 'single', 1],
    ['ada', 'tp', 2],
    ['ada', 'tp', 4],
    ['static', 'tp', 4],
    ['static', 'pp', 2],
  ])("'%s', %s of %i: is never less than the blocks of any rank's heads", (policy, name, ranks) => {
    const random = new Random(ranks);
    const plan = makePlan(name, ranks, shape);
    let evictedSome = false;
    for (let run = 0; run < 150; run++) {
      const loads = Array.from({ length: model.numLayers }, () =>
        Array.from({ length: HEADS }, () => random.next() ** 3),
      );
      const window = 1 + random.integer(40);
      const given = { policy, budget: 0.02 + random.next() * 0.98, window, floor: random.integer(11) / 10, loads };
      const options = compressionOptions(given, model);
      const length = 1 + random.integer(1500);
      const { windowOf, evictedOf } = promptEviction(options, model, plan, BLOCK);
      const evicted = evictedOf(length);
      expect(windowOf(length)).toBe(isCompressed(options, length) ? window : 0);
      expect(evicted).toBeLessThanOrEqual(Math.max(length - window, 0));
      if (!isCompressed(options, length)) {
        expect(evicted).toBe(0);
        continue;
      }
      evictedSome ||= evicted > 0;
      const fixed = givenBudgets(options, model, length);
      for (const { layers, shares } of plan.stages) {
        for (let layer = layers[0]; layer < layers[1]; layer++) {
          const base = baseEntries(options, length);
          const budgets =
            policy === 'ada' ? adaBudgets(scoresOf(random, length - window), base, options.floor) : fixed[layer]!;
          const tokens = length + random.integer(300);
          const blocks = (kept: number): number => ceilDiv(tokens - (length - kept), BLOCK);
          for (const { kvHeads } of shares) {
            const taken = kvHeads.reduce((sum, head) => sum + blocks(Math.min(length, budgets[head]! + window)), 0);
            expect(taken).toBeLessThanOrEqual(kvHeads.length * ceilDiv(tokens - evicted, BLOCK));
          }
        }
      }
    }
    expect(evictedSome).toBe(true);
  });

  test("'snap' on any plan: exactly what is gone", () => {
    const options = compressionOptions({ policy: 'snap', budget: 0.25 }, model);
    const { evictedOf } = promptEviction(options, model, makePlan('tp', 2, shape), BLOCK);
    expect([20, 100, 400, 1000].map(evictedOf)).toEqual([0, 68, 300, 750]);
  });

  test('heads as they turned out: no fewer blocks than they take, whatever comes behind, and never a block of each too many', () => {
    const random = new Random(9);
    const taken = (kept: readonly number[], more: number): number =>
      kept.reduce((sum, own) => sum + ceilDiv(own + more, BLOCK), 0);
    for (let run = 0; run < 300; run++) {
      const kept = Array.from({ length: 1 + random.integer(8) }, () => 1 + random.integer(900));
      const counted = countedEntries(kept, BLOCK);
      const enough = (entries: number): boolean =>
        Array.from({ length: 2 * BLOCK }, (_, more) => more).every(
          (more) => taken(kept, more) <= kept.length * ceilDiv(entries + more, BLOCK),
        );
      expect(enough(counted)).toBe(true);
      expect(counted).toBeLessThan(kept.reduce((a, b) => a + b) / kept.length + BLOCK);
    }
    expect(countedEntries([200, 200, 200], BLOCK)).toBe(200);
    expect(countedEntries([64, 128], BLOCK)).toBe(128);
    expect(countedEntries([65, 127], BLOCK)).toBe(127);
    expect(countedEntries([64, 192, 128], BLOCK)).toBe(128);
  });
});
