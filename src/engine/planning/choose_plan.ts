/**
 * Room: from options to a plan, with an adapter and a budget for each rank. pick_plan.ts measures and asks the
 * planner; `heads` arranges heads by what they keep. Read plan_subject.ts next.
 */

import { usageError } from '../../base/errors.js';
import { modelShape } from '../../model/shape.js';
import { checkPlan, checkTogether, isArranged, isKvOnly, makePlan, readPolicyName } from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { checkBudgets } from './budgets.js';
import { degreesOf } from './degrees.js';
import { type PlanRanks, type PlanSubject, type ProfileOf, runnerOf, subjectFeatures } from './plan_subject.js';
import { areUnlike, rankCount, ranksOf } from './rank_adapters.js';
import type { ReadPlan } from './read_plan.js';

/** What the planner said of the plan that it picked. */
interface PickedPlan {
  readonly why: string;
  /** Ranks that there might have been. */
  readonly ranks: number;
  /** What it expects of a request. */
  predict(promptTokens: number, newTokens: number): { readonly tokensPerSecond: number; readonly ttftMs: number };
}

export interface ChosenPlan extends ReadPlan, Pick<PlanRanks, 'adapters' | 'budgets'> {
  /** Where the planner had a choice. */
  readonly picked?: PickedPlan;
}

/**
 * The plan that the options ask for, checked against the model and the memory budgets, and an adapter for each of its ranks. `auto`
 * with several ranks measures them (once) and takes the plan that answers soonest, on all of them or on fewer. `arranged` and `pp x arranged`
 * arrange heads by what they keep.
 * @param profileOf measures heads' loads; default: they count alike where no profile is given
 * @throws SplitkvError `usage`; `limit` where a rank has no room; as `measureMachine`.
 */
export async function choosePlan(
  options: LoadOptions,
  subject: PlanSubject,
  profileOf?: ProfileOf,
): Promise<ChosenPlan> {
  const shape = modelShape(subject.config);
  const asked = options.plan ?? 'auto';
  const ranks = rankCount(options);
  if (asked === 'auto' && ranks > 1) return (await import('./pick_plan.js')).pickPlanFor(options, subject, ranks);
  if (options.copies !== undefined && !isArranged(asked)) {
    throw usageError("copies is for plan 'arranged': leave it out, or give that plan");
  }
  const name = asked === 'auto' ? 'single' : asked;
  const read =
    typeof name === 'string'
      ? await planOfName(name, options, subject, await ranksOf(ranks, options), profileOf)
      : (await import('./read_plan.js')).readPlan(name, shape, subject); // most pages name a policy
  let { plan } = read;
  if (typeof name !== 'string' && options.ranks !== undefined && plan.worldSize !== ranks) {
    throw usageError(
      `the plan is for ${plan.worldSize} ranks, and ranks asks for ${ranks}: leave ranks out, or change it`,
    );
  }
  if (typeof name === 'string' && plan.worldSize > 1) {
    const there = await ranksOf(plan.worldSize, options);
    if (plan.stages.some(({ shares }) => shares.some(isKvOnly))) {
      const { weighSequences } = await import('./weigh_sequences.js');
      plan = await weighSequences(plan, there, subject);
    } else if (areUnlike(there) && !subject.measure)
      plan = await (await import('./pick_plan.js')).formFor(plan, options, subject, there);
  }
  if (subject.compression) plan = (await import('../../placement/make/arranged_plan.js')).chunksAsCopies(plan, shape);
  checkPlan(plan, shape);
  checkTogether(subjectFeatures(subject), plan);
  const { adapters, budgets } = await ranksOf(plan.worldSize, options);
  await checkBudgets(plan, subject, runnerOf(subject, plan), budgets);
  return { ...read, plan, adapters, budgets };
}

/**
 * The plan of a name, on all ranks: of a policy of the table, or of heads arranged by what they keep.
 * @param profileOf as `choosePlan`'s
 * @throws SplitkvError `usage` for a name that is none, or a model that it doesn't go with
 */
export async function planOfName(
  name: string,
  options: LoadOptions,
  subject: PlanSubject,
  ranks: PlanRanks,
  profileOf?: ProfileOf,
): Promise<ReadPlan> {
  if (!isArranged(name)) {
    const costs = readPolicyName(name).pipeline && (await import('./pick_plan.js')).stageCosts(subject);
    return {
      plan: makePlan(name, ranks.adapters.length, modelShape(subject.config), { ...degreesOf(options), ...costs }),
    };
  }
  return (await import('./heads/arrange_model.js')).arrangeModel(name, options, subject, ranks, profileOf);
}
