import { usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import {
  checkPlan as checkParsed,
  describePlan as describe,
  makePlan as make,
  type ModelShape,
  parsePlan,
  type Plan,
  type PlanOptions,
} from '../placement/index.js';
import {
  type ExportOptions,
  exportPlan as exportChecked,
  type ExportTarget,
  type PlanExport,
} from '../placement/export/export_plan.js';
import { checkShape } from './shape.js';

/**
 * The plan of a policy for so many ranks: who holds which weights and which pieces of the KV cache, as plain JSON that `load` takes as
 * `plan`. Policies are listed in POLICIES.
 *
 * @example
 * ```ts
 * import { describePlan, makePlan, modelShape } from 'splitkv/planning';
 *
 * const shape = await modelShape('models/tiny-gqa');
 * console.log(describePlan(makePlan('pp x tp', 4, shape), shape).join('\n'));
 * ```
 *
 * @param ranks of the whole plan
 * @param options degrees, for policies that leave a choice (`{ tensor: 2 }`), and the weights of layers and of sequences
 * @throws SplitkvError `usage`: an unknown policy or option, or ranks that don't fit, naming what would
 */
export function makePlan(policy: string, ranks: number, shape: ModelShape, options: PlanOptions = {}): Plan {
  if (typeof policy !== 'string') throw usageError(`plan ${show(policy)}: expected a policy's name, such as 'tp'`);
  if (!isObject(options)) throw usageError(`makePlan: options ${show(options)}: expected an object`);
  checkShape(shape);
  return make(policy, ranks, shape, options);
}

/**
 * Refuses a plan that doesn't place this model: every layer once and in order, every head, MLP segment, expert, vocabulary row and piece
 * of the cache where it can run.
 *
 * @throws SplitkvError `usage` with the first fault and what to do about it
 */
export function checkPlan(plan: Plan, shape: ModelShape): void {
  checkShape(shape);
  checkParsed(parsePlan(plan), shape);
}

/**
 * A plan as lines for people: layers, heads, caches and vocabulary rows of each rank.
 * @throws as `checkPlan`
 */
export function describePlan(plan: Plan, shape: ModelShape): string[] {
  checkPlan(plan, shape);
  return describe(plan, shape);
}

/**
 * The launch flags of vLLM, TensorRT-LLM or SGLang that correspond to a plan. It reads who holds what, so that plans of any policy, and
 * plans written by hand, are exported. Where the engine has no equivalent, the nearest is taken, and `differences` says so.
 *
 * @example
 * ```ts
 * import { exportPlan, makePlan, modelShape } from 'splitkv/planning';
 *
 * const shape = await modelShape('models/tiny-gqa');
 * const { command } = exportPlan(makePlan('tp', 4, shape), shape, 'vllm', { model: 'ORG/NAME' });
 * console.log(command); // ['vllm', 'serve', 'ORG/NAME', '--tensor-parallel-size', '4']
 * ```
 *
 * @throws SplitkvError `usage` for a target or an option that isn't known; as `checkPlan`
 */
export function exportPlan(
  plan: Plan,
  shape: ModelShape,
  target: ExportTarget,
  options: ExportOptions = {},
): PlanExport {
  if (!isObject(options)) throw usageError(`exportPlan: options ${show(options)}: expected an object`);
  checkShape(shape);
  return exportChecked(parsePlan(plan), shape, target, options);
}
