import { modelSizes } from '../../model/model_sizes.js';
import { modelShape } from '../../model/shape.js';
import {
  explainPick,
  isKvOnly,
  pickPlan,
  pipelineCosts,
  type Plan,
  type PlanOptions,
  predictPlan,
} from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { type AutoPlanRequest, formBySpeed, planOutlook } from './auto_plan.js';
import { checkBudgets } from './budgets.js';
import type { ChosenPlan } from './choose_plan.js';
import { type PlanRanks, type PlanSubject, runnerOf } from './plan_subject.js';
import { ranksOf } from './rank_adapters.js';

const PROMPT_TOKENS = 1024;
const NEW_TOKENS = 128;

/** The request that plans are compared at, as far as nothing is known of it: a prompt of half the context, and an answer. */
export function usualRequest(
  contextLength: number,
  promptLength = Math.max(1, Math.min(PROMPT_TOKENS, Math.floor(contextLength / 2))),
): { readonly promptLength: number; readonly newTokens: number } {
  // The last token of an answer takes no room.
  return { promptLength, newTokens: Math.max(1, Math.min(NEW_TOKENS, contextLength - promptLength + 1)) };
}

/** What plans of a model are compared at. */
const usualWork = (
  { requests }: Pick<LoadOptions, 'requests'>,
  { contextLength, together }: PlanSubject,
  usual = 1,
): AutoPlanRequest['workload'] => ({ ...usualRequest(contextLength), batch: together ?? requests ?? usual });

/** What the stages of a named pipeline balance: the weights that a step reads, all experts among them. */
export function stageCosts({ config, type, kvType }: PlanSubject): PlanOptions {
  const model = { shape: modelShape(config), sizes: modelSizes(config, type, kvType) };
  return { ...pipelineCosts(model, { contextLength: 0 }), embeddingCost: 0 };
}

/** A named plan on adapters that may be unlike: the faster ones have more, where that helps. @throws as `choosePlan` */
export const formFor = (plan: Plan, options: LoadOptions, subject: PlanSubject, ranks: PlanRanks): Promise<Plan> =>
  formBySpeed(plan, { subject, ...ranks, workload: usualWork(options, subject) });

/** The planner's choice for a model: what `choosePlan` imports where there is a choice. @throws as `choosePlan` */
export async function pickPlanFor(options: LoadOptions, subject: PlanSubject, ranks: number): Promise<ChosenPlan> {
  const shares = subject.together !== undefined || subject.features?.includes('attentionDp');
  const there = await ranksOf(ranks, options);
  const { candidates, adapters, budgets, machine, work, workload } = await planOutlook({
    subject,
    ...there,
    workload: usualWork(options, subject, shares ? ranks : 1),
    exactMemory: options.memory !== undefined,
  });
  // Ranks that keep requests of their own are for many at once: `load` takes such a plan only where options are of one.
  const best = pickPlan(
    candidates.filter(
      ({ plan }) => shares || !plan || !plan.stages.some(({ kind }) => kind === 'token' || kind === 'adp'),
    ),
  );
  const own = { adapters: adapters.slice(0, best.worldSize), budgets: budgets.slice(0, best.worldSize) };
  let { plan } = best;
  if (plan.stages.some(({ shares }) => shares.some(isKvOnly))) {
    const { weighSequences } = await import('./weigh_sequences.js');
    plan = await weighSequences(plan, { ...there, ...own }, subject);
    await checkBudgets(plan, subject, runnerOf(subject, plan), own.budgets);
  }
  return {
    plan,
    ...own,
    picked: {
      why: explainPick(candidates, best),
      ranks,
      predict: (promptLength, newTokens) => {
        const { tokensPerSecond, firstTokenSeconds } = predictPlan(best.plan, work, machine, {
          ...workload,
          batch: 1,
          promptLength,
          newTokens,
        });
        return { tokensPerSecond, ttftMs: firstTokenSeconds * 1000 };
      },
    },
  };
}
