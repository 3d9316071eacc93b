/**
 * Room: what users call: from a name and options to a model that answers (here), plans before a download (plan_model.ts), models
 * for one request (model.ts) and for many (serving_model.ts). `files` finds the model, `planning` chooses a plan, `ranks` runs
 * steps, `scheduler` and `serving` run many requests.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import { throwIfAborted, usageError } from '../../base/errors.js';
import { checkOptions, oneOf, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { listCached, type NetworkOptions, parseIntegrity, type Source } from '../../loader/index.js';
import type { CompressionOptions } from '../../model/compression/options.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { checkWindowFits } from '../../model/compression/window.js';
import { KV_TYPES, type KvType } from '../../model/layers/attention/cache.js';
import type { RankProgress } from '../ranks/open_rank.js';
import { modelShape } from '../../model/shape.js';
import { checkTogether, type Feature, modelFeatures, type Plan } from '../../placement/index.js';
import type { LoadOptions, LoadProgress, Model, RecommendedSampling } from '../contracts/api.js';
import { type ChosenPlan, choosePlan, type PickedPlan } from '../planning/choose_plan.js';
import { kvCompression } from '../planning/kv_compression.js';
import { LiveProgress, NO_PROGRESS } from './live_progress.js';
import { LoadedModel } from './model.js';
import { type ModelTokenizer, openModelFiles, openTokenizer, storedType } from '../files/model_files.js';
import { modelName } from '../files/model_name.js';
import { placeOf } from '../workers/model_place.js';
import { openFiles, orDamage } from '../files/open_files.js';
import { runnerOf } from '../planning/plan_subject.js';
import { namedByDegrees } from '../planning/degrees.js';
import { cacheType, MAX_RANKS } from '../planning/rank_adapters.js';
import { loadSeats } from '../planning/seats.js';
import { checkPrefill, prefillList } from '../prefill/check_prefill.js';
import { prefillFeatures, type PrefillWorker } from '../contracts/prefill_worker.js';
import { parseAttentionDpConfig } from '../scheduler/adp/config.js';
import { type ModelRanks, RankGroup } from '../ranks/rank_group.js';
import { MAX_STEPS_IN_FLIGHT, type RunnerOptions } from '../ranks/runner.js';
import { WorkerGroup } from '../workers/worker_group.js';
import { isStored } from '../../cluster/names.js';
import type { ClusterRanks } from '../../cluster/ranks/cluster_ranks.js';

export const DEFAULT_CONTEXT = 4096;
export const loadSchema: OptionsSchema<LoadOptions> = {
  weights: oneOf(['auto', 'f32', 'f16', 'q8', 'q4']),
  kv: oneOf(['auto', ...KV_TYPES]),
  kvBudget: true,
  kvPolicy: true,
  kvWindow: true,
  kvKernel: true,
  kvAlpha: true,
  kvProfile: true,
  copies: wholeNumber(0, 1023),
  contextLength: wholeNumber(1, 2 ** 20),
  prefillChunk: wholeNumber(1, 4096),
  stepsInFlight: wholeNumber(1, MAX_STEPS_IN_FLIGHT),
  ranks: true,
  plan: true,
  tensor: wholeNumber(1, MAX_RANKS),
  token: (value) => (typeof value === 'number' ? wholeNumber(1, MAX_RANKS)(value) : undefined),
  sequence: wholeNumber(1, MAX_RANKS),
  pipeline: wholeNumber(1, MAX_RANKS),
  data: wholeNumber(1, MAX_RANKS),
  virtualRanks: true,
  workers: true,
  cluster: true,
  memory: true,
  requests: wholeNumber(1, 64),
  prefixCaching: true,
  attentionDpConfig: true,
  prefill: true,
  powerPreference: oneOf(['high-performance', 'low-power']),
  adapter: true,
  variants: oneOf(['auto', 'hardware', 'software']),
  tune: true,
  precision: oneOf(['exact', 'fast']),
  cache: true,
  integrity: true,
  hub: true,
  hubToken: true,
  headers: true,
  fetch: true,
  onProgress: true,
  onWarning: true,
  signal: true,
};

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

/** How many sequences the ranks are set up for. */
export type Seats = Pick<RunnerOptions, 'slots' | 'batches' | 'kvBlocks' | 'windows'>;

