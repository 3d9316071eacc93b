import { withRootShares } from './sequences/sequence_weights.js';
import { SplitkvError, limitError, usageError } from '../base/errors.js';
import { formatBytes } from '../base/math.js';
import { misfit, modelFeatures } from './check/capabilities.js';
import type { HeadCosts } from '../arrangement/types.js';
import { type AdapterMeasure, type MachineMeasure, type RowsMeasure, linearSeconds } from './cost/measure.js';
import { type StepTime, generatedStep, promptTime } from './cost/step_time.js';
import type { ModelWork } from './cost/step_rows.js';
import { nth, range, sum } from '../base/lists.js';
import { bySpeed } from './make/by_speed.js';
import { type PlanOptions, makePlan } from './make/make_plan.js';
import { type LayerSizes, type MemoryOptions, type RankMemory, checkMemory, layerBytes, planMemory } from './memory.js';
import { type Plan, type Stage, defaultPromptChunk, pipelineDepth } from './plan.js';
import { POLICIES, parsePolicy } from './make/policy.js';

/** What plans are compared at: requests of so many tokens, and room for whole contexts. */
export interface Workload extends Omit<
  MemoryOptions,
  'weightBytes' | 'activationBytes' | 'slots' | 'windows' | 'seats' | 'prefillChunk'
> {
  /** Sequences decoded side by side; default 1. */
  readonly batch?: number;
  /** Sequences that there is room for with a plan; default: the batch, or as many as a pipeline has stages. */
  readonly roomOf?: (plan: Plan) => Pick<MemoryOptions, 'slots' | 'windows' | 'seats'>;
  /** Batches of a step's sequences whose steps run side by side with a plan; default: as many as a pipeline has stages. */
  readonly batchesOf?: (plan: Plan) => number;
  /** Exact bytes of each rank's weights, and of what it works in; by default from ModelSizes, and nothing. */
  readonly bytesOf?: (plan: Plan) => Pick<MemoryOptions, 'weightBytes' | 'activationBytes'>;
  readonly promptLength: number;
  /** Tokens that follow the prompt; the decode speed is that halfway through them. Default 128. */
  readonly newTokens?: number;
  /** Prompt tokens computed at once; default: the plan's. */
  readonly promptChunk?: number | undefined;
  /** Entries that each head keeps of the prompt, [layer][kv head], where it is compressed; default all. */
  readonly kept?: readonly (readonly number[])[] | undefined;
  /** The plan that arranges heads by what they keep, for what they cost the machine's first ranks; undefined: none that is another. */
  readonly arranged?: ((worldSize: number, costs: HeadCosts) => Plan | undefined) | undefined;
  /** Why a plan doesn't go with what is asked for, if it doesn't. */
  readonly misfit?: (plan: Plan) => string | undefined;
}

const DEFAULT_NEW_TOKENS = 128;

