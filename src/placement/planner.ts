import { limitError, SplitkvError, usageError } from '../base/errors.js';
import type { MachineMeasure } from './cost/measure.js';
import { generatedStep, promptTime, type StepTime } from './cost/step_time.js';
import type { ModelWork } from './cost/work.js';
import { range, sum } from './lists.js';
import { makePlan, type PlanOptions } from './make_plan.js';
import { checkMemory, layerBytes, type MemoryOptions, planMemory, type RankMemory } from './memory.js';
import type { Plan } from './plan.js';
import { POLICIES } from './policy.js';

/** What plans are compared at. */
export interface Workload extends Omit<MemoryOptions, 'weightBytes'> {
  readonly promptLength: number;
  /** Prompt tokens computed at once. */
  readonly promptChunk: number;
  /** Tokens in each sequence's cache where the decode speed is predicted; default contextLength, the slowest. */
  readonly decodeLength?: number;
}

/** What a plan is predicted to do. */
export interface PlanPrediction {
  readonly plan: Plan;
  /** Of all sequences together. */
  readonly tokensPerSecond: number;
  readonly firstTokenSeconds: number;
  /** One step: a token of every sequence. */
  readonly decode: StepTime;
  readonly prompt: StepTime;
  readonly memory: readonly RankMemory[];
  /** Why it can't run: a rank has no room. */
  readonly refused?: string;
}

/** A policy on a number of ranks: its prediction, or why it makes no plan. */
export type PlanCandidate = { readonly policy: string; readonly worldSize: number } & (
  | PlanPrediction
  | { readonly plan?: undefined; readonly refused: string }
);

export interface PlannerOptions {
  /** Exact bytes of each rank's weights; by default from ModelSizes. */
  readonly weightBytes?: (plan: Plan) => readonly number[];
}

/** Predictions aren't exact: a plan on more ranks must look this much faster, as a share, to be picked. */
const MARGIN = 0.05;

/**
 * What a (checked) plan does on the machine's first ranks.
 * @throws SplitkvError `usage` for a machine with fewer ranks, or measures missing.
 */
export function predictPlan(
  plan: Plan,
  work: ModelWork,
  machine: MachineMeasure,
  workload: Workload,
  options: PlannerOptions = {},
): PlanPrediction {
  checkMachine(machine, plan.worldSize);
  const { slots, contextLength, promptLength, promptChunk, decodeLength = contextLength } = workload;
  const memoryOptions = { ...workload, ...(options.weightBytes && { weightBytes: options.weightBytes(plan) }) };
  const decode = generatedStep(plan, work, machine, slots, decodeLength);
  const prompt = promptTime(plan, work, machine, promptLength, promptChunk);
  const refused = refusal('limit', () =>
    checkMemory(
      plan,
      work.sizes,
      memoryOptions,
      machine.ranks.map(({ budgetBytes }) => budgetBytes),
    ),
  );
  return {
    plan,
    tokensPerSecond: slots / decode.seconds,
    firstTokenSeconds: prompt.seconds,
    decode,
    prompt,
    memory: planMemory(plan, work.sizes, memoryOptions),
    ...(typeof refused === 'string' && { refused }),
  };
}

/**
 * Every policy on 1, 2, ... all of the machine's ranks. Policies that come to the same plan are listed once; those for experts
 * only where the model has some.
 */
export function predictPlans(
  work: ModelWork,
  machine: MachineMeasure,
  workload: Workload,
  options: PlannerOptions = {},
): PlanCandidate[] {
  checkMachine(machine, machine.ranks.length);
  const candidates: PlanCandidate[] = [];
  for (const worldSize of range(1, machine.ranks.length + 1)) {
    const seen = new Set<string>();
    for (const policy of POLICIES) {
      if ((policy === 'single') !== (worldSize === 1)) continue;
      if (policy.includes('ep') && work.shape.numExperts === 0) continue;
      const plan = refusal('usage', () => makePlan(policy, worldSize, work.shape, pipelineCosts(work, workload)));
      if (typeof plan === 'string') {
        candidates.push({ policy, worldSize, refused: plan });
        continue;
      }
      const form = JSON.stringify({ ...plan, policy: '' });
      if (seen.has(form)) continue;
      seen.add(form);
      candidates.push({ policy, worldSize, ...predictPlan(plan, work, machine, workload, options) });
    }
  }
  return candidates;
}

/** A pipeline's stages take turns, so it is memory that they balance. */
function pipelineCosts({ shape, sizes }: ModelWork, { contextLength, slots }: Workload): PlanOptions {
  const { stages } = makePlan('single', 1, shape);
  const cache = shape.kvHeads * contextLength * slots * sizes.kvToken;
  return {
    layerCosts: sizes.layers.map((layer) => layerBytes(layer, stages[0]!.shares[0]!) + cache),
    embeddingCost: shape.vocabSize * sizes.embeddingRow,
    headCost: shape.vocabSize * sizes.headRow,
  };
}

/**
 * The fastest plan that fits; of plans within a twentieth of each other, the one on fewer ranks. One rank where splitting loses.
 * @throws SplitkvError `limit` when none fits, with the reason of the one that lacks least.
 */
export function pickPlan(candidates: readonly PlanCandidate[]): PlanCandidate & PlanPrediction {
  let best: (PlanCandidate & PlanPrediction) | undefined;
  for (const candidate of candidates.toSorted((a, b) => a.worldSize - b.worldSize)) {
    if (!candidate.plan || candidate.refused !== undefined) continue;
    const needed = best && best.tokensPerSecond * (candidate.worldSize > best.worldSize ? 1 + MARGIN : 1);
    if (needed === undefined || candidate.tokensPerSecond > needed) best = candidate;
  }
  if (best) return best;
  const total = (memory: readonly RankMemory[]): number => Math.max(...memory.map(({ totalBytes }) => totalBytes));
  const nearest = candidates
    .filter((candidate) => candidate.plan !== undefined)
    .toSorted((a, b) => total(a.memory) - total(b.memory))[0];
  throw limitError(`no plan fits; the nearest: ${nearest?.refused ?? 'none can be made for this model'}`);
}

/** What `make` gives, or the message of the SplitkvError of that code that it throws. */
function refusal<T>(code: SplitkvError['code'], make: () => T): T | string {
  try {
    return make();
  } catch (error) {
    if (error instanceof SplitkvError && error.code === code) return error.message;
    throw error;
  }
}

function checkMachine({ ranks, hops, slowdown }: MachineMeasure, worldSize: number): void {
  if (ranks.length < worldSize || worldSize < 1) {
    throw usageError(`the plan has ${worldSize} ranks, but ${ranks.length} are measured: measure every rank`);
  }
  const all = range(0, worldSize);
  for (const to of all) {
    for (const from of all) {
      if (from !== to && !hops[to]?.[from]) throw usageError(`the hop from rank ${from} to rank ${to} isn't measured`);
    }
    if (!(slowdown[to]! >= 0)) throw usageError(`slowdown of ${to + 1} ranks at once isn't measured`);
  }
  for (const { name, budgetBytes: _, generated, prompt, ...rest } of ranks) {
    const numbers = [...Object.values(generated), ...Object.values(prompt), ...Object.values(rest)] as number[];
    const bad = numbers.find((value) => !(value >= 0 && value < Infinity));
    if (bad !== undefined || sum(numbers) === 0) {
      throw usageError(`adapter '${name}': a measure is ${bad ?? 'nothing but zeros'}; expected seconds from 0 on`);
    }
  }
}
