import type { HeadCosts } from '../../arrangement/index.js';
import { SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import { checkOptions, defined, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { findCached, type Source } from '../../loader/index.js';
import {
  explainPick,
  formatPlanTable,
  headCosts,
  type MachineMeasure,
  misfit,
  modelFeatures,
  pickPlan,
  type Plan,
  type PlanCandidate,
  type PlanPrediction,
  predictPlan,
} from '../../placement/index.js';
import { bytesByType, headTensors } from '../../model/weights/model_map.js';
import { mostOf } from '../../model/weights/weight_types.js';
import type { LoadOptions, ModelInfo } from '../contracts/api.js';
import { adapterMisfit } from '../planning/adapter_fit.js';
import { type PlanOutlook, planOutlook } from '../planning/auto_plan.js';
import { bytesOf } from '../planning/budgets.js';
import { checkLoadOptions, loadSchema, modelNetworkOf, networkOf } from '../contracts/load_options.js';
import { openTokenizer } from '../files/model_files.js';
import { openFiles } from '../files/open_files.js';
import { type DescribedModel, describeModel } from './describe_model.js';
import type { FoundDraft } from './open_draft.js';
import { planOfName } from '../planning/choose_plan.js';
import { usualRequest } from '../planning/pick_plan.js';
import { loadSeats, microBatchesOf } from '../planning/seats.js';
import { namedByDegrees } from '../planning/degrees.js';
import { type PlanSubject, runnerOf } from '../planning/plan_subject.js';
import { rankCount, ranksOf } from '../planning/rank_adapters.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';

/** What `load` takes may be handed on whole. */
export interface PlanModelOptions extends Omit<LoadOptions, 'plan' | 'onProgress'> {
  /** A policy to be picked, on all ranks, instead of the planner's choice: as `load` with the same option. Default 'auto'. */
  readonly plan?: string;
  /** Tokens of the prompt that plans are compared at; default: half the context, at most 1024. */
  readonly promptTokens?: number;
  /** Tokens that follow it; default: 128, as far as the context has room. */
  readonly newTokens?: number;
  /** Sequences decoded side by side; default 1. */
  readonly batch?: number;
  /** Measure again what was measured before. */
  readonly fresh?: boolean;
  /** Try whether the adapters can hold the pick: as much memory is taken for a moment. Default false. */
  readonly tryMemory?: boolean;
  /** Told what is being measured, for people. */
  readonly onProgress?: (what: string) => void;
}

/** What every plan would do. Plain data. */
export interface PlanReport extends Pick<
  ModelInfo,
  'name' | 'weights' | 'weightTypes' | 'kv' | 'contextLength' | 'shape'
> {
  readonly promptTokens: number;
  readonly newTokens: number;
  readonly batch: number;
  /** By rank: the fastest comes first, whatever the order they were named in. */
  readonly machine: MachineMeasure;
  /** What a kv head costs each of its ranks in a layer, for `arrange`; undefined where heads can't be arranged. */
  readonly headCosts: HeadCosts | undefined;
  readonly candidates: readonly PlanCandidate[];
  /** The plan that `load` would take; undefined where it doesn't fit. */
  readonly pick: (PlanCandidate & PlanPrediction) | undefined;
  /** Why, in a sentence; or why none fits. */
  readonly why: string;
  /** The candidates as a table for people. */
  readonly table: string;
  /** Undefined where the weights aren't there yet. */
  readonly download: DownloadSize | undefined;
  /** With `tryMemory`: why the adapters can't hold the pick all the same, by their limits and the memory free now. */
  readonly misfit: string | undefined;
}

/** What loading reads, in bytes. */
export interface DownloadSize {
  /** Of the tensors and the tokenizer. */
  readonly bytes: number;
  /** Of these, what this browser keeps from an earlier load, perhaps of one that was cut short; 0 in Node. */
  readonly storedBytes: number;
  /** Nothing is left to download. */
  readonly complete: boolean;
}

const schema: OptionsSchema<LoadOptions & PlanModelOptions> = {
  ...loadSchema,
  promptTokens: wholeNumber(1),
  newTokens: wholeNumber(1),
  batch: wholeNumber(1, 256),
  fresh: true,
  tryMemory: true,
};

/** Ranks that plans are made for where nothing is said. */
const RANKS = 2;

/**
 * Tells what every plan would do with a model on this machine, without loading its weights (which `integrity` then only compares with what
 * the server says of them). `ranks` is how many there may be, or an adapter for each; default 2, or 1 where `plan` names a policy.
 * @throws as `load`, but not where no plan fits.
 */
export async function planModel(
  where: string | URL | readonly File[] | Source,
  given: PlanModelOptions = {},
): Promise<PlanReport> {
  checkOptions('planModel', given, schema);
  if (where === 'auto') {
    const { name } = await (await import('../planning/catalog_fit.js')).autoModel(given);
    return planModel(name, given);
  }
  const options = await namedByDegrees(given);
  const {
    promptTokens: _prompt,
    newTokens: _new,
    batch: _batch,
    fresh,
    tryMemory = false,
    onProgress,
    plan,
    ...loadOptions
  } = options;
  const policy = plan === 'auto' ? undefined : plan;
  checkLoadOptions(loadOptions);
  const { signal } = options;
  throwIfAborted(signal, 'planning');
  const asked: LoadOptions = { ...loadOptions, ...(plan !== undefined && { plan }) };
  const source = await openFiles(where, {
    network: modelNetworkOf(options),
    integrity: options.integrity,
    lookOnly: true,
    onWait: (why) => why && onProgress?.(why),
    signal,
  });
  const model = await describeModel(source, asked);
  const { facts } = model;
  const draft = await draftOf(options, model);
  const unused = options.speculate === 'mtp' ? new Set<string>() : headTensors(facts.config);
  const { contextLength } = facts;
  const request = requestOf(contextLength, options);
  const count = rankCount({ ranks: options.ranks ?? (policy === undefined ? RANKS : 1) });
  const subject: PlanSubject = {
    ...facts,
    draftBytes: draft?.bytes,
    ...(request.batch > 1 && { together: request.batch }),
    seatsOf: (of) => {
      if (request.batch === 1) return loadSeats(of, contextLength, undefined);
      const batches = microBatchesOf(of, request.batch, 'auto').count;
      return { slots: Math.ceil(request.batch / batches), batches };
    },
  };
  const ranks = await ranksOf(count, loadOptions);
  // Refused before anything is measured. What heads keep isn't: that takes the weights.
  const named = policy === undefined ? undefined : (await planOfName(policy, asked, subject, ranks)).plan;
  const outlook = await planOutlook({
    subject,
    ...ranks,
    workload: request,
    exactMemory: true,
    ...defined({ fresh, onProgress }),
  });
  const { candidates, machine, adapters } = outlook;
  const { pick, why } = named === undefined ? pickOrReason(candidates) : await namedOrReason(named, subject, outlook);
  return {
    name: model.name,
    weights: mostOf(facts.type),
    weightTypes: bytesByType(facts.config, facts.type),
    kv: facts.kvType,
    contextLength,
    promptTokens: request.promptLength,
    newTokens: request.newTokens,
    batch: request.batch,
    shape: outlook.work.shape,
    machine,
    headCosts: costsOf(outlook, request),
    candidates,
    pick,
    why,
    table: formatPlanTable(candidates, pick),
    download: await downloadSize([{ ...model, unused }, ...(draft && draft.source !== source ? [draft] : [])], signal),
    misfit: pick && tryMemory ? await adapterMisfit(pick.plan, subject, adapters, ranks.virtual) : undefined,
  };
}

const costsOf = ({ work, machine }: PlanOutlook, request: { readonly batch: number }): HeadCosts | undefined =>
  misfit(['arranged', ...modelFeatures(work.shape)]) === undefined
    ? headCosts(work, machine, machine.ranks.length, request)
    : undefined;

function pickOrReason(candidates: readonly PlanCandidate[]): Pick<PlanReport, 'pick' | 'why'> {
  try {
    const pick = pickPlan(candidates);
    return { pick, why: explainPick(candidates, pick) };
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'limit')) throw error;
    return { pick: undefined, why: error.message };
  }
}

