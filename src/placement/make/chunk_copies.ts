import { range } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import type { ModelShape, Plan, Stage } from '../plan.js';
import { cutMlp } from './arranged_plan.js';

/** Chunks of a sequence lie on several ranks that all project the heads, or could. */
const splitsChunks = ({ kind, shares }: Stage): boolean =>
  kind === 'tensor' && shares.some(({ lanes }) => lanes.length < MERGE_LANES);

/**
 * A plan whose ranks split chunks of sequences (sp, tp+sp, ep), for prompts that are compressed: which entries are left, and so whose
 * they are, is known at a prompt's end only. Every rank that keeps a part of a head's cache becomes a copy of the head, and copies share
 * its lanes as the ranks did: each has a prompt whole until it ends, compresses it alike, and keeps its own lanes of what is left. MLP
 * segments and experts are cut over the stage's ranks. Other plans stay as they are.
 */
export function chunksAsCopies(plan: Plan, shape: ModelShape): Plan {
  if (!plan.stages.some(splitsChunks)) return plan;
  return {
    ...plan,
    sharing: 'lanes',
    stages: plan.stages.map((stage) => (splitsChunks(stage) ? copied(stage, shape) : stage)),
  };
}

function copied({ layers, shares }: Stage, shape: ModelShape): Stage {
  const cut = cutMlp(shares.length, shape);
  const holders = (head: number): number => shares.filter(({ kvHeads }) => kvHeads.includes(head)).length;
  return {
    layers,
    kind: 'arranged',
    shares: shares.map(({ rank, kvHeads }, at) => ({
      rank,
      heads: kvHeads,
      copies: kvHeads.map((head) => ({ head, share: 1 / holders(head) })),
      ...cut[at]!,
      kvHeads,
      lanes: range(0, MERGE_LANES),
    })),
  };
}
