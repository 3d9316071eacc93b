import { internalError, SplitkvError } from '../../base/errors.js';
import { isArranged } from '../../placement/index.js';
import type { LoadOptions } from '../../engine/contracts/api.js';
import { type ChosenPlan, choosePlan } from '../../engine/planning/choose_plan.js';
import type { PlanSubject } from '../../engine/planning/plan_subject.js';
import { rankCount } from '../../engine/planning/rank_adapters.js';

/** Why a plan isn't taken and another one may be: it isn't for so many ranks, or they have no room for it. */
const UNFIT: readonly unknown[] = ['usage', 'limit'];

/**
 * The plan that was asked for, over the ranks of a cluster that are left; where that isn't one, what the planner takes.
 * @param options with the ranks that are left
 * @throws SplitkvError `limit` where these have no room for the model
 */
export async function chooseForRest(
  options: LoadOptions,
  asked: PlanSubject,
  signal: AbortSignal | undefined,
): Promise<ChosenPlan> {
  // There may be nothing left to balance.
  const features = asked.features?.filter((feature) => feature !== 'attentionDp') ?? [];
  const subject = { ...asked, features };
  const given = { ...options, ...(signal && { signal }) };
  const ranks = rankCount(given);
  for (const again of [...asAsked(given, ranks), { ...plain(given), plan: 'auto' }]) {
    try {
      return await choosePlan(again, subject);
    } catch (error) {
      if (again.plan === 'auto' || !(error instanceof SplitkvError && UNFIT.includes(error.code))) throw error;
    }
  }
  throw internalError('the planner is asked last');
}

/** A policy by its name, with its degrees where they go over so many ranks, otherwise without. */
function asAsked(options: LoadOptions, ranks: number): LoadOptions[] {
  const { plan } = options;
  if (typeof plan !== 'string' || plan === 'auto' || isArranged(plan) || ranks === 1) return [];
  // Their names are for the planner.
  return [options, plain(options)].map((each) => ({ ...each, ranks }));
}

/** Without what is of one plan. */
function plain(options: LoadOptions): LoadOptions {
  const { tensor: _t, token: _k, sequence: _s, pipeline: _p, data: _d, copies: _c, ...rest } = options;
  return rest;
}
