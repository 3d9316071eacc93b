import { usageError } from '../base/errors.js';
import { modelShape } from '../model/shape.js';
import { checkPlan, explainPick, makePlan, parsePlan, pickPlan, type Plan, predictPlan } from '../placement/index.js';
import type { LoadOptions } from './api.js';
import { planOutlook } from './auto_plan.js';
import { checkBudgets, memoryBudgets } from './budgets.js';
import { type PlanSubject, runnerOf } from './plan_subject.js';
import { type AdapterRequest, rankAdapters, rankCount } from './rank_adapters.js';

/** What the planner said of the plan that it picked. */
export interface PickedPlan {
  readonly why: string;
  /** Ranks that there might have been. */
  readonly ranks: number;
  /** What it expects of a request. */
  predict(promptTokens: number, newTokens: number): { readonly tokensPerSecond: number; readonly ttftMs: number };
}

export interface ChosenPlan {
  readonly plan: Plan;
  /** One for each of its ranks. */
  readonly adapters: readonly AdapterRequest[];
  /** Bytes that each may take; undefined: no limit. */
  readonly budgets: readonly (number | undefined)[];
  /** Where the planner had a choice. */
  readonly picked?: PickedPlan;
}

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

/**
 * The plan that the options ask for, checked against the model and the memory budgets, and an adapter for each of its ranks. `auto`
 * with several ranks measures them (once) and takes the plan that answers soonest, on all of them or on fewer.
 * @throws SplitkvError `usage`; `limit` where a rank has no room; as `measureMachine`.
 */
export async function choosePlan(options: LoadOptions, subject: PlanSubject): Promise<ChosenPlan> {
  const shape = modelShape(subject.config);
  const asked = options.plan ?? 'auto';
  const ranks = rankCount(options);
  if (asked === 'auto' && ranks > 1) return pick(options, subject, ranks);
  let plan: Plan;
  if (typeof asked !== 'string') {
    plan = parsePlan(asked);
    if (options.ranks !== undefined && plan.worldSize !== ranks) {
      throw usageError(
        `the plan is for ${plan.worldSize} ranks, and ranks asks for ${ranks}: leave ranks out, or change it`,
      );
    }
  } else {
    plan = makePlan(asked === 'auto' ? 'single' : asked, ranks, shape);
  }
  checkPlan(plan, shape);
  const adapters = rankAdapters(options, plan.worldSize);
  const budgets = memoryBudgets(options.memory, plan.worldSize);
  await checkBudgets(plan, subject, runnerOf(subject, plan), budgets);
  return { plan, adapters, budgets };
}

async function pick(options: LoadOptions, subject: PlanSubject, ranks: number): Promise<ChosenPlan> {
  const { candidates, adapters, budgets, machine, work, workload } = await planOutlook({
    subject,
    adapters: rankAdapters(options, ranks),
    budgets: memoryBudgets(options.memory, ranks),
    virtual: options.virtualRanks ?? false,
    workload: {
      ...usualRequest(subject.contextLength),
      ...(options.requests !== undefined && { batch: options.requests }),
    },
    exactMemory: options.memory !== undefined,
    signal: options.signal,
  });
  const best = pickPlan(candidates);
  return {
    plan: best.plan,
    adapters: adapters.slice(0, best.worldSize),
    budgets: budgets.slice(0, best.worldSize),
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
