/**
 * Room: models, machines and arrangements of any shape for tests of placement; toy_policy.ts is a policy that nothing
 * else knows. Here are the shapes.
 */

import fc from 'fast-check';
import type { ModelShape } from '../plan.js';

/** Segment s of `total` elements starts at floor(s total / parts) rounded down to `align`, as the kernels cut contractions. */
function segments(total: number, parts: number, align: number): number[] {
  const start = (s: number): number =>
    s >= parts ? total : Math.floor(Math.floor((s * total) / parts) / align) * align;
  return Array.from({ length: parts }, (_, s) => start(s + 1) - start(s));
}

export function gqaShape(
  kvHeads: number,
  options: Partial<ModelShape> & { group?: number; columns?: number } = {},
): ModelShape {
  const { group = 2, columns = 512, ...rest } = options;
  return {
    numLayers: 4,
    hiddenSize: 256,
    vocabSize: 1000,
    segmentHeads: Array.from({ length: kvHeads }, () => group),
    kvHeads,
    latent: false,
    mlpSegments: segments(columns, 8, 32),
    numExperts: 0,
    ...rest,
  };
}

/** MLA: 8 groups of query heads, empty ones among them where there are fewer than 8 heads. */
export function mlaShape(heads: number, options: Partial<ModelShape> & { columns?: number } = {}): ModelShape {
  const { columns = 512, ...rest } = options;
  return {
    ...gqaShape(1, { columns }),
    segmentHeads: segments(heads, 8, 1),
    latent: true,
    ...rest,
  };
}

/** Models of all kinds, from far too small to cut to large. */
export const anyShape: fc.Arbitrary<ModelShape> = fc
  .record({
    latent: fc.boolean(),
    heads: fc.integer({ min: 1, max: 16 }),
    group: fc.integer({ min: 1, max: 8 }),
    columns: fc.integer({ min: 1, max: 64 }).map((units) => units * 16),
    numLayers: fc.integer({ min: 1, max: 12 }),
    hiddenSize: fc.constantFrom(64, 256, 2048),
    vocabSize: fc.integer({ min: 1, max: 5000 }),
    numExperts: fc.constantFrom(0, 0, 3, 8, 64),
  })
  .map(({ latent, heads, group, ...rest }) => (latent ? mlaShape(heads, rest) : gqaShape(heads, { group, ...rest })));