/** What is predicted of a plan, whether or not the planner looks at it for such requests. */
async function namedOrReason(
  plan: Plan,
  subject: PlanSubject,
  { work, machine, workload }: PlanOutlook,
): Promise<Pick<PlanReport, 'pick' | 'why'>> {
  const { policy, worldSize } = plan;
  const exact = bytesOf(await memoryOnPaper(plan, subject, runnerOf(subject, plan)));
  const prediction = predictPlan(plan, work, machine, { ...workload, bytesOf: () => exact });
  if (prediction.refused !== undefined) return { pick: undefined, why: prediction.refused };
  return { pick: { policy, worldSize, ...prediction }, why: `plan '${policy}' was asked for` };
}

/** A draft model's files, where one is asked for, and what it takes. */
async function draftOf(options: PlanModelOptions, main: DescribedModel): Promise<FoundDraft | undefined> {
  if (options.speculate === 'mtp') return (await import('./open_draft.js')).describeHead(main, options);
  if (options.draft === undefined) return undefined;
  const source = await openFiles(options.draft, {
    network: networkOf(options),
    lookOnly: true,
    signal: options.signal,
  });
  const { describeDraft } = await import('./open_draft.js');
  return describeDraft(source, options, { ...(await openTokenizer(main)), facts: main.facts });
}

