import { describe, expect, it } from 'vitest';
import { openDevice } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { TensorReader } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import type { Plan } from '../../placement/plan.js';
import { loadModelWeights } from './weight_loader.js';
import { rankSlice } from '../shape.js';
import { handPlan, range } from '../testing/plans.js';
import { makeRandomModel } from '../testing/random_model.js';

const model = makeRandomModel({
  config: {
    hidden_size: 128,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 32,
    intermediate_size: 512,
    vocab_size: 512,
  },
  dtype: 'BF16',
});
const { config } = model;
const elements = (pattern: RegExp): number =>
  [...model.weights].filter(([name]) => pattern.test(name)).reduce((sum, [, { data }]) => sum + data.length, 0);
/** Checkpoint bytes of the tensors. */
const stored = (pattern: RegExp): number => 2 * elements(pattern);

/** Ranges that a rank reads of the file beyond its header, and what it says of its progress. */
async function readsOf(plan: Plan, rank: number) {
  const source = new MemorySource(Object.fromEntries(model.files));
  const reader = await TensorReader.open(source);
  source.reads.length = 0;
  const adapter = (await testAdapters()).at(-1)!;
  const device = await openDevice({ adapterName: adapter.name });
  try {
    let total = 0;
    await loadModelWeights(device, config, reader, 'f16', {
      slice: rankSlice(plan, rank, config),
      onProgress: ({ totalBytes }) => (total = totalBytes),
    });
    return { total, ranges: source.reads.map(({ start, end }) => [start, end] as const) };
  } finally {
    device.dispose();
  }
}

const bytesOf = (ranges: readonly (readonly [number, number])[]): number =>
  ranges.reduce((sum, [start, end]) => sum + end - start, 0);

describe('a rank reads its slices by byte ranges', () => {
  it('cut heads, columns and vocabulary: a quarter of the rows, and the rows whose columns are cut', async () => {
    const rows = range(0, 4).map((rank) => ({ rank, rows: [128 * rank, 128 * (rank + 1)] as const }));
    const plan = handPlan(
      config,
      [{ layers: [0, 2], heads: [[0], [1], [2], [3]], mlp: range(0, 4).map((i) => [2 * i, 2 * i + 1]) }],
      { embedding: rows, head: rows },
    );
    const norms = stored(/norm/);
    const columns = /(o|down)_proj/;
    const byRows = stored(/./) - norms - stored(columns);
    for (const rank of range(0, 4)) {
      const { total, ranges } = await readsOf(plan, rank);
      expect(total).toBe((byRows + stored(columns)) / 4 + norms);
      // Rows so short are read in one range from the first column to the last, all columns in between.
      const skipped = 2 * 2 * (256 - 64 + (512 - 128));
      expect(bytesOf(ranges)).toBe(byRows / 4 + norms + stored(columns) - skipped);
      expect(bytesOf(ranges)).toBeLessThan(0.5 * stored(/./));
    }
  });

  it('cut layers: every byte of the tensors once, by one rank', async () => {
    const plan = handPlan(
      config,
      [
        { layers: [0, 1], heads: [range(0, 4)], mlp: [range(0, 8)] },
        { layers: [1, 2], heads: [range(0, 4)], mlp: [range(0, 8)], firstRank: 1 },
      ],
      { head: [{ rank: 1, rows: [0, 512] }] },
    );
    const ranks = [await readsOf(plan, 0), await readsOf(plan, 1)];
    expect(ranks[0]!.total).toBe(stored(/embed|layers\.0\./));
    expect(ranks[1]!.total).toBe(stored(/layers\.1\.|model\.norm|lm_head/));
    const ranges = ranks.flatMap((rank) => rank.ranges).toSorted(([a], [b]) => a - b);
    ranges.slice(1).forEach(([start], i) => expect(start).toBe(ranges[i]![1]));
    expect(bytesOf(ranges)).toBe(stored(/./));
  });

  it('a rank of the cache alone: none', async () => {
    const plan = handPlan(config, [{ layers: [0, 2], heads: [range(0, 4), []], mlp: [range(0, 8), []] }], {
      embedding: [{ rank: 0, rows: [0, 512] }],
    });
    expect(await readsOf(plan, 1)).toEqual({ total: 0, ranges: [] });
  });
});
