import { CHUNK_TOKENS } from '../../../shaders/cache/kv_cache.js';
import type { RankStep, RegionsOf } from '../layers/world.js';
import type { SharedScores } from './prompt_compression.js';

/**
 * Where scores of heads lie that are exchanged (`scoreRoutes`): as far as the step's sequence goes.
 * @param scores whether a rank scores a head of the step's prompt
 */
export const scoreRegions =
  (
    { buffer, stride }: Pick<SharedScores, 'buffer' | 'stride'>,
    scores: (head: number, rank: number, step: RankStep) => boolean,
  ): RegionsOf =>
  ({ from, cargo }, _side, step) => {
    if (cargo.kind !== 'scores') return [];
    const size = Math.min(stride, step.chunks * CHUNK_TOKENS) * 4;
    return cargo.heads
      .filter((head) => scores(head, from, step))
      .map((head) => ({ buffer, offset: head * stride * 4, size }));
  };