export interface PlanPrediction {
  readonly plan: Plan;
  /** Of all sequences together. */
  readonly tokensPerSecond: number;
  /** Of a request alone. */
  readonly firstTokenSeconds: number;
  /** From the first prompt to the last new token of a request, or of a batch of them: what plans are picked by. */
  readonly requestSeconds: number;
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

/** Predictions aren't exact: a plan on more ranks must look this much faster, as a share, to be picked. */
const MARGIN = 0.05;

/**
 * What a (checked) plan does on the machine's first ranks.
 * @throws SplitkvError `usage` for a machine with fewer ranks, or measures missing.
 */
export function predictPlan(plan: Plan, work: ModelWork, machine: MachineMeasure, workload: Workload): PlanPrediction {
  checkMachine(machine, work, plan.worldSize);
  const {
    batch = 1,
    kept,
    promptLength,
    promptChunk = defaultPromptChunk(plan),
    newTokens = DEFAULT_NEW_TOKENS,
  } = workload;
  const memoryOptions = {
    ...workload,
    ...(workload.roomOf?.(plan) ?? { slots: Math.max(batch, pipelineDepth(plan)) }),
    prefillChunk: promptChunk,
    ...workload.bytesOf?.(plan),
  };
  const length = Math.min(promptLength + Math.ceil(newTokens / 2), workload.contextLength);
  const entries = kept?.map((heads) => heads.map((own) => own + length - promptLength));
  const decode = generatedStep(plan, work, machine, batch, length, workload.batchesOf?.(plan), entries);
  const prompt = promptTime(plan, work, machine, promptLength, promptChunk);
  const prompts = batch === 1 ? prompt : promptTime(plan, work, machine, promptLength, promptChunk, batch);
  const budgets = machine.ranks.map(({ budgetBytes }) => budgetBytes);
  const refused =
    workload.misfit?.(plan) ?? refusal('limit', () => checkMemory(plan, work.sizes, memoryOptions, budgets));
  return {
    plan,
    tokensPerSecond: batch / decode.seconds,
    firstTokenSeconds: prompt.seconds,
    requestSeconds: prompts.seconds + newTokens * decode.seconds,
    decode,
    prompt,
    memory: planMemory(plan, work.sizes, memoryOptions),
    ...(typeof refused === 'string' && { refused }),
  };
}

/**
 * Policies on 1, 2, ... all of the machine's ranks. Policies that come to the same plan are listed once; those that
 * the model can't have are left out, those that keep whole sequences on ranks only with several.
 */
export function predictPlans(work: ModelWork, machine: MachineMeasure, workload: Workload): PlanCandidate[] {
  checkMachine(machine, work, machine.ranks.length);
  const speeds = speedsOf(work, machine, workload);
  const candidates: PlanCandidate[] = [];
  for (const worldSize of range(1, machine.ranks.length + 1)) {
    const seen = new Set<string>();
    for (const policy of POLICIES) {
      if ((policy === 'single') !== (worldSize === 1)) continue;
      const { features } = parsePolicy(policy);
      const isToken = features.includes('token');
      // Whole sequences on ranks: nothing for one request.
      if ((isToken || features.includes('adp')) && (workload.batch ?? 1) === 1) continue;
      // A token plan that splits sequences shares no prefixes: it isn't taken unasked.
      if (isToken && features.includes('splitChunks')) continue;
      if (misfit([...features, ...modelFeatures(work.shape)]) !== undefined) continue;
      const plan = refusal('usage', () => makePlan(policy, worldSize, work.shape, pipelineCosts(work, workload)));
      if (typeof plan === 'string') {
        candidates.push({ policy, worldSize, refused: plan });
        continue;
      }
      const form = JSON.stringify({ ...plan, policy: '' });
      if (seen.has(form)) continue;
      seen.add(form);
      // A root has as many sequences as its other work leaves it time for.
      const tried = [...withRootShares(plan), ...bySpeed(plan, work.shape, speeds)];
      candidates.push({ policy, worldSize, ...soonest(tried, work, machine, workload) });
    }
    const arranged = worldSize > 1 && workload.arranged?.(worldSize, headCosts(work, machine, worldSize, workload));
    if (!arranged) continue;
    const { utilisation: _, ...form } = arranged;
    if (seen.has(JSON.stringify({ ...form, policy: '' }))) continue;
    candidates.push({
      policy: arranged.policy,
      worldSize,
      ...predictPlan(arranged, work, machine, workload),
    });
  }
  return candidates;
}

/** Of plans the one that fits and answers a request soonest; of those that don't fit, where none does. */
export function soonest(
  plans: readonly Plan[],
  work: ModelWork,
  machine: MachineMeasure,
  workload: Workload,
): PlanPrediction {
  const tried = plans.map((plan) => predictPlan(plan, work, machine, workload));
  const fits = tried.filter(({ refused }) => refused === undefined);
  return (fits.length > 0 ? fits : tried).reduce((a, b) => (b.requestSeconds < a.requestSeconds ? b : a));
}

/** What each of the machine's ranks does by itself. */
export const predictAlone = (work: ModelWork, machine: MachineMeasure, workload: Workload): PlanPrediction[] => {
  const single = makePlan('single', 1, work.shape);
  return machine.ranks.map((_, rank) => predictPlan(single, work, reorder(machine, [rank]), workload));
};

/** How fast ranks are (`bySpeed`): by the requests that each answers alone in a second. */
export const speedsOf = (work: ModelWork, machine: MachineMeasure, workload: Workload): number[] =>
  predictAlone(work, machine, workload).map(({ requestSeconds }) => 1 / requestSeconds);

/** The machine with only these ranks, in this order. */
export function reorder({ ranks, links, ...rest }: MachineMeasure, order: readonly number[]): MachineMeasure {
  return {
    ...rest,
    ranks: order.map((rank) => nth(ranks, rank)),
    links: order.map((to) => order.map((from) => nth(links, to)[from])),
  };
}

/** A pipeline's stages take turns, so it is memory that they balance. */
export function pipelineCosts(
  { shape, sizes }: Pick<ModelWork, 'shape' | 'sizes'>,
  { contextLength, batch = 1 }: Pick<Workload, 'contextLength' | 'batch'>,
): PlanOptions {
  const [{ shares }] = makePlan('single', 1, shape).stages as [Stage];
  const tokens = shape.kvHeads * contextLength * batch;
  return {
    layerCosts: sizes.layers.map((layer) => layerBytes(layer, nth(shares, 0)) + tokens * layer.kvToken),
    embeddingCost: shape.vocabSize * sizes.embeddingRow,
    headCost: shape.vocabSize * sizes.headRow,
  };
}

/**
 * The plan that fits and answers a request soonest; of plans within a twentieth of each other, the one on fewer ranks. One rank where
 * splitting loses.
 * @throws SplitkvError `limit` when none fits, with what each needs and the reason of the one that lacks least.
 */
export function pickPlan(candidates: readonly PlanCandidate[]): PlanCandidate & PlanPrediction {
  let best: (PlanCandidate & PlanPrediction) | undefined;
  for (const candidate of candidates.toSorted((a, b) => a.worldSize - b.worldSize)) {
    if (!candidate.plan || candidate.refused !== undefined) continue;
    const needed = best && best.requestSeconds / (candidate.worldSize > best.worldSize ? 1 + MARGIN : 1);
    if (needed === undefined || candidate.requestSeconds < needed) best = candidate;
  }
  if (best) return best;
  const made = candidates.filter((candidate) => candidate.plan !== undefined);
  const needs = ({ memory }: PlanPrediction): number => Math.max(...memory.map(({ totalBytes }) => totalBytes));
  const nearest = made.toSorted((a, b) => needs(a) - needs(b))[0];
  if (!nearest) throw limitError('no plan fits; none can be made for this model');
  const list = made.map((candidate) => {
    const where = candidate.worldSize > 1 ? ` on ${candidate.worldSize} ranks` : '';
    return `${candidate.policy}${where} ${formatBytes(needs(candidate))}`;
  });
  throw limitError(`no plan fits; needed on the fullest rank: ${list.join(', ')}; the nearest: ${nearest.refused}`);
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

function checkMachine({ ranks, links, crowding, slowdown }: MachineMeasure, work: ModelWork, worldSize: number): void {
  if (ranks.length < worldSize || worldSize < 1) {
    throw usageError(`the plan has ${worldSize} ranks, but ${ranks.length} are measured: measure every rank`);
  }
  const all = range(0, worldSize);
  for (const to of all) {
    for (const from of all) {
      if (from !== to && !links[to]?.[from])
        throw usageError(`the link from rank ${from} to rank ${to} isn't measured`);
    }
    for (const [what, list] of Object.entries({ crowding, ...slowdown })) {
      if (!((list[to] ?? -1) >= 0))
        throw usageError(`what ${to + 1} ranks at once do to each other (${what}) isn't measured`);
    }
  }
  const kinds = new Set(work.sizes.layers.map(({ expert }) => (expert > 0 ? 'expert' : 'dense')));
  for (const { name, budgetBytes: _, dense, expert, head, ...rest } of ranks) {
    const layers = { dense, expert };
    for (const kind of kinds) {
      const measure = layers[kind];
      if (!measure) throw usageError(`adapter '${name}': the model's ${kind} layers aren't measured`);
      checkTimes(name, [...Object.values(measure.generated), ...Object.values(measure.prompt)]);
    }
    checkTimes(name, [...Object.values(head), ...Object.values(rest)]);
  }
}

function checkTimes(name: string, times: readonly number[]): void {
  const bad = times.find((value) => !(value >= 0 && value < Infinity));
  if (bad !== undefined) throw usageError(`adapter '${name}': a measure is ${bad}; expected seconds from 0 on`);
}

/**
 * What a head costs each of the machine's first ranks in a decode step, as was measured for predictions: attention by its entries, its
 * projections by being there, in a layer on average. And what it takes there, of what budgets leave beside MLPs and vocabulary.
 */
export function headCosts(
  { shape, sizes }: ModelWork,
  machine: MachineMeasure,
  ranks: number,
  { batch = 1 }: { readonly batch?: number },
): HeadCosts {
  const { layers } = sizes;
  const mean = (of: (layer: LayerSizes) => number): number => sum(layers.map(of)) / layers.length;
  const headBytes = ({ attentionSegments }: LayerSizes): number => sum(attentionSegments) / shape.segmentHeads.length;
  const measures = machine.ranks.slice(0, ranks);
  const beside = layers.reduce(
    (all, { attentionShared, mlpShared, mlpSegments, expert }) =>
      all + attentionShared + mlpShared + (sum(mlpSegments) + shape.numExperts * expert) / ranks,
    (shape.vocabSize * (sizes.embeddingRow + (sizes.tied ? 0 : sizes.headRow))) / ranks,
  );
  return {
    secondsPerEntry: measures.map((adapter) => mean((layer) => ofLayer(adapter, layer).attention)),
    secondsPerHead: measures.map((adapter) =>
      mean((layer) => linearSeconds(ofLayer(adapter, layer), headBytes(layer), batch)),
    ),
    bytesPerHead: mean(headBytes),
    bytesPerEntry: mean(({ kvToken }) => kvToken),
    ...(measures.some(({ budgetBytes }) => budgetBytes !== undefined) && {
      memoryBytes: measures.map(({ budgetBytes = Infinity }) => Math.max(0, budgetBytes - beside)),
    }),
  };
}

const ofLayer = (adapter: AdapterMeasure, { expert }: LayerSizes): RowsMeasure =>
  (expert > 0 ? adapter.expert : adapter.dense)!.generated;
