import { parseJson } from '../../base/json.js';
import { type ArrangementFile, parseArrangementFile } from '../../arrangement/index.js';
import { parsePlan } from './parse_plan.js';
import type { Plan } from '../plan.js';

/** What a plan's file may hold: a plan, or an arrangement of heads, which a model's shape makes a plan of (`arrangedPlan`). */
export type PlanFile = Plan | ArrangementFile;

export const isArrangement = (file: PlanFile): file is ArrangementFile => 'placement' in file;

/**
 * Reads a plan or an arrangement, from JSON text or from what JSON.parse gave.
 * @throws as `parsePlan` or `parseArrangementFile`
 */
export function parsePlanFile(json: unknown, name = 'plan'): PlanFile {
  const value = typeof json === 'string' ? parseJson(json, name) : json;
  const { policy, stages, placement } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const arranged = placement !== undefined || (policy === 'arranged' && stages === undefined);
  return arranged ? parseArrangementFile(value, name) : parsePlan(value, name);
}
