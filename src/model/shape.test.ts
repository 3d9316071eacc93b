import { describe, expect, it } from 'vitest';
import type { Plan, RankShare } from '../placement/plan.js';
import type { ModelConfig } from './config/model_config.js';
import { modelShape, rankSlice, wholeSlice } from './shape.js';
import { makeRandomModel } from './testing/random_model.js';

const llama = (config: Record<string, unknown> = {}): ModelConfig => makeRandomModel({ config }).config;
const deepseek = (config: Record<string, unknown> = {}): ModelConfig =>
  makeRandomModel({ config: { model_type: 'deepseek_v3', ...config } }).config;

const share = (rank: number, held: Partial<RankShare>): RankShare => ({
  rank,
  heads: [],
  mlp: [],
  experts: [],
  kvHeads: [],
  lanes: [],
  ...held,
});

describe('modelShape', () => {
  it('counts a kv head and its query heads as a segment of attention', () => {
    const config = llama({ num_attention_heads: 12, num_key_value_heads: 3, head_dim: 24, intermediate_size: 172 });
    expect(modelShape(config)).toEqual({
      numLayers: 2,
      hiddenSize: 64,
      vocabSize: 320,
      segmentHeads: [4, 4, 4],
      kvHeads: 3,
      latent: false,
      // Ends at the multiples of 32 at or below 21, 43, 64, 86, 107, 129, 150, and at 172.
      mlpSegments: [0, 32, 32, 0, 32, 32, 0, 44],
      numExperts: 0,
    });
  });

  it.each([
    [3, [0, 0, 1, 0, 0, 1, 0, 1]],
    [16, [2, 2, 2, 2, 2, 2, 2, 2]],
    [40, [5, 5, 5, 5, 5, 5, 5, 5]],
    [13, [1, 2, 1, 2, 2, 1, 2, 2]],
  ])('cuts %i query heads of latent attention into 8 groups', (heads, groups) => {
    expect(modelShape(deepseek({ num_attention_heads: heads }))).toMatchObject({
      segmentHeads: groups,
      kvHeads: 1,
      latent: true,
      numExperts: 8,
    });
  });

  it.each([
    ['the dense layers', {}, 104],
    ['the shared experts', { n_shared_experts: 5 }, 200],
    ['the shared experts where no layer is dense', { first_k_dense_replace: 0 }, 80],
    ['nothing without dense layers and shared experts', { first_k_dense_replace: 0, n_shared_experts: null }, 0],
  ])('takes the MLP segments of %s', (_, config, width) => {
    const { mlpSegments } = modelShape(deepseek(config));
    expect(mlpSegments).toHaveLength(8);
    expect(mlpSegments.reduce((sum, columns) => sum + columns)).toBe(width);
  });
});

describe('rankSlice', () => {
  const plan: Plan = {
    version: 1,
    policy: 'by hand',
    worldSize: 4,
    stages: [
      {
        layers: [0, 1],
        kind: 'tensor',
        shares: [share(0, { heads: [0, 1, 2], mlp: [0, 1, 2, 3, 4, 5, 6, 7] }), share(2, { kvHeads: [0], lanes: [1] })],
      },
      {
        layers: [1, 3],
        kind: 'tensor',
        shares: [
          share(1, { heads: [0, 1, 2, 3, 4], mlp: [0, 1, 2], experts: [0, 1, 2, 3, 4] }),
          share(2, { heads: [5, 6, 7], mlp: [3, 4, 5, 6, 7], experts: [5, 6, 7] }),
        ],
      },
    ],
    embedding: [
      { rank: 0, rows: [0, 320] },
      { rank: 2, rows: [0, 320] },
    ],
    head: [
      { rank: 2, rows: [0, 128] },
      { rank: 1, rows: [128, 320] },
    ],
  };
  const config = deepseek();

  it('gives a rank its layers, heads, columns, experts and rows', () => {
    expect(rankSlice(plan, 2, config)).toEqual({
      layers: [
        { index: 0, heads: [], queryHeads: [], kvHeads: [], mlp: [0, 0], experts: [0, 0] },
        { index: 1, heads: [[5, 8]], queryHeads: [[1, 3]], kvHeads: [[0, 1]], mlp: [3, 8], experts: [5, 8] },
        { index: 2, heads: [[5, 8]], queryHeads: [[1, 3]], kvHeads: [[0, 1]], mlp: [3, 8], experts: [5, 8] },
      ],
      embeddingRows: [0, 320],
      headRows: [0, 128],
    });
    expect(rankSlice(plan, 0, config)).toMatchObject({
      layers: [{ index: 0, queryHeads: [[0, 1]] }],
      embeddingRows: [0, 320],
    });
    expect(rankSlice(plan, 0, config)).not.toHaveProperty('headRows');
    expect(rankSlice(plan, 3, config)).toEqual({ layers: [] });
  });

  it('is everything for the only rank of a plan', () => {
    for (const model of [llama(), config]) {
      const { numLayers, vocabSize, numExperts, segmentHeads } = modelShape(model);
      const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
      const alone: Plan = {
        version: 1,
        policy: 'single',
        worldSize: 1,
        stages: [
          {
            layers: [0, numLayers],
            kind: 'tensor',
            shares: [share(0, { heads: range(segmentHeads.length), mlp: range(8), experts: range(numExperts) })],
          },
        ],
        embedding: [{ rank: 0, rows: [0, vocabSize] }],
        head: [{ rank: 0, rows: [0, vocabSize] }],
      };
      expect(rankSlice(alone, 0, model)).toEqual(wholeSlice(model));
    }
  });

  it.each([-1, 4, 0.5])('refuses rank %d of 4', (rank) => {
    expect(() => rankSlice(plan, rank, config)).toThrow(/is not in the plan 'by hand', whose ranks are 0 to 3/);
  });

  it('gives runs of heads that are arranged freely', () => {
    const gqa = llama({ num_attention_heads: 12, num_key_value_heads: 6 });
    const stages = [
      { layers: [0, 2] as const, kind: 'arranged' as const, shares: [share(0, { heads: [0, 2, 3, 5], mlp: [1] })] },
    ];
    const runs = [
      [0, 1],
      [2, 4],
      [5, 6],
    ];
    expect(rankSlice({ ...plan, stages }, 0, gqa).layers[1]).toMatchObject({
      heads: runs,
      queryHeads: [
        [0, 2],
        [4, 8],
        [10, 12],
      ],
      kvHeads: runs,
    });
  });

  it.each([
    ['heads', [0, 2]],
    ['mlp', [3, 2]],
    ['experts', [0, 1, 1]],
  ] as const)('refuses %s that are no run', (what, list) => {
    const stages = [{ layers: [0, 3] as const, kind: 'tensor' as const, shares: [share(0, { [what]: list })] }];
    expect(() => rankSlice({ ...plan, stages }, 0, config)).toThrow(
      `the plan gives rank 0 ${what} ${list.join(', ')}; expected neighbours, ascending`,
    );
  });
});
