import { didYouMean, usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import {
  arrange as search,
  type Arrangement,
  type ArrangementFile,
  type ArrangementProblem,
  MODES,
  parseArrangementFile,
} from '../arrangement/index.js';
import {
  arrangedPlan as planOf,
  COPY_SHARING,
  type CopySharing,
  type ModelShape,
  type Plan,
} from '../placement/index.js';
import { checkShape } from './shape.js';

/**
 * Puts kv heads on ranks by their load, so that the busiest rank has little to do. The same problem always gives the same arrangement,
 * and none is worse than equally many heads per rank, unless memory forbids that.
 *
 * @example
 * ```ts
 * import { arrange, toArrangementFile } from 'splitkv/planning';
 *
 * const loads = [
 *   [900, 100, 300, 300],
 *   [250, 400, 250, 300],
 * ]; // entries that each head of two layers keeps
 * const found = arrange({ loads, ranks: 2 });
 * const plan = toArrangementFile('my-model', 2, found, { loads }); // load(where, { plan, ranks: 2, kvBudget: 0.2 })
 * console.log(found.mode, found.makespan, plan.ranks);
 * ```
 *
 * @param steps of search at most; a million take some tenths of a second
 * @throws SplitkvError `usage` for a problem that makes no sense
 */
export function arrange(problem: ArrangementProblem, steps?: number): Arrangement {
  if (!isObject(problem) || !Array.isArray(problem.loads) || !problem.loads.every(Array.isArray)) {
    throw usageError(`arrange ${show(problem)}: expected { loads, ranks }, loads a list of numbers for each layer`);
  }
  const { mode } = problem;
  if (mode !== undefined) oneOf('mode', mode, MODES);
  if (steps !== undefined && !(Number.isSafeInteger(steps) && steps >= 1)) {
    throw usageError(`arrange: steps ${show(steps)}: expected a whole number of at least 1`);
  }
  return search(problem, steps);
}

/**
 * The plan that runs an arrangement: every rank holds its heads, copies included; the rest is cut as `tp` cuts it.
 *
 * @param sharing how the copies of a head share it: each sequence is with one of them (default), or they share every sequence ('lanes')
 * @throws SplitkvError `usage` for an arrangement of another model, or one that leaves a rank without anything
 */
export function arrangedPlan(file: ArrangementFile, shape: ModelShape, sharing?: CopySharing): Plan {
  checkShape(shape);
  if (sharing !== undefined) oneOf('sharing', sharing, COPY_SHARING);
  const parsed = parseArrangementFile(file);
  return planOf(parsed, shape, sharing ?? parsed.sharing ?? 'sequences');
}

function oneOf(name: string, value: string, allowed: readonly string[]): void {
  if (allowed.includes(value)) return;
  throw usageError(`${name} ${show(value)}: use ${allowed.join(', ')}.${didYouMean(String(value), allowed)}`);
}
