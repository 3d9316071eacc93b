import {
  arrangedPlan,
  expectedEntries,
  isArrangement,
  LANE_ENTRIES,
  lanesThatPay,
  type ModelShape,
  parsePlanFile,
  type Plan,
  type PlanFile,
} from '../../placement/index.js';
import type { PlanSubject } from './plan_subject.js';

/** A plan from a file, and what a user should know of how it was read. */
export interface ReadPlan {
  readonly plan: Plan;
  readonly note?: string;
}

/**
 * The plan of a plan's file, or of an arrangement: unless it says how copies share a head, they share sequences where several run side by
 * side, and the merge lanes of one sequence where its heads should keep enough entries for that; otherwise copies are left out.
 * @throws as `parsePlanFile`, `arrangedPlan`
 */
export function readPlan(asked: PlanFile, shape: ModelShape, subject: PlanSubject): ReadPlan {
  const file = parsePlanFile(asked);
  if (!isArrangement(file)) return { plan: file };
  const plan = arrangedPlan(file, shape, file.sharing ?? 'lanes');
  if (file.sharing !== undefined || plan.sharing === undefined) return { plan };
  if (subject.seatsOf(plan).slots > 1) return { plan: { ...plan, sharing: 'sequences' } };
  const { contextLength, compression } = subject;
  const entries = expectedEntries(file, { contextLength, budget: compression?.budget });
  const { placement, copied, shared } = lanesThatPay(file.placement, file.ranks, entries);
  if (JSON.stringify(placement) === JSON.stringify(file.placement)) return { plan };
  const { utilisation: _, ...rest } = file;
  return {
    plan: arrangedPlan({ ...rest, placement }, shape, 'lanes'),
    note:
      `arrangement: requests run one at a time, and copies of a head help one only where it keeps ${LANE_ENTRIES} entries or more: with this ` +
      `context copies run in ${shared} of the ${copied} layers that have any. Arrange with --sharing lanes to run all, or serve requests side by side`,
  };
}
