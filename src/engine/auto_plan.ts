import type { AdapterRequest } from '../gpu/index.js';
import { modelWork } from '../model/model_work.js';
import {
  type MachineMeasure,
  makePlan,
  type ModelWork,
  type PlanCandidate,
  predictPlan,
  predictPlans,
  type Workload,
} from '../placement/index.js';
import { exactWeights, type MemorySubject } from './budgets.js';
import { type MachineRequest, measureMachine } from './measure/measure_machine.js';
import { KV_BLOCK } from './rank_runner.js';

export interface AutoPlanRequest extends Pick<MachineRequest, 'virtual' | 'fresh' | 'store' | 'signal' | 'onProgress'> {
  readonly subject: MemorySubject;
  /** One for each rank there may be. */
  readonly adapters: readonly AdapterRequest[];
  readonly budgets: readonly (number | undefined)[];
  readonly workload: Omit<Workload, 'contextLength' | 'block'>;
}

/** What every plan is predicted to do on the ranks that there may be. */
export interface PlanOutlook {
  readonly candidates: readonly PlanCandidate[];
  /** The adapters and what they measured, the fastest first: plans use the first ones. */
  readonly adapters: readonly AdapterRequest[];
  readonly machine: MachineMeasure;
  readonly work: ModelWork;
  readonly workload: Workload;
}

/** Measures the machine where it hasn't been, and predicts every plan. @throws as `measureMachine` */
export async function planOutlook(request: AutoPlanRequest): Promise<PlanOutlook> {
  const { subject, budgets } = request;
  const { config, type, kvType, contextLength } = subject;
  const work = modelWork(config, type, kvType);
  const workload = { ...request.workload, contextLength, block: KV_BLOCK };
  const measured = await measureMachine(request);
  const withBudgets = {
    ...measured,
    ranks: measured.ranks.map((rank, i) => ({ ...rank, budgetBytes: budgets[i] })),
  };
  const order = fastestFirst(withBudgets, work, workload);
  const machine = reorder(withBudgets, order);
  return {
    candidates: predictPlans(work, machine, workload, { weightBytes: exactWeights(subject) }),
    adapters: order.map((rank) => request.adapters[rank]!),
    machine,
    work,
    workload,
  };
}

/** Ranks by how soon each would answer alone; those that have room for the model come first. */
function fastestFirst(machine: MachineMeasure, work: ModelWork, workload: Workload): number[] {
  const single = makePlan('single', 1, work.shape);
  const alone = machine.ranks.map((_, rank) => predictPlan(single, work, reorder(machine, [rank]), workload));
  const fits = (rank: number): number => (alone[rank]!.refused === undefined ? 0 : 1);
  return alone
    .map((_, rank) => rank)
    .toSorted((a, b) => fits(a) - fits(b) || alone[a]!.requestSeconds - alone[b]!.requestSeconds);
}

/** The machine with only these ranks, in this order. */
function reorder({ ranks, hops, ...rest }: MachineMeasure, order: readonly number[]): MachineMeasure {
  return {
    ...rest,
    ranks: order.map((rank) => ranks[rank]!),
    hops: order.map((to) => order.map((from) => hops[to]![from])),
  };
}
