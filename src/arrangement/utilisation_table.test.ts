import { describe, expect, test } from 'vitest';
import { lognormalLoads } from './testing/loads.js';
import { EXPECTED, meanUtilisation, utilisationOfPrompts } from './testing/utilisation_table.js';

const LAYERS = 64;
/** Of a mean over 64 layers whose utilisation scatters by some 0.15. */
const SCATTER = 0.045;

describe.each(EXPECTED)('$heads kv heads on $ranks ranks, lognormal loads', ({ heads, ranks, more, utilisation }) => {
  const loads = lognormalLoads(11, LAYERS, heads);
  const [asStatic, noCopy, oneCopy, moreCopies, wrapped] = utilisation;

  test('static waits as long as was found before', () => {
    expect(Math.abs(meanUtilisation(loads, ranks, { mode: 'static' }) - asStatic)).toBeLessThan(SCATTER);
  });

  test('arranging gains at least what was found before', () => {
    const expectAtLeast = (found: number, least: number): void => expect(found).toBeGreaterThan(least - SCATTER);
    expectAtLeast(meanUtilisation(loads, ranks, { mode: 'exact', copies: 0 }), noCopy);
    expectAtLeast(meanUtilisation(loads, ranks, { mode: 'fair-copy', copies: 1 }), oneCopy);
    expectAtLeast(meanUtilisation(loads, ranks, { mode: 'fair-copy', copies: more }), moreCopies);
    expectAtLeast(meanUtilisation(loads, ranks, { mode: 'wrap', batch: 8 }), wrapped);
  });
});

test.each([
  [8, 4, 8],
  [8, 8, 24],
  [32, 8, 16],
])(
  '%i kv heads on %i ranks, %i copies: single prompts keep ranks busy once lanes are shared anew',
  (heads, ranks, copies) => {
    const loads = lognormalLoads(1, 8, heads);
    for (const spread of [0.2, 0.4]) {
      const [planned, shared] = utilisationOfPrompts(loads, ranks, copies, spread);
      expect(shared).toBeGreaterThan(0.9);
      expect(shared).toBeGreaterThan(planned + 0.03);
    }
  },
);
