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

/** A plan from a file or from loads, and what a user should know of it. */
export interface ReadPlan {
  readonly plan: Plan;
  /** Why it is as it is, where it was searched for. */
  readonly why?: string;
  readonly note?: string;
}

/**
 * The plan of a plan's file, or of an arrangement: unless it says how copies share a head, they share sequences, or, where one runs at a
 * time and its heads should keep enough entries for that to pay, its merge lanes.
 * @throws as `parsePlanFile`, `arrangedPlan`
 */
export function readPlan(asked: PlanFile, shape: ModelShape, subject: PlanSubject): ReadPlan {
  const file = parsePlanFile(asked);
  if (!isArrangement(file)) return { plan: file };
  const plan = arrangedPlan(file, shape, file.sharing ?? 'lanes');
  if (file.sharing !== undefined || plan.sharing === undefined) return { plan };
  const bySequences: Plan = { ...plan, sharing: 'sequences' };
  if (subject.seatsOf(plan).slots > 1) return { plan: bySequences };
  const { contextLength, compression } = subject;
  const entries = expectedEntries(file, { contextLength, budget: compression?.budget });
  const { placement, copied, shared, pays } = lanesThatPay(file.placement, file.ranks, entries);
  if (!pays) return { plan: bySequences };
  if (shared === copied) return { plan };
  const { utilisation: _, ...rest } = file;
  return {
    plan: arrangedPlan({ ...rest, placement }, shape, 'lanes'),
    note:
      `arrangement: requests run one at a time, and copies of a head help one only where it keeps ${LANE_ENTRIES} entries or more: with this ` +
      `context copies run in ${shared} of the ${copied} layers that have any. Arrange with --sharing lanes to run all, or serve requests side by side`,
  };
}
