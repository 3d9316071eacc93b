import { usageError } from '../../base/errors.js';
import { FULL_TILE_ROWS } from '../../model/layers/roles.js';
import { isKvOnly, type Plan, pipelineDepth } from '../../placement/index.js';

export interface MicroBatches {
  /** Batches that the slots are cut into. */
  readonly count: number;
  /** Another one takes part for every so many sequences. */
  readonly rowsEach: number;
}

/**
 * How many micro-batches a plan's sequences run in. 'auto': as many as a pipeline has stages, so that each works on one, and two where
 * ranks without weights attend for the others, so that the root computes for one while they attend for the other; otherwise one.
 *
 * A pipeline's stage reads its weights once for each, in turn with the other stages, so two sequences are worth two. A root
 * reads them once for every 8 rows: up to there a second micro-batch would read them twice as often, beyond it hardly more.
 *
 * @throws SplitkvError `usage` for more than there are slots
 */
export function microBatchesOf(plan: Plan, slots: number, asked: number | 'auto'): MicroBatches {
  if (asked !== 'auto') {
    if (!Number.isSafeInteger(asked) || asked < 1 || asked > slots) {
      throw usageError(`microBatches ${asked}: expected an integer from 1 to the ${slots} slots, or 'auto'`);
    }
    return { count: asked, rowsEach: 1 };
  }
  const depth = pipelineDepth(plan);
  if (depth > 1) return { count: Math.min(depth, slots), rowsEach: 1 };
  const attendElsewhere = plan.stages.some(({ shares }) => shares.some(isKvOnly));
  return { count: attendElsewhere && slots > FULL_TILE_ROWS ? 2 : 1, rowsEach: FULL_TILE_ROWS };
}
