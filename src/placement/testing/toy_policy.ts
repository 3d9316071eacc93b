import { range, spreadEvenly } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import { cutRows, spreadSegments } from '../make/stage_cut.js';
import type { PolicyRow } from '../make/policy.js';
import type { ModelShape } from '../plan.js';

/** One segment for the first rank, and the rest over the others. */
function cut(sizes: readonly number[], ranks: number): number[][] | undefined {
  const rest = spreadSegments(sizes.slice(1), ranks - 1);
  return rest && [[0], ...rest.map((segments) => segments.map((segment) => segment + 1))];
}

/** A policy that nothing else knows: tensor parallelism with a first rank that has little memory. */
export const lopsided: PolicyRow = {
  name: 'lopsided',
  features: ['cutHeads'],
  pipeline: true,
  stage(ranks: number, { latent, segmentHeads, mlpSegments, numExperts, vocabSize }: ModelShape) {
    if (latent) return 'a latent has no heads to cut';
    const [heads, mlp] = ranks > 1 ? [cut(segmentHeads, ranks), cut(mlpSegments, ranks)] : [];
    if (!heads || !mlp) return 'its heads and MLP segments make no small part and others';
    const experts = spreadEvenly(numExperts, ranks);
    const rows = cutRows(vocabSize, ranks);
    return {
      kind: 'tensor',
      shares: range(0, ranks).map((rank) => ({
        rank,
        heads: heads[rank]!,
        mlp: mlp[rank]!,
        experts: range(...experts[rank]!),
        kvHeads: heads[rank]!,
        lanes: range(0, MERGE_LANES),
      })),
      embedding: rows,
      head: rows,
    };
  },
};
