import { SplitkvError } from '../../base/errors.js';
import { nth } from '../../base/lists.js';
import { modelWork } from '../../model/model_sizes.js';
import { mostOf } from '../../model/weights/weight_types.js';
import {
  type MachineMeasure,
  makePlan,
  MERGE_LANES,
  misfit,
  type ModelWork,
  type Plan,
  type PlanCandidate,
  bySpeed,
  predictAlone,
  predictPlans,
  reorder,
  soonest,
  speedsOf,
  type Workload,
} from '../../placement/index.js';
import { bytesOf, roomOf } from './budgets.js';
import { type MachineRequest, measureMachine } from '../measure/measure_machine.js';
import { keptOf, type PlanRanks, type PlanSubject, runnerOf, subjectFeatures } from './plan_subject.js';
import { groupsWorth } from '../scheduler/groups/micro_batches.js';
import { microBatchesOf } from './seats.js';
import type { RunnerOptions } from '../contracts/rank.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';
import { KV_BLOCK } from '../../base/kv_units.js';

/** For the ranks that there may be. */
export interface AutoPlanRequest extends PlanRanks, Pick<MachineRequest, 'fresh' | 'store' | 'onProgress'> {
  readonly subject: PlanSubject;
  readonly workload: Pick<Workload, 'promptLength' | 'newTokens' | 'batch'>;
  /** Memory is counted as loading would allocate it; otherwise activations are left out. */
  readonly exactMemory: boolean;
}

/** What every plan is predicted to do on the ranks that there may be. */
export interface PlanOutlook extends Pick<PlanRanks, 'adapters' | 'budgets'> {
  readonly candidates: readonly PlanCandidate[];
  /** What adapters measured. They are the fastest first: plans use the first ones. */
  readonly machine: MachineMeasure;
  readonly work: ModelWork;
  readonly workload: Workload;
}

/** Measures the machine where it hasn't been. @throws as `measureMachine` */
async function measured(request: Omit<AutoPlanRequest, 'exactMemory'>) {
  const { subject, budgets, workload: asked } = request;
  const { config, type, kvType, contextLength, prefillChunk } = subject;
  const found = await measuredRanks(subject, request, (asked.batch ?? 1) > 1);
  const whole = modelWork(config, type, kvType);
  const kept = keptOf(subject, runnerFor(subject, makePlan('single', 1, whole.shape)));
  const work = { ...whole, sizes: { ...whole.sizes, ...kept } };
  const loads =
    subject.compression && (await (await import('./heads/kept_loads.js')).keptLoads(subject, asked.promptLength));
  const workload: Workload = {
    ...asked,
    ...loads,
    contextLength,
    promptChunk: prefillChunk,
    block: KV_BLOCK,
    roomOf: (plan) => roomOf(runnerFor(subject, plan)),
    ...(subject.together !== undefined && { batchesOf: serverBatches(subject.together) }),
    misfit: (plan) => refusalOf(subject, plan),
  };
  const machine = { ...found, ranks: found.ranks.map((rank, i) => ({ ...rank, budgetBytes: budgets[i] })) };
  return { machine, work, workload };
}

/** Of a plan, and its like in which faster ranks have more (`bySpeed`), the one that answers soonest. @throws as `measureMachine` */
export async function formBySpeed(plan: Plan, request: Omit<AutoPlanRequest, 'exactMemory'>): Promise<Plan> {
  const { machine, work, workload } = await measured(request);
  const speeds = speedsOf(work, machine, workload);
  return soonest([plan, ...bySpeed(plan, work.shape, speeds)], work, machine, workload).plan;
}

/** Measures the machine where it hasn't been, and predicts every plan. @throws as `measureMachine` */
export async function planOutlook(request: AutoPlanRequest): Promise<PlanOutlook> {
  const { subject, adapters, budgets, exactMemory } = request;
  const { machine: inOrder, work, workload } = await measured(request);
  const bytes = new Map<string, ReturnType<typeof bytesOf>>();
  const count = async (plan: Plan): Promise<void> => {
    if (!exactMemory) return;
    bytes.set(JSON.stringify(plan), bytesOf(await memoryOnPaper(plan, subject, runnerFor(subject, plan))));
  };
  const exact: Workload = { ...workload, bytesOf: (plan) => bytes.get(JSON.stringify(plan)) ?? {} };
  await count(makePlan('single', 1, work.shape));
  const order = fastestFirst(inOrder, work, exact);
  const machine = reorder(inOrder, order);
  for (const { plan } of predictPlans(work, machine, workload)) if (plan) await count(plan);
  return {
    candidates: predictPlans(work, machine, exact),
    adapters: order.map((rank) => nth(adapters, rank)),
    budgets: order.map((rank) => budgets[rank]),
    machine,
    work,
    workload,
  };
}

/** What is measured of ranks for a model: here, or where they are. @param batched rows of several sequences run together */
export function measuredRanks(
  { config, type, kvType, contextLength, measure }: PlanSubject,
  ranks: Omit<MachineRequest, 'subject'>,
  batched: boolean,
): Promise<MachineMeasure> {
  const subject = { config, type: mostOf(type), kvType, contextLength, batched };
  return measure ? measure(subject, ranks.adapters) : measureMachine({ ...ranks, subject });
}

/** Batches that a server's sequences run in, all slots taken. */
const serverBatches =
  (slots: number) =>
  (plan: Plan): number => {
    const { count, rowsEach } = microBatchesOf(plan, slots, 'auto');
    return groupsWorth(slots, rowsEach, count);
  };

/** Why a plan doesn't go with what is asked for, or isn't taken unasked. */
const refusalOf = (subject: PlanSubject, plan: Plan): string | undefined =>
  misfit(subjectFeatures(subject), plan) ??
  (subject.compression && plan.stages.some(({ shares }) => shares.some(({ lanes }) => lanes.length < MERGE_LANES))
    ? 'with kvBudget every rank would compute whole prompts and have room for them: ask for it by name'
    : undefined);

/** With a plan that has room for no sequence at all: as for one, which the planner then refuses. */
function runnerFor(asked: PlanSubject, plan: Plan): RunnerOptions {
  const { compression: _, ...plain } = asked;
  const subject = refusalOf(asked, plan) === undefined ? asked : plain;
  try {
    return runnerOf(subject, plan);
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'limit')) throw error;
    return runnerOf({ ...subject, seatsOf: () => ({ slots: 1 }) }, plan);
  }
}

/** Ranks by how soon each would answer alone; those that have room for the model come first. */
function fastestFirst(machine: MachineMeasure, work: ModelWork, workload: Workload): number[] {
  const alone = predictAlone(work, machine, workload).map(({ refused, requestSeconds }, rank) => ({
    rank,
    misfits: Number(refused !== undefined),
    requestSeconds,
  }));
  return alone.toSorted((a, b) => a.misfits - b.misfits || a.requestSeconds - b.requestSeconds).map(({ rank }) => rank);
}
