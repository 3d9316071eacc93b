import { modelSizes } from '../../model/model_sizes.js';
import {
  isKvOnly,
  type Plan,
  planMemory,
  roomByPlace,
  rootShareOf,
  sequenceWeights,
  withSequenceWeights,
} from '../../placement/index.js';
import { measuredRanks } from './auto_plan.js';
import { keptOf, type PlanRanks, type PlanSubject, runnerOf } from './plan_subject.js';
import { areUnlike } from './rank_adapters.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';
import { KV_BLOCK } from '../../base/kv_units.js';

/**
 * A token plan with its sequences sharded by what ranks have: memory, where it is limited, and how fast each adapter attends, where there are several. Adapters are measured once.
 * @throws as `measureMachine`
 */
export async function weighSequences(
  plan: Plan,
  { adapters, budgets, virtual, signal }: PlanRanks,
  subject: PlanSubject,
): Promise<Plan> {
  const several = areUnlike({ adapters, virtual });
  if (!several && budgets.every((budget) => budget === undefined)) return plan;
  const { config, type, kvType, contextLength } = subject;
  const { slots, batches = 1 } = subject.seatsOf(plan);
  const machine = several
    ? await measuredRanks(subject, { adapters, virtual: false, signal }, slots * batches > 1)
    : undefined;
  // What a rank takes beside caches doesn't depend on how many sequences it keeps.
  const fixed = await memoryOnPaper(plan, subject, runnerOf(subject, plan));
  const rooms = fixed.map(({ rank, weightBytes, activationBytes }) => {
    const layer = machine?.ranks[rank]?.dense ?? machine?.ranks[rank]?.expert;
    const budget = budgets[rank];
    return {
      bytes: budget === undefined ? undefined : budget - weightBytes - activationBytes,
      speed: layer && 1 / layer.generated.attention,
    };
  });
  const places = roomByPlace(plan, rooms);
  const sizes = { ...modelSizes(config, type, kvType), ...keptOf(subject, { slots, batches }) };
  const { prefillChunk } = runnerOf(subject, plan);
  const caches = planMemory(plan, sizes, { contextLength, slots: slots * batches, prefillChunk, block: KV_BLOCK });
  // Ranks with the same heads of a stage share out its sequences.
  const groups = plan.stages.flatMap(({ shares }) => [
    ...new Set(shares.filter((share) => !isKvOnly(share)).map(({ kvHeads }) => kvHeads.join())),
  ]);
  const wanted = caches.reduce((sum, { kvBytes }) => sum + kvBytes, 0) / groups.length;
  const weights = sequenceWeights(places, wanted, rootShareOf(plan), wanted / (slots * batches));
  return withSequenceWeights(plan, weights);
}
