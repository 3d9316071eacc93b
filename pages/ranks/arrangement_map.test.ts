import { describe, expect, test } from 'vitest';
import { arrangedPlan } from '../../src/placement/index.js';
import { randomArrangement } from '../../src/placement/testing/arrangements.js';
import { gqaShape } from '../../src/placement/testing/shapes.js';
import { arrangementMap, placementOf, wholeUtilisation } from './arrangement_map.js';

describe('the map of an arrangement', () => {
  const half = [
    { rank: 0, share: 0.5 },
    { rank: 2, share: 0.5 },
  ];
  const on = (rank: number) => [{ rank, share: 1 }];
  const placement = [
    [on(0), half, on(1)],
    [on(1), on(1), on(2)],
  ];

  test('heads by rank, copies named, loads as shares say', () => {
    const [first, second] = arrangementMap(placement, 3, [
      [10, 40, 30],
      [1, 2, 3],
    ]);
    expect(first).toEqual({
      layer: 0,
      ranks: [
        [
          { head: 0, load: 10, share: 1, copies: [] },
          { head: 1, load: 20, share: 0.5, copies: [2] },
        ],
        [{ head: 2, load: 30, share: 1, copies: [] }],
        [{ head: 1, load: 20, share: 0.5, copies: [0] }],
      ],
      loads: [30, 30, 20],
      busiest: 30,
      utilisation: 80 / 90,
    });
    expect(second).toMatchObject({ loads: [0, 3, 3], busiest: 3, utilisation: 6 / 9 });
    expect(wholeUtilisation([first!, second!])).toBeCloseTo(86 / 99, 12);
  });

  test('without loads every head costs the same', () => {
    expect(arrangementMap(placement, 3)[0]!.loads).toEqual([1.5, 1, 0.5]);
  });

  test("a plan's heads lie where its arrangement put them", () => {
    const shape = gqaShape(5, { numLayers: 6 });
    const file = randomArrangement(shape, 4, { seed: 2, copies: 2 });
    const back = placementOf(arrangedPlan(file, shape, 'lanes'), 5);
    expect(back).toEqual(file.placement);
  });
});
