import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  makePlan,
  maxSequences,
  type ModelShape,
  type ModelSizes,
  planMemory,
  roomByPlace,
  sequenceWeights,
} from '../index.js';

/** Llama 3.2 1B in f16: 16 layers, 8 kv heads of 64, tied embedding. */
const shape: ModelShape = {
  numLayers: 16,
  hiddenSize: 2048,
  vocabSize: 128256,
  segmentHeads: Array.from({ length: 8 }, () => 4),
  kvHeads: 8,
  latent: false,
  mlpSegments: Array.from({ length: 8 }, () => 1024),
  numExperts: 0,
};
const eighths = (bytes: number): number[] => Array.from({ length: 8 }, () => bytes / 8);
const sizes: ModelSizes = {
  layers: Array.from({ length: 16 }, () => ({
    attentionShared: 0,
    attentionSegments: eighths(2 * 2048 * (2 * 2048 + 2 * 512)),
    mlpShared: 2 * 2048 * 4,
    mlpSegments: eighths(2 * 3 * 2048 * 8192),
    expert: 0,
    kvToken: 2 * 64 * 2,
  })),
  embeddingRow: 2048 * 2,
  headRow: 2048 * 2,
  finalNorm: 2048 * 4,
  tied: true,
};
const GB = 1e9;
const options = { contextLength: 8192, block: 64 };

/** Sequences of 8192 tokens at once, or why there are none. */
function sequences(policy: string, budgets: readonly number[]): number | string {
  if (policy === 'data parallel') {
    const one = makePlan('single', 1, shape);
    return budgets.reduce((sum, budget) => sum + maxSequences(one, sizes, options, [budget]), 0);
  }
  try {
    let plan = makePlan(policy, budgets.length, shape);
    if (policy === 'token') {
      const fixed = planMemory(plan, sizes, { ...options, slots: 0 });
      const rooms = fixed.map(({ weightBytes }, rank) => ({ bytes: budgets[rank]! - weightBytes }));
      const weights = sequenceWeights(roomByPlace(plan, rooms), Infinity);
      plan = makePlan(policy, budgets.length, shape, { sequenceWeights: weights });
    }
    return maxSequences(plan, sizes, options, budgets);
  } catch {
    return '-';
  }
}

describe('KV capacity on the same memory', () => {
  const cases: readonly (readonly [string, readonly number[]])[] = [
    ['2 x 4 GB', [4, 4]],
    ['4 x 4 GB', [4, 4, 4, 4]],
    ['3 x 4 GB', [4, 4, 4]],
    ['8 + 2 + 2 GB', [8, 2, 2]],
    ['4 x 3 GB', [3, 3, 3, 3]],
  ];
  const rows = cases.map(([name, gigabytes]) => {
    const budgets = gigabytes.map((size) => size * GB);
    return { name, of: ['token', 'tp', 'data parallel'].map((policy) => sequences(policy, budgets)) };
  });

  test('the table of docs/token.md', () => {
    const cell = (count: number | string): string =>
      typeof count === 'number' ? `${count} (${(count * 8192).toLocaleString('en')})` : count;
    const table = rows.map(({ name, of }) => `| ${name} | ${of.map(cell).join(' | ')} |`).join('\n');
    if (process.env['SPLITKV_PRINT']) console.log(table);
    const unpadded = readFileSync('docs/token.md', 'utf8').replace(/ +\|/g, ' |');
    expect(unpadded).toContain(table);
  });

  test('a token plan holds more than data parallel ranks, and at least as much as tp where ranks differ', () => {
    for (const { of } of rows) expect(of[0]).toBeGreaterThan(of[2] as number);
    expect(rows[3]!.of[0]).toBeGreaterThan(rows[3]!.of[1] === '-' ? 0 : (rows[3]!.of[1] as number));
  });
});
