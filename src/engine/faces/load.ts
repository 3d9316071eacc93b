/**
 * Room: what users call: from a name and options to a model that answers (here), plans before a download (plan_model.ts), models
 * for one request (model.ts) and for many (serving_model.ts). `files` finds the model, `planning` chooses a plan, `ranks` runs
 * steps, `scheduler` and `serving` run many requests.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import { type SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import type { AdapterRequest } from '../../gpu/index.js';
import { listCached, type Source } from '../../loader/index.js';
import type { CompressionOptions } from '../../model/compression/options.js';
import { checkWindowFits } from '../../model/compression/window.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import { modelShape } from '../../model/shape.js';
import { checkTogether, type Feature, modelFeatures, type Plan } from '../../placement/index.js';
import type { LoadOptions, LoadProgress, Model, RecommendedSampling } from '../contracts/api.js';
import { prefillList } from '../contracts/check_prefill.js';
import { isStored } from '../contracts/cluster_options.js';
import { checkContext, checkLoadOptions, networkOf } from '../contracts/load_options.js';
import { prefillFeatures, type PrefillWorker } from '../contracts/prefill_worker.js';
import { type ModelTokenizer, openModelFiles, openTokenizer, storedType } from '../files/model_files.js';
import { modelName } from '../files/model_name.js';
import { openFiles, orDamage } from '../files/open_files.js';
import { type ChosenPlan, choosePlan, type PickedPlan } from '../planning/choose_plan.js';
import { namedByDegrees } from '../planning/degrees.js';
import { kvCompression } from '../planning/kv_compression.js';
import { type PlanSubject, type ProfileOf, runnerOf } from '../planning/plan_subject.js';
import { cacheType } from '../planning/rank_adapters.js';
import { loadSeats } from '../planning/seats.js';
import type { RankProgress } from '../ranks/open_rank.js';
import { type ModelRanks, RankGroup } from '../ranks/rank_group.js';
import type { RunnerOptions } from '../contracts/rank.js';
import { placeOf } from '../workers/model_place.js';
import { WorkerGroup } from '../workers/worker_group.js';
import type { RankPlaces } from '../workers/worker_handle.js';
import { LiveProgress, NO_PROGRESS } from './live_progress.js';
import { LoadedModel } from './model.js';

/** A model on its ranks: what `load` and `serve` build on. */
export interface OpenedModel extends ModelTokenizer {
  readonly config: ModelConfig;
  readonly group: ModelRanks;
  readonly name: string;
  readonly sampling: RecommendedSampling;
  /** Its files, for what is read later. */
  readonly source?: Source;
  readonly loadSeconds: number;
  /** Where prompts are computed on a device of their own. */
  readonly prefiller?: PrefillWorker | undefined;
  /** Where the planner chose; of the plan that its ranks have now. */
  readonly picked?: PickedPlan | undefined;
  /** Why that plan is as it is, where it wasn't named or given. */
  readonly planReason?: string | undefined;
}

