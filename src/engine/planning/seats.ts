import { KV_BLOCK } from '../../base/kv_units.js';
import { ceilDiv } from '../../base/math.js';
import { Owners, type Plan, pipelineDepth } from '../../placement/index.js';
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
