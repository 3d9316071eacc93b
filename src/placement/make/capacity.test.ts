import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import fc from 'fast-check';
import { sum } from '../../base/lists.js';
import {
  makePlan,
  type ModelShape,
  type ModelSizes,
  type Plan,
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
/** Bytes of a sequence's keys and values: 16 layers, 8 heads of 64, two bytes each. */
const SEQUENCE = 8192 * 16 * 8 * 2 * 64 * 2;
/** All weights, which the root holds. */
const WEIGHTS = 2 * (16 * (2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192 + 2 * 2 * 2048) + 128256 * 2048) + 4 * 2048;

/** Of so many sequences: a plan for them. Its ranks have room for them. */
type PlanOf = (slots: number) => Plan;
const fits = (plan: Plan, slots: number, budgets: readonly number[]): boolean =>
  planMemory(plan, sizes, { ...options, slots }).every(({ rank, totalBytes }) => totalBytes <= budgets[rank]!);

/** The most sequences of 8192 tokens whose caches fit the budgets beside the weights. */
function most(planOf: PlanOf, budgets: readonly number[]): number {
  let slots = 0;
  // Sequences are sharded whole: where one more overfills a rank, two more may not.
  for (let tried = 1; tried < 2 * slots + 100; tried++) if (fits(planOf(tried), tried, budgets)) slots = tried;
  return slots;
}

/** As `weighSequences` makes it. */
function tokenPlan(budgets: readonly number[]): PlanOf {
  const plan = makePlan('token', budgets.length, shape);
  const fixed = planMemory(plan, sizes, { ...options, slots: 0 });
  const rooms = roomByPlace(
    plan,
    fixed.map(({ weightBytes }, rank) => ({ bytes: budgets[rank]! - weightBytes })),
  );
  return (slots) =>
    makePlan('token', budgets.length, shape, {
      sequenceWeights: sequenceWeights(rooms, slots * SEQUENCE, 0.5, SEQUENCE),
    });
}

/** Sequences of 8192 tokens at once, or why there are none. */
function sequences(policy: string, budgets: readonly number[]): number | string {
  const one = makePlan('single', 1, shape);
  if (policy === 'data parallel') return sum(budgets.map((budget) => most(() => one, [budget])));
  try {
    if (policy === 'token') return most(tokenPlan(budgets), budgets);
    const plan = makePlan(policy, budgets.length, shape);
    return most(() => plan, budgets);
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

  test('a token plan holds every whole sequence that its ranks have room for, whatever their sizes', () => {
    const gigabytes = fc.array(fc.integer({ min: 0, max: 60 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(fc.integer({ min: 26, max: 60 }), gigabytes, (root, others) => {
        const budgets = [root, ...others].map((tenths) => (tenths * GB) / 10);
        const held = budgets.map((budget, rank) => Math.floor((budget - (rank === 0 ? WEIGHTS : 0)) / SEQUENCE));
        expect(most(tokenPlan(budgets), budgets)).toBe(sum(held));
      }),
      { numRuns: 25, seed: 9 },
    );
  });

  test('a token plan holds more than data parallel ranks, and at least as much as tp where ranks differ', () => {
    for (const { of } of rows) expect(of[0]).toBeGreaterThan(of[2] as number);
    expect(rows[3]!.of[0]).toBeGreaterThan(rows[3]!.of[1] === '-' ? 0 : (rows[3]!.of[1] as number));
  });
});