type Files = Pick<DescribedModel, 'source' | 'reader'> & { readonly unused?: ReadonlySet<string> };

/** Of all that is loaded. */
async function downloadSize(
  files: readonly Files[],
  signal: AbortSignal | undefined,
): Promise<DownloadSize | undefined> {
  const sizes = await Promise.all(files.map((each) => sizeOf(each, signal)));
  return sizes.reduce(
    (all, size) =>
      all &&
      size && {
        bytes: all.bytes + size.bytes,
        storedBytes: all.storedBytes + size.storedBytes,
        complete: all.complete && size.complete,
      },
  );
}

async function sizeOf(
  { source, reader: read, unused }: Files,
  signal: AbortSignal | undefined,
): Promise<DownloadSize | undefined> {
  const reader = await read().catch((error: unknown) => {
    if (error instanceof SplitkvError && error.code === 'io') return undefined;
    throw error;
  });
  if (!reader) return undefined;
  let bytes = 0;
  for (const { name, start, end } of reader.index.tensors.values()) bytes += unused?.has(name) ? 0 : end - start;
  if (source.gguf === undefined) bytes += (await source.size('tokenizer.json', signal)) ?? 0;
  const own = source.url === undefined ? undefined : await findCached(source.url).catch(() => undefined);
  return { bytes, storedBytes: Math.min(own?.bytes ?? 0, bytes), complete: own?.complete ?? false };
}

/** The request that plans are compared at. @throws SplitkvError `usage` for one that the context has no room for */
function requestOf(
  contextLength: number,
  { promptTokens, newTokens, batch = 1 }: Pick<PlanModelOptions, 'promptTokens' | 'newTokens' | 'batch'>,
): { readonly promptLength: number; readonly newTokens: number; readonly batch: number } {
  const request = { ...usualRequest(contextLength, promptTokens), ...defined({ newTokens }), batch };
  if (request.promptLength + request.newTokens > contextLength + 1) {
    throw usageError(
      `a prompt of ${request.promptLength} tokens and ${request.newTokens} new ones exceed the context of ${contextLength}: ask for fewer, or a longer context`,
    );
  }
  return request;
}
