import * as z from 'zod/mini';
import { usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import {
  COPY_SHARING,
  type CopySharing,
  type ModelShape,
  type Plan,
  type PlanOptions,
  arrangedPlan as planOf,
  checkPlan as checkParsed,
  describePlan as describe,
  makePlan as make,
  parsePlan,
} from '../placement/index.js';
import {
  type Arrangement,
  type ArrangementFile,
  type ArrangementProblem,
  MODES,
  arrange as search,
  parseArrangementFile,
} from '../arrangement/index.js';
import { type OptionsSchema, checkOptions, oneOf, wholeNumber } from '../base/options.js';
import type { NetworkOptions, Source } from '../loader/index.js';
import { parseForm } from '../base/form.js';

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
  checkOptions('arrange', { mode: problem.mode, steps }, { mode: oneOf(MODES), steps: wholeNumber(1) });
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
  checkOptions('arrangedPlan', { sharing }, { sharing: oneOf(COPY_SHARING) });
  const parsed = parseArrangementFile(file);
  return planOf(parsed, shape, sharing ?? parsed.sharing ?? 'sequences');
}

/** How a model of the Hub, or of a server, is asked for. */
export interface ShapeOptions extends NetworkOptions {
  readonly signal?: AbortSignal;
}

const shapeOptions: OptionsSchema<ShapeOptions> = { hub: true, token: true, headers: true, fetch: true, signal: true };

/**
 * The counts of a model that plans refer to: layers, heads, MLP segments, experts, vocabulary rows. Reads its config.json, or the first
 * part of a GGUF file, and no weights. A loaded model has them as `model.info.shape`.
 *
 * @param where as for `load`: a name of the Hub, a URL, files, or a folder (Node)
 * @throws SplitkvError as `load` where there is no such model, or none that runs
 */
export async function modelShape(
  where: string | URL | readonly File[] | Source,
  options: ShapeOptions = {},
): Promise<ModelShape> {
  checkOptions('modelShape', options, shapeOptions);
  return (await import('../engine/faces/read_shape.js')).readShape(where, options);
}

const atLeast = (least: number) => {
  const message = `a whole number of at least ${least}`;
  return z.int(message).check(z.minimum(least, message));
};
const counts = z
  .array(atLeast(0), 'a list of whole numbers')
  .check(z.minLength(1, 'a list of whole numbers, one at least'));
const flag = z.boolean('true or false');
const shapeSchema = z.strictObject(
  {
    numLayers: atLeast(1),
    hiddenSize: atLeast(1),
    vocabSize: atLeast(1),
    segmentHeads: counts,
    kvHeads: atLeast(1),
    mixedHeads: z.optional(flag),
    wholeFrom: z.optional(atLeast(0)),
    latent: flag,
    windowed: z.optional(flag),
    recurrent: z.optional(flag),
    mlpSegments: counts,
    numExperts: atLeast(0),
  },
  "a model's shape, as modelShape or model.info.shape gives it",
);

/** @throws SplitkvError `usage` with the first fault */
function checkShape(shape: ModelShape): void {
  parseForm(shapeSchema as z.ZodMiniType<unknown>, shape, 'shape', Object.keys(shapeSchema.shape));
}
