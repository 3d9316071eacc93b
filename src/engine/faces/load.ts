/**
 * Room: what users call: from a name and options to a model that answers (here), plans before a download (plan_model.ts), models
 * for one request (model.ts) and for many (serving_model.ts). `files` finds the model, `planning` chooses a plan, `ranks` runs
 * steps, `scheduler` and `serving` run many requests.
 */

import { messageOf, SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import type { AdapterRequest } from '../../gpu/index.js';
import { findCached, type Source } from '../../loader/index.js';
import { checkWindowFits } from '../../model/compression/budgets.js';
import { type ModelConfig, takesRows } from '../../model/config/model_config.js';
import type { Plan } from '../../placement/index.js';
import type { LoadOptions, LoadProgress, Model, Pooling, RecommendedSampling } from '../contracts/api.js';
import { checkLoadOptions, modelNetworkOf, networkOf, prefillList } from '../contracts/load_options.js';
import { isStored } from '../contracts/cluster_options.js';
import type { PrefillWorker } from '../contracts/prefill_worker.js';
import { type ModelTokenizer, openTokenizer } from '../files/model_files.js';
import { openFiles, orDamage } from '../files/open_files.js';
import { type ChosenPlan, choosePlan } from '../planning/choose_plan.js';
import { LEAST_CONTEXT } from '../planning/context_length.js';
import { namedByDegrees } from '../planning/degrees.js';
import { type PlanSubject, type ProfileOf, runnerOf } from '../planning/plan_subject.js';
import { loadSeats } from '../planning/seats.js';
import type { RankProgress } from '../ranks/open_rank.js';
import { type ModelRanks, RankGroup, warnOfExact } from '../ranks/rank_group.js';
import type { KeptPrefixes } from '../serving/kept_prefixes.js';
import type { Pictures } from '../serving/pictures.js';
import { type ModelPlace, placeOf } from '../workers/model_place.js';
import { type RanksOfPlan, WorkerGroup } from '../workers/worker_group.js';
import type { RankPlaces } from '../workers/worker_protocol.js';
import {
  contextFacts,
  type DescribedFacts,
  type DescribedModel,
  describeModel,
  type ModelFacts,
  type Seats,
} from './describe_model.js';
import { speculationOf } from '../serving/speculation/speculate_option.js';
import type { DraftModel } from '../serving/speculation/draft_model.js';
import type { FoundDraft } from './open_draft.js';
import { Adapters } from '../serving/adapters.js';
import { LoadedModel } from './model.js';

const REPORT_MS = 100;

/** What is told before there is anything. */
export const NO_PROGRESS = {
  loadedBytes: 0,
  totalBytes: 0,
  tensorsLoaded: 0,
  tensorsTotal: 0,
  kernelsCompiled: 0,
  kernelsTotal: 0,
};

/** A model on its ranks: what `load` and `serve` build on. */
export interface OpenedModel extends ModelTokenizer {
  readonly config: ModelConfig;
  readonly group: ModelRanks;
  readonly name: string;
  readonly sampling: RecommendedSampling;
  /** Its files, for what is read later. */
  readonly source?: Source;
  /** How vectors of texts are made; default: as no file says anything. */
  readonly sentenceFiles?: DescribedModel['sentenceFiles'];
  readonly pooling?: Pooling | undefined;
  readonly loadSeconds: number;
  /** Why it was chosen, of `auto`. */
  readonly modelReason?: string;
  /** Where prompts are computed on a device of their own. */
  readonly prefiller?: PrefillWorker | undefined;
  /** Proposes tokens. */
  readonly draft?: DraftModel | undefined;
  /** Where prompts may have them. */
  readonly pictures?: Pictures | undefined;
  /** Beside its matrices. */
  readonly adapters?: Adapters;
  /** `chosen` is the plan that its ranks have now. */
  readonly planned?: { readonly chosen: ChosenPlan };
  /** Opens what is kept of its keys and values, on the ranks that it has, where that is of every request, or `asks` for it. */
  readonly openKept?: (asks?: boolean) => Promise<KeptPrefixes | undefined>;
}

/** Ranks of other machines, found before a model's files are. src/cluster implements it. */
export interface ModelPlaces extends RankPlaces {
  /** What is loaded on them: what was asked for, with what the ranks settle. */
  readonly options: LoadOptions;
  readonly measure: NonNullable<PlanSubject['measure']>;
  /** A model that is kept where the ranks are. */
  stored(where: string): Promise<Source>;
  /** The plan's ranks, in its order, where their adapters name them. */
  arrange(adapters: readonly AdapterRequest[]): void;
  /** The place of a prefill worker, by its number; its connection is that of the ranks, and closed with theirs. */
  beside(worker: number): RankPlaces;
  /**
   * The plan for the ranks that are left, which take all shares anew.
   * @param lost why a rank has no place any more
   * @throws SplitkvError `peer_lost` where no rank is left, or what is left has no room for the model
   */
  planOnRest(subject: PlanSubject, lost: SplitkvError, signal: AbortSignal | undefined): Promise<ChosenPlan>;
  close(): Promise<void>;
}

/** Finds ranks of other machines, by the options' `cluster`. */
export type JoinPlaces = (options: LoadOptions) => Promise<ModelPlaces>;

/**
 * What splitkv's `load` does (src/entry.ts).
 * @param join finds the ranks of a cluster; default: there are none
 */
export async function load(
  where: string | URL | readonly File[] | Source,
  options: LoadOptions = {},
  join?: JoinPlaces,
): Promise<Model> {
  const seats = ({ plan, contextLength }: ModelFacts): Seats => loadSeats(plan, contextLength, options.requests);
  const opened = await openModel(where, options, seats, { join });
  const { prefixCaching, attentionDpConfig } = options;
  return LoadedModel.of(opened, {
    stepsInFlight: options.stepsInFlight ?? 'auto',
    prefixCaching,
    attentionDpConfig,
    speculation: await speculationOf(options.speculate, opened.draft),
    onWarning: oncePerText(options.onWarning),
  });
}

/**
 * Opens a model's files and its ranks, with as many seats as the caller wants; without `join` there are no ranks but this machine's.
 * @throws as `load`
 */
export async function openModel(
  where: string | URL | readonly File[] | Source,
  options: LoadOptions,
  seats: (facts: ModelFacts) => Seats,
  { together, join }: Pick<PlanSubject, 'together'> & { readonly join?: JoinPlaces | undefined } = {},
): Promise<OpenedModel> {
  checkLoadOptions(options);
  if (where === 'auto') {
    const { name, why } = await (await import('../planning/catalog_fit.js')).autoModel(options);
    return { ...(await openModel(name, options, seats, { together, join })), modelReason: why };
  }
  let places: ModelPlaces | undefined;
  if (options.cluster) {
    if (!join) throw usageError("cluster: this call has no ranks but this machine's; use splitkv's load or serve");
    places = await join(await namedByDegrees(options));
  }
  const asked = places?.options ?? options;
  try {
    return await orDamage(options.signal, (opened) => openParts(where, asked, seats, together, opened, places));
  } catch (error) {
    await places?.close();
    throw error;
  }
}

interface Opening {
  readonly where: string | URL | readonly File[] | Source;
  /** Checked, and with the plan that degrees name. */
  readonly options: LoadOptions;
  readonly places: ModelPlaces | undefined;
  readonly onWarning: LoadOptions['onWarning'];
  readonly progress: LiveProgress;
}

async function openParts(
  where: string | URL | readonly File[] | Source,
  given: LoadOptions,
  seats: (facts: ModelFacts) => Seats,
  together: number | undefined,
  opened: (source: Source) => Source,
  places: ModelPlaces | undefined,
): Promise<OpenedModel> {
  const started = performance.now();
  const options = await namedByDegrees(given);
  throwIfAborted(options.signal, 'loading');
  if (options.workers && options.fetch) {
    throw usageError("workers: a fetch function can't be sent to a worker; leave one of them out");
  }
  let reported: LoadProgress = { ...NO_PROGRESS, phase: 'config' };
  const report = (progress: Partial<LoadProgress> & Pick<LoadProgress, 'phase'>): void =>
    options.onProgress?.((reported = { ...NO_PROGRESS, ...progress }));
  const onWait = (waiting?: string): void => options.onProgress?.({ ...reported, ...(waiting && { waiting }) });
  const onWarning = oncePerText(options.onWarning);
  const progress = new LiveProgress(report);
  const opening: Opening = { where, options, places, onWarning, progress };

  report({ phase: 'config' });
  const { source: found, place } = await openSource(opening, onWait);
  const source = opened(found);
  const model = await describeModel(source, options, onWarning);
  report({ phase: 'tokenizer' });
  const text = await openTokenizer(model);
  if (text.noTokenizer) onWarning?.(`token ids only, no text: ${text.noTokenizer.message}`);
  const { facts, name } = model;
  // Before there are ranks that a failure would leave behind; a page that opens no GGUF file doesn't download the catalog.
  const usual =
    source.gguf === undefined ? {} : (await import('../../loader/hub/catalog.js')).catalogSampling(source.gguf);
  const draft = await findDraft(opening, onWait, model, text);
  const profileOf: ProfileOf = async (...of) => {
    const { modelProfile } = await import('./model_profile.js');
    const onProgress = (what: string): void => report({ phase: 'profile', what });
    return modelProfile({ ...text, name, source, reader: model.reader, onProgress }, ...of);
  };
  const fixed = { together, measure: places?.measure, draftBytes: draft?.bytes };
  const settle = async (of: DescribedFacts) => {
    const subject = { ...of, ...fixed, seatsOf: (plan: Plan) => seats({ ...of, plan }) };
    const plans = new SettledPlan(subject, await choosePlan(options, subject, profileOf), options.tune ?? true);
    places?.arrange(plans.chosen.adapters);
    await warnOfPlan(plans.chosen, of.contextLength, onWarning);
    const placed: Placed = { ...opening, model, plans, place, draft };
    return { placed, group: await openRanks(placed) };
  };
  const { placed, group } = await settle(facts).catch((error: unknown) => {
    const shorter = places ? undefined : shorterFacts(facts, options, error);
    if (!shorter) throw error;
    onWarning?.(
      `no room for a context of ${facts.contextLength} tokens (${messageOf(error)}): it is of ${shorter.contextLength}; ` +
        'give contextLength to have another',
    );
    return settle(shorter);
  });
  let beside: Awaited<ReturnType<typeof openBeside>>;
  try {
    if (facts.compression) checkWindowFits(facts.compression.window, group.runner.promptRows);
    if (options.precision === 'fast') warnOfExact(facts.type, group, onWarning);
    await source.flush?.(); // throws where what was read isn't one version of each file
    beside = await openBeside(placed, group);
  } catch (error) {
    await group.dispose();
    throw error;
  }
  report({ ...progress.last, phase: 'ready' });
  return {
    config: facts.config,
    group,
    ...beside,
    ...text,
    name,
    sampling: { ...usual, ...model.sampling },
    source,
    sentenceFiles: model.sentenceFiles,
    pooling: options.pooling,
    loadSeconds: (performance.now() - started) / 1000,
    planned: placed.plans,
  };
}

/** The least default context, where the default had no room. */
function shorterFacts(
  facts: DescribedFacts,
  { contextLength }: LoadOptions,
  error: unknown,
): DescribedFacts | undefined {
  const isRoom = error instanceof SplitkvError && error.code === 'limit';
  if (!isRoom || contextLength !== undefined || facts.contextLength <= LEAST_CONTEXT) return undefined;
  return { ...facts, ...contextFacts(facts, LEAST_CONTEXT) };
}

/** The plan that a model's ranks have now: of a cluster's that are left, another one takes its place. */
class SettledPlan {
  constructor(
    readonly subject: PlanSubject,
    public chosen: ChosenPlan,
    readonly tune: boolean,
  ) {}

  get ranks(): RanksOfPlan {
    const { plan, adapters, budgets } = this.chosen;
    return { plan, adapters, runner: { ...runnerOf(this.subject, plan), memory: budgets, tune: this.tune } };
  }
}

/** The model's files, and where a rank in another thread, or on another machine, finds them. */
async function openSource(
  { where, options, places, onWarning, progress }: Opening,
  onWait: (waiting?: string) => void,
): Promise<{ readonly source: Source; readonly place: ModelPlace | undefined }> {
  const { cache = true, integrity, signal } = options;
  const network = modelNetworkOf(options);
  const stored = isStored(where) ? await (places ?? noCluster(where)).stored(where) : undefined;
  const source = await openFiles(stored ?? where, {
    network,
    cache,
    integrity,
    onWarning,
    onProgress: ({ loadedBytes, totalBytes }) =>
      progress.report({ ...NO_PROGRESS, phase: 'download', loadedBytes, totalBytes }),
    onBytes: (bytes) => progress.arrived(bytes),
    onWait,
    signal,
  });
  if (!options.workers && !places) return { source, place: undefined };
  // Another machine has the files elsewhere than this one, unless the cluster has them.
  const at = places && source.at?.name && !stored ? { ...source.at, where: source.at.name } : source.at;
  return { source, place: await placeOf(where, network, at) };
}

/** A draft model's files, where one is asked for, or the model's own head. */
async function findDraft(
  { options, ...opening }: Opening,
  onWait: (waiting?: string) => void,
  model: DescribedModel,
  text: ModelTokenizer,
): Promise<FoundDraft | undefined> {
  if (options.speculate === 'mtp') return (await import('./open_draft.js')).describeHead(model, options);
  if (options.draft === undefined) return undefined;
  // Of the model itself.
  const others = { workers: false, integrity: undefined, images: false, mmproj: undefined, sound: false };
  const own = { ...opening, where: options.draft, options: { ...options, ...others } };
  const { source } = await openSource({ ...own, places: undefined }, onWait);
  return (await import('./open_draft.js')).describeDraft(source, options, { ...text, facts: model.facts });
}

/** What whoever asked for the plan should know of it. */
async function warnOfPlan(
  { plan, picked, note }: ChosenPlan,
  contextLength: number,
  onWarning: LoadOptions['onWarning'],
): Promise<void> {
  if (note !== undefined) onWarning?.(note);
  if (plan.worldSize > 1) {
    const idle = (await import('../../placement/plan/describe_plan.js')).idleOfSplit(plan, contextLength);
    if (idle !== undefined) onWarning?.(idle);
  }
  if (picked && plan.worldSize < picked.ranks) onWarning?.(`ranks ${picked.ranks}: ${picked.why}`);
}

/** A model whose plan is chosen. */
interface Placed extends Opening {
  readonly model: DescribedModel;
  readonly plans: SettledPlan;
  readonly place: ModelPlace | undefined;
  readonly draft: FoundDraft | undefined;
}

/** What whoever computes with the model's weights is opened with. */
async function readWith({ options, onWarning, progress, model: { reader, facts } }: Placed) {
  const { config, type } = facts;
  const { cache = true, integrity, signal } = options;
  const onProgress = (used: RankProgress): void => progress.used(loadProgress(used));
  return { config, type, reader: await reader(), cache, integrity, signal, onProgress, onWarning };
}

/** Ranks in this thread, or each in a worker or on a machine of its own. */
async function openRanks(placed: Placed): Promise<ModelRanks> {
  const { options, places, progress, model, plans, place } = placed;
  const shared = { ...(await readWith(placed)), ...plans.ranks };
  const { reader } = shared;
  if (!place) {
    progress.begin(reader.index.totalBytes, reader.index.tensors.size); // workers read for themselves
    return RankGroup.open({ ...shared, virtual: options.virtualRanks ?? false });
  }
  return WorkerGroup.open({
    ...shared,
    place,
    oneByOne: !places && (await isDownloading(model.source)),
    digest: places && (await digestOf(shared)),
    places,
    replan:
      places &&
      (async (lost, stop) => {
        plans.chosen = await places.planOnRest(plans.subject, lost, stop);
        return plans.ranks;
      }),
  });
}

/** Adapters, a draft model, what computes pictures and recordings of prompts, and prompts on a device of their own, where the model is loaded so. */
async function openBeside(
  placed: Placed,
  group: ModelRanks,
): Promise<Pick<OpenedModel, 'prefiller' | 'pictures' | 'adapters' | 'openKept' | 'draft'>> {
  const { options, model, onWarning, draft, places } = placed;
  const { prefill } = options;
  const adapters = new Adapters(group, { network: networkOf(options), cache: options.cache, onWarning });
  for (const [name, each] of Object.entries(options.adapters ?? {})) await adapters.add(name, each, options);
  const { config } = model.facts;
  const { Pictures } = takesRows(config) ? await import('../serving/pictures.js') : {};
  // Ranks of other machines have no device of this one.
  const adapter = places ? undefined : placed.plans.chosen.adapters[0];
  return {
    adapters,
    draft: draft && (await (await import('./open_draft.js')).openDraft(draft, group, adapter, await readWith(placed))),
    openKept: async (asks = false) =>
      asks || options.kvDir !== undefined || options.prefixes?.length
        ? (await import('./kept_kv.js')).openKept(model, group, { ...options, onWarning }, asks)
        : undefined,
    pictures: await Pictures?.of(config, model, () => group.runner),
    prefiller: prefill && (await openPrefiller(placed, prefill)),
  };
}

/** What ranks of other machines compare their files with. */
const digestOf = async ({ config, reader }: Awaited<ReturnType<typeof readWith>>): Promise<string> =>
  (await import('../files/model_digest.js')).modelDigest(config, reader);

async function openPrefiller(placed: Placed, prefill: NonNullable<LoadOptions['prefill']>): Promise<PrefillWorker> {
  const { openPrefill } = await import('../prefill/open_prefill.js');
  const { model, place, places, plans } = placed;
  const { plan, adapters, runner } = plans.ranks;
  const shared = await readWith(placed);
  return openPrefill({
    ...shared,
    ...(places && { digest: await digestOf(shared), placesOf: (worker) => places.beside(worker) }),
    options: prefillList(prefill),
    runner,
    adapter: adapters[0]!,
    ranks: plan.worldSize,
    prefixCaching: model.facts.prefixCaching,
    place,
  });
}

/** Kernels are compiled while weights are read; where they take longer, they are what is waited for. */
function loadProgress({ kernelsCompiled = 0, kernelsTotal = 0, waiting, ...weights }: RankProgress): LoadProgress {
  const waits = weights.loadedBytes >= weights.totalBytes && kernelsCompiled < kernelsTotal;
  const phase = waits ? 'kernels' : 'weights';
  return { phase, ...weights, kernelsCompiled, kernelsTotal, ...(waiting && { waiting }) };
}

/** @throws SplitkvError `usage` */
function noCluster(where: string): never {
  throw usageError(`${where}: a model that a cluster's server keeps; name the cluster, too (cluster: { servers })`);
}

/** Whether reading the weights fills the browser's cache: from then on they are there. */
async function isDownloading({ url, flush }: Source): Promise<boolean> {
  if (flush === undefined || url === undefined) return false;
  return !(await findCached(url).catch(() => undefined))?.complete;
}

/** Ranks in workers read the same files, and warn of the same things. */
function oncePerText(onWarning: LoadOptions['onWarning']): LoadOptions['onWarning'] {
  const told = new Set<string>();
  return (message) => {
    if (told.has(message)) return;
    told.add(message);
    onWarning?.(message);
  };
}

/** Progress that counts bytes as they arrive over the network, ahead of the tensors that are made of them. */
export class LiveProgress {
  /** As far as tensors have been read; before the first, what they will come to. */
  last: LoadProgress | undefined;
  /** Of the files before the weights. */
  #first = 0;
  #underway = 0;
  #shown = 0;
  #at = -Infinity;

  constructor(
    readonly report: (progress: LoadProgress) => void,
    readonly now: () => number = () => performance.now(),
  ) {}

  /** What is read from now on are weights. */
  begin(totalBytes: number, tensorsTotal: number): void {
    this.last = { ...NO_PROGRESS, phase: 'weights', totalBytes, tensorsTotal };
  }

  /** As of `HttpOptions.onBytes`. */
  arrived(bytes: number): void {
    this.#underway += bytes;
    if (bytes <= 0) return;
    if (!this.last) this.#first += bytes;
    if (this.now() - this.#at < REPORT_MS) return;
    if (this.last) return this.#tell(this.last);
    this.#at = this.now();
    this.report({ ...NO_PROGRESS, phase: 'config', loadedBytes: this.#first });
  }

  /** Tensors were read. */
  used(progress: LoadProgress): void {
    if (progress.loadedBytes < (this.last?.loadedBytes ?? 0)) this.#shown = 0; // others begin, of a prefill worker
    this.last = progress;
    this.#tell(progress);
  }

  #tell(progress: LoadProgress): void {
    this.#at = this.now();
    const { loadedBytes, totalBytes } = progress;
    this.#shown = Math.min(totalBytes, Math.max(this.#shown, loadedBytes + Math.max(0, this.#underway)));
    this.report({ ...progress, loadedBytes: this.#shown });
  }
}
