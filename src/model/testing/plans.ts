import type { Plan, RankShare, VocabShare } from '../../placement/plan.js';
import type { ModelConfig } from '../config/model_config.js';

export const range = (first: number, end: number): number[] => Array.from({ length: end - first }, (_, i) => first + i);

/** Lists by rank: what ranks hold of a stage's layers. The cache's place doesn't matter to weights. */
export interface HandStage {
  readonly layers: readonly [first: number, end: number];
  readonly heads: readonly (readonly number[])[];
  readonly mlp: readonly (readonly number[])[];
  readonly experts?: readonly (readonly number[])[];
  /** The first one's number. */
  readonly firstRank?: number;
}

/** A plan made by hand; embedding and head default to all rows on every rank of the first stage, and on rank 0. */
export function handPlan(
  { vocabSize }: ModelConfig,
  stages: readonly HandStage[],
  vocabulary: { readonly embedding?: readonly VocabShare[]; readonly head?: readonly VocabShare[] } = {},
): Plan {
  const made = stages.map(({ layers, heads, mlp, experts, firstRank = 0 }) => ({
    layers,
    kind: 'tensor' as const,
    shares: heads.map((list, i): RankShare => ({
      rank: firstRank + i,
      heads: list,
      mlp: mlp[i]!,
      experts: experts?.[i] ?? [],
      kvHeads: [0],
      lanes: range(0, 8),
    })),
  }));
  return {
    version: 1,
    policy: 'by hand',
    worldSize: 1 + Math.max(...made.flatMap(({ shares }) => shares.map(({ rank }) => rank))),
    stages: made,
    embedding: vocabulary.embedding ?? made[0]!.shares.map(({ rank }) => ({ rank, rows: [0, vocabSize] })),
    head: vocabulary.head ?? [{ rank: 0, rows: [0, vocabSize] }],
  };
}
