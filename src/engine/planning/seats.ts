import { usageError } from '../../base/errors.js';
import { KV_BLOCK } from '../../base/kv_units.js';
import { ceilDiv } from '../../base/math.js';
import { FULL_TILE_ROWS } from '../../model/layers/roles.js';
import { isKvOnly, Owners, type Plan, pipelineDepth } from '../../placement/index.js';
import type { RunnerOptions } from '../contracts/rank.js';

/** Sequences that `load` decodes side by side, at least. */
const SLOTS = 8;

/**
 * How the ranks of a plan are set up for `load`: some slots, whose sequences share the cache of `requests` whole contexts, and of as
 * many windows.
 *
 * @param requests default: as many as a pipeline works on at once
 */
export function loadSeats(
  plan: Plan,
  contextLength: number,
  requests: number | undefined,
): Pick<RunnerOptions, 'slots' | 'batches' | 'kvBlocks' | 'windows'> {
  const batches = pipelineDepth(plan);
  const context = ceilDiv(contextLength, KV_BLOCK);
  // A lone request has all copies of a head to itself: they share its lanes.
  const wanted = plan.sharing === 'lanes' ? (requests ?? 1) : Math.max(requests ?? 1, SLOTS);
  const fewest = ceilDiv(wanted, batches);
  const places = new Owners(plan, 1).ranges(0).length;
  const seatings = Array.from({ length: places }, (_, more) => {
    const slots = fewest + more;
    const owners = new Owners(plan, slots, batches);
    const pools = Array.from({ length: places }, (_place, place) => owners.placeSlots(place));
    // Every place has room for a whole context: those with more slots have more.
    return { slots, blocks: Math.ceil((context * slots * batches) / Math.min(...pools.filter((count) => count > 0))) };
  });
  const { slots, blocks } = seatings.toSorted((a, b) => a.blocks - b.blocks)[0]!;
  const kvBlocks = Math.max(context * (requests ?? batches), blocks);
  return { slots, batches, kvBlocks, windows: Math.min(slots * batches, ceilDiv(kvBlocks, context)) };
}

interface MicroBatches {
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
