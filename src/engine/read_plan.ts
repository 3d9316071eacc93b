import {
  arrangedPlan,
  isArrangement,
  type ModelShape,
  parsePlanFile,
  type Plan,
  type PlanFile,
} from '../placement/index.js';
import type { PlanSubject } from './plan_subject.js';

/**
 * The plan of a plan's file, or of an arrangement: copies then share a head by lanes where one sequence runs at a time, else by
 * sequences, unless it says how.
 * @throws as `parsePlanFile`, `arrangedPlan`
 */
export function readPlan(asked: PlanFile, shape: ModelShape, subject: PlanSubject): Plan {
  const file = parsePlanFile(asked);
  if (!isArrangement(file)) return file;
  const plan = arrangedPlan(file, shape, file.sharing ?? 'lanes');
  if (file.sharing !== undefined || plan.sharing === undefined) return plan;
  return subject.seatsOf(plan).slots > 1 ? { ...plan, sharing: 'sequences' } : plan;
}