/**
 * Loads a Hugging Face model folder or a GGUF file and prepares it on one GPU device, or on several (`ranks`, `plan`).
 *
 * @param where a folder or .gguf file on disk (Node), a URL of either that answers range requests, the files (browser), or a model of
 *   the Hugging Face Hub: 'ORG/NAME', 'hf:ORG/NAME@REVISION/FILE.gguf', or a name of the catalog (`models()`)
 * @throws SplitkvError: `usage`, `io`, `format`, `config`, `unsupported`, `limit`, `no_webgpu`, `aborted`. Whatever was
 *   allocated until then is freed.
 */
export async function load(where: string | URL | readonly File[] | Source, options: LoadOptions = {}): Promise<Model> {
  const { requests, prefixCaching, attentionDpConfig } = options;
  const seats = ({ plan, contextLength }: ModelFacts): Seats => loadSeats(plan, contextLength, requests);
  const opened = await openModel(where, options, seats);
  return LoadedModel.of(opened, {
    stepsInFlight: options.stepsInFlight ?? 'auto',
    prefixCaching,
    attentionDpConfig,
    onWarning: options.onWarning,
  });
}

/**
 * Opens a model's files and its ranks, with as many seats as the caller wants; `together`: as `PlanSubject`'s.
 * @throws as `load`
 */
export async function openModel(
  where: string | URL | readonly File[] | Source,
  options: LoadOptions,
  seats: (facts: ModelFacts) => Seats,
  together?: number,
): Promise<OpenedModel> {
  if (!options.cluster) return orDamage(options.signal, (opened) => openParts(where, options, seats, together, opened));
  checkLoadOptions(options);
  const { ClusterRanks } = await import('../../cluster/ranks/cluster_ranks.js');
  const places = await ClusterRanks.join(await namedByDegrees(options));
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
  places?: ClusterRanks,
): Promise<OpenedModel> {
  const started = performance.now();
  checkLoadOptions(given);
  const options = await namedByDegrees(given);
  const { signal } = options;
  throwIfAborted(signal, 'loading');
  const report = (progress: Partial<LoadProgress> & Pick<LoadProgress, 'phase'>): void =>
    options.onProgress?.({ ...NO_PROGRESS, ...progress });

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
  const source = opened(await openFiles(files, { network, cache, integrity, onWarning, onProgress, onBytes, signal }));
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
  let chosen = await choosePlan(options, subject, {
    ...text,
    name,
    source,
    reader: () => Promise.resolve(reader),
    onProgress: (what) => report({ phase: 'profile', what }),
  });
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
            const { planOnRest } = await import('../../cluster/ranks/plan_on_rest.js');
            chosen = await planOnRest(places, subject, lost, stop);
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
function loadProgress({ kernelsCompiled = 0, kernelsTotal = 0, ...weights }: RankProgress): LoadProgress {
  const waits = weights.loadedBytes >= weights.totalBytes && kernelsCompiled < kernelsTotal;
  return { phase: waits ? 'kernels' : 'weights', ...weights, kernelsCompiled, kernelsTotal };
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

/** What is said of the network, and nothing else. */
export function networkOf({
  hub,
  token,
  hubToken = typeof token === 'string' ? token : undefined,
  headers,
  fetch: given,
}: Pick<LoadOptions, keyof NetworkOptions | 'hubToken'>): NetworkOptions {
  return {
    ...(hub !== undefined && { hub }),
    ...(hubToken !== undefined && { token: hubToken }),
    ...(headers && { headers }),
    ...(given && { fetch: given }),
  };
}

/** Whether reading the weights fills the browser's cache: from then on they are there. */
async function isDownloading({ url, flush }: Source): Promise<boolean> {
  if (flush === undefined) return false;
  const models = await listCached().catch(() => []);
  return !models.some((model) => model.url === url && model.complete);
}

/**
 * Checks what is known of the options before the model is.
 * @throws SplitkvError `usage` for an option or a value that isn't known, or options that don't go together
 */
export function checkLoadOptions(options: LoadOptions): void {
  checkOptions('load', options, loadSchema);
  const given = (['workers', 'virtualRanks'] as const).filter((name) => options[name]);
  checkTogether(given);
  checkPrefill(options.prefill);
  if (options.attentionDpConfig !== undefined) parseAttentionDpConfig(options.attentionDpConfig);
  if (options.integrity !== undefined) parseIntegrity(options.integrity);
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

/** Tokens that a sequence may have. @throws SplitkvError `usage` beyond the model's positions */
export function checkContext(asked: number | undefined, config: ModelConfig): number {
  if (asked === undefined) return Math.min(config.maxPositions, DEFAULT_CONTEXT);
  if (asked > config.maxPositions) {
    throw usageError(`contextLength ${asked}: this model has at most ${config.maxPositions} positions`);
  }
  return asked;
}