/** What is known of a model before its ranks are opened. */
export interface ModelFacts {
  readonly config: ModelConfig;
  readonly type: WeightType;
  readonly kvType: KvType;
  readonly plan: Plan;
  readonly contextLength: number;
  /** Default: the plan's. */
  readonly prefillChunk?: number | undefined;
  /** Where prompts are compressed. */
  readonly compression?: CompressionOptions;
  readonly prefixCaching?: boolean | undefined;
  /** What else is asked for, beside the compression. */
  readonly features?: readonly Feature[];
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

/** What `openModel` does beside what the options say. */
export interface OpenHow {
  /** As `PlanSubject`'s. */
  readonly together?: number | undefined;
  /** Default: there are no ranks but this machine's. */
  readonly join?: JoinPlaces | undefined;
}

/** How many sequences the ranks are set up for. */
export type Seats = Pick<RunnerOptions, 'slots' | 'batches' | 'kvBlocks' | 'windows'>;

/**
 * What splitkv's `load` does (src/entry.ts).
 * @param join finds the ranks of a cluster; default: there are none
 */
export async function load(
  where: string | URL | readonly File[] | Source,
  options: LoadOptions = {},
  join?: JoinPlaces,
): Promise<Model> {
  const { requests, prefixCaching, attentionDpConfig } = options;
  const seats = ({ plan, contextLength }: ModelFacts): Seats => loadSeats(plan, contextLength, requests);
  const opened = await openModel(where, options, seats, { join });
  return LoadedModel.of(opened, {
    stepsInFlight: options.stepsInFlight ?? 'auto',
    prefixCaching,
    attentionDpConfig,
    onWarning: options.onWarning,
  });
}

/**
 * Opens a model's files and its ranks, with as many seats as the caller wants.
 * @throws as `load`
 */
export async function openModel(
  where: string | URL | readonly File[] | Source,
  options: LoadOptions,
  seats: (facts: ModelFacts) => Seats,
  { together, join }: OpenHow = {},
): Promise<OpenedModel> {
  if (!options.cluster) return orDamage(options.signal, (opened) => openParts(where, options, seats, together, opened));
  checkLoadOptions(options);
  if (!join) throw usageError("cluster: this call has no ranks but this machine's; use splitkv's load or serve");
  const places = await join(await namedByDegrees(options));
  try {
    return await orDamage(options.signal, (opened) =>
      openParts(where, places.options, seats, together, opened, places),
    );
  } catch (error) {
    await places.close();
    throw error;
  }
}

async function openParts(
  where: string | URL | readonly File[] | Source,
  given: LoadOptions,
  seats: (facts: ModelFacts) => Seats,
  together: number | undefined,
  opened: (source: Source) => Source,
  places?: ModelPlaces,
): Promise<OpenedModel> {
  const started = performance.now();
  checkLoadOptions(given);
  const options = await namedByDegrees(given);
  const { signal } = options;
  throwIfAborted(signal, 'loading');
  let reported: LoadProgress = { ...NO_PROGRESS, phase: 'config' };
  const report = (progress: Partial<LoadProgress> & Pick<LoadProgress, 'phase'>): void =>
    options.onProgress?.((reported = { ...NO_PROGRESS, ...progress }));
  const onWait = (waiting?: string): void => options.onProgress?.({ ...reported, ...(waiting && { waiting }) });

  report({ phase: 'config' });
  const cache = options.cache ?? true;
  const onWarning = oncePerText(options.onWarning);
  const { integrity } = options;
  if (options.workers && options.fetch) {
    throw usageError("workers: a fetch function can't be sent to a worker; leave one of them out");
  }
  const network = networkOf(options);
  const onProgress = ({ loadedBytes, totalBytes }: Pick<LoadProgress, 'loadedBytes' | 'totalBytes'>): void =>
    report({ phase: 'download', loadedBytes, totalBytes });
  const progress = new LiveProgress(report);
  const onBytes = (bytes: number): void => progress.arrived(bytes);
  const stored = isStored(where) ? await (places ?? noCluster(where)).stored(where) : undefined;
  const files = stored ?? where;
  const source = opened(
    await openFiles(files, { network, cache, integrity, onWarning, onProgress, onBytes, onWait, signal }),
  );
  // Another machine has the files elsewhere than this one, unless the cluster has them.
  const at = places && source.at && !stored ? { ...source.at, where } : source.at;
  const place = options.workers || places ? await placeOf(where, network, at as typeof source.at) : undefined;
  const model = await openModelFiles(source, signal, onWarning);
  const { config, sampling } = model;
  const contextLength = checkContext(options.contextLength, config);
  report({ phase: 'tokenizer' });
  const text = await openTokenizer(model);
  if (text.noTokenizer) onWarning?.(`token ids only, no text: ${text.noTokenizer.message}`);
  const reader = await model.reader();
  const type = options.weights && options.weights !== 'auto' ? options.weights : storedType(reader, config);

  const kvType = await cacheType(options);
  const compression = await kvCompression(options, config);
  const { prefillChunk, prefixCaching } = options;
  const features: Feature[] = [
    ...(options.attentionDpConfig ? ['attentionDp' as const] : []),
    ...(prefixCaching ? ['prefixCaching' as const] : []),
    ...(options.prefill ? prefillFeatures(prefillList(options.prefill)[0]!.kind) : []),
  ];
  checkTogether([...features, ...(compression ? ['compression' as const] : []), ...modelFeatures(modelShape(config))]);
  const facts = {
    config,
    type,
    kvType,
    contextLength,
    prefillChunk,
    prefixCaching,
    features,
    ...(compression && { compression }),
  };
  const subject = {
    ...facts,
    together,
    seatsOf: (of: Plan) => seats({ ...facts, plan: of }),
    measure: places?.measure,
  };
  const name = modelName(source.gguf ?? source.name);
  const profileOf: ProfileOf = async (...of) => {
    const { modelProfile } = await import('./model_profile.js');
    const progress = (what: string): void => report({ phase: 'profile', what });
    return modelProfile({ ...text, name, source, reader: () => Promise.resolve(reader), onProgress: progress }, ...of);
  };
  let chosen = await choosePlan(options, subject, profileOf);
  const { plan, adapters, picked, note } = chosen;
  places?.arrange(adapters);
  if (note !== undefined) onWarning?.(note);
  if (plan.worldSize > 1) {
    const idle = (await import('../../placement/sequences/idle_ranks.js')).idleOfSplit(plan, contextLength);
    if (idle !== undefined) onWarning?.(idle);
  }
  if (picked && plan.worldSize < picked.ranks) onWarning?.(`ranks ${picked.ranks}: ${picked.why}`);
  const setUp = ({ plan: of, budgets }: ChosenPlan): RunnerOptions => ({
    ...runnerOf(subject, of),
    memory: budgets,
    tune: options.tune ?? true,
  });
  if (!place) progress.begin(reader.index.totalBytes, reader.index.tensors.size); // workers read for themselves
  const shared = {
    config,
    type,
    plan,
    adapters,
    runner: setUp(chosen),
    signal,
    onProgress: (used: RankProgress) => progress.used(loadProgress(used)),
  } as const;
  const digest = places && (await (await import('../files/model_digest.js')).modelDigest(config, reader));
  const group = place
    ? await WorkerGroup.open({
        ...shared,
        place,
        cache,
        integrity,
        oneByOne: !places && (await isDownloading(source)),
        onWarning,
        digest,
        places,
        replan:
          places &&
          (async (lost, stop) => {
            chosen = await places.planOnRest(subject, lost, stop);
            return { plan: chosen.plan, adapters: chosen.adapters, runner: setUp(chosen) };
          }),
      })
    : await RankGroup.open({ ...shared, reader, virtual: options.virtualRanks ?? false, onWarning });
  if (compression) await checkWindow(compression, group);
  if (options.precision === 'fast') {
    const { warnOfExact } = await import('../ranks/exact_anyway.js');
    warnOfExact(type, group, onWarning);
  }
  let prefiller: PrefillWorker | undefined;
  try {
    await source.flush?.(); // throws where what was read isn't one version of each file
    prefiller =
      options.prefill &&
      (await (
        await import('../prefill/open_prefill.js')
      ).openPrefill({
        ...shared,
        options: prefillList(options.prefill),
        reader,
        adapter: adapters[0]!,
        ranks: plan.worldSize,
        prefixCaching,
        place,
        cache,
        integrity,
        onWarning,
      }));
  } catch (error) {
    await group.dispose();
    throw error;
  }
  report({ ...progress.last, phase: 'ready' });
  const loadSeconds = (performance.now() - started) / 1000;
  return {
    config,
    group,
    prefiller,
    ...text,
    name,
    sampling,
    source,
    loadSeconds,
    get picked() {
      return chosen.picked;
    },
    get planReason() {
      return chosen.picked?.why ?? chosen.why;
    },
  };
}

/** Kernels are compiled while weights are read; where they take longer, they are what is waited for. */
function loadProgress({ kernelsCompiled = 0, kernelsTotal = 0, waiting, ...weights }: RankProgress): LoadProgress {
  const waits = weights.loadedBytes >= weights.totalBytes && kernelsCompiled < kernelsTotal;
  return {
    phase: waits ? 'kernels' : 'weights',
    ...weights,
    kernelsCompiled,
    kernelsTotal,
    ...(waiting && { waiting }),
  };
}

/** @throws SplitkvError `usage` */
function noCluster(where: string): never {
  throw usageError(`${where}: a model that a cluster's server keeps; name the cluster, too (cluster: { servers })`);
}

/** Frees the ranks and throws where a prompt step has no room for compression's window. */
async function checkWindow({ window }: CompressionOptions, group: ModelRanks): Promise<void> {
  try {
    checkWindowFits(window, group.runner.promptRows);
  } catch (error) {
    await group.dispose();
    throw error;
  }
}

/** Whether reading the weights fills the browser's cache: from then on they are there. */
async function isDownloading({ url, flush }: Source): Promise<boolean> {
  if (flush === undefined) return false;
  const models = await listCached().catch(() => []);
  return !models.some((model) => model.url === url && model.complete);
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
