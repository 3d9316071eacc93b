import { eachOf, type WeightTypes } from '../../model/weights/weight_types.js';
import { sum } from '../../base/lists.js';
import type { Device, PipelineSource, Replacement } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { loadWeights } from '../../model/device_model.js';
import type { World } from '../../model/layers/world.js';
import type { VocabTables, WeightProgress } from '../../model/weights/weight_loader.js';
import type { TuneOptions } from '../tuning/tune.js';
import type { TuningStats } from '../contracts/api.js';
import type { Replacements } from './check_variants.js';
import type { RunnerOptions } from '../contracts/rank.js';
import { RankRunner } from './rank_runner.js';

export interface RankProgress extends WeightProgress {
  /** Kernels that are compiled of those that the rank's programs need, as far as that is known. */
  readonly kernelsCompiled?: number;
  readonly kernelsTotal?: number;
  /** As of `LoadProgress`. */
  readonly waiting?: string | undefined;
}

/** Progress of several ranks together; those that have said nothing yet are taken to need as much as the others. */
export function progressOf(
  ranks: number,
  onProgress: ((progress: RankProgress) => void) | undefined,
): (index: number, progress: RankProgress) => void {
  const latest = new Map<number, RankProgress>();
  return (index, progress) => {
    latest.set(index, progress);
    const all = (of: (each: RankProgress) => number): number => sum([...latest.values()].map(of));
    const estimate = (of: (each: RankProgress) => number): number => Math.round((all(of) * ranks) / latest.size);
    onProgress?.({
      tensor: progress.tensor,
      waiting: progress.waiting,
      loadedBytes: all(({ loadedBytes }) => loadedBytes),
      totalBytes: estimate(({ totalBytes }) => totalBytes),
      tensorsLoaded: all(({ tensorsLoaded }) => tensorsLoaded),
      tensorsTotal: estimate(({ tensorsTotal }) => tensorsTotal),
      kernelsCompiled: all(({ kernelsCompiled }) => kernelsCompiled ?? 0),
      kernelsTotal: all(({ kernelsTotal }) => kernelsTotal ?? 0),
    });
  };
}

export interface RankRequest {
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly type: WeightTypes;
  readonly runner: RunnerOptions;
  readonly signal?: AbortSignal | undefined;
  /** As of `LoadWeightsOptions`. */
  readonly tables?: VocabTables | undefined;
  /** Another device on the same adapter. */
  readonly again: () => Promise<Device>;
  readonly onWarning?: ((message: string) => void) | undefined;
  /** False: its variants are taken as they are, or as another model has them that the device has, too. */
  readonly isChecked?: boolean;
  /** For tests: how kernels are timed. */
  readonly stopwatch?: Pick<TuneOptions, 'now' | 'openStopwatch'> | undefined;
}

/**
 * Loads a rank's slice on its device and records its programs. While the weights arrive, the programs' kernels are compiled, and a GPU's
 * variants are compared with the plain ones, which take the place of those that are wrong.
 * @throws as `loadWeights` and `RankRunner.create`
 */
export async function openRank(
  device: Device,
  world: World,
  request: RankRequest,
  onProgress?: (progress: RankProgress) => void,
): Promise<RankRunner> {
  const { config, reader, type, runner, signal, tables } = request;
  const failed = new AbortController();
  const arrived = new AbortController();
  let weights: WeightProgress | undefined;
  let kernels: Pick<RankProgress, 'kernelsCompiled' | 'kernelsTotal'> = {};
  const tell = (): void => weights && onProgress?.({ ...weights, ...kernels });
  const preparing = prepare(device, world, request, failed.signal, arrived.signal, (compiled, total) => {
    kernels = { kernelsCompiled: compiled, kernelsTotal: total };
    tell();
  });
  try {
    const model = await loadWeights(device, config, reader, type, world, {
      signal,
      tables,
      onProgress: (progress) => {
        weights = progress;
        tell();
      },
    });
    arrived.abort();
    await preparing;
    const ready = await RankRunner.create(device, world, config, model, runner);
    ready.facts = { ...ready.facts, tuning: await tuneHere(device, request) };
    return ready;
  } catch (error) {
    // Nothing may be under way on a device that is given up.
    failed.abort();
    await preparing;
    throw error;
  }
}

/** Compiles what the rank's programs will need, and finds variants that are wrong here. What fails is told when they are recorded. */
async function prepare(
  device: Device,
  { plan, rank }: World,
  request: RankRequest,
  signal: AbortSignal,
  arrived: AbortSignal,
  onProgress: (compiled: number, total: number) => void,
): Promise<void> {
  const { config, type, runner } = request;
  try {
    const { recordOnPaper } = await import('./rank_memory.js');
    const paper = await recordOnPaper(plan, rank, { config, type }, runner, device);
    const sources = paper.device.pipelineSources;
    // On a CPU a GPU's variants are for tests, which compare them themselves.
    const skips = device.traits.software || device.adapter.software || request.isChecked === false;
    const checking = skips ? undefined : wrongHere(device, request, sources, signal);
    checking?.catch(() => {}); // awaited below
    await device.compile(sources, signal, onProgress);
    const wrong = (await checking) ?? {};
    if (Object.keys(wrong).length > 0) device.replace((kernel) => wrong[kernel]);
    for (const replacement of new Set(Object.values(wrong))) {
      const kernels = Object.keys(wrong).filter((kernel) => wrong[kernel] === replacement);
      const how = replacement === 'exact' ? " and precision 'fast'" : '';
      request.onWarning?.(
        `${device.name} computes wrongly with ${kernels.join(', ')}${how}: the ${replacement} variant runs instead, which is slower; ` +
          'update the GPU driver or the browser',
      );
    }
    if (tunes(device, request) !== 'on') return;
    const { tuningSources } = await import('../tuning/tune.js');
    // No load waits for them.
    await device.compile(await tuningSources(device, paper.device), AbortSignal.any([signal, arrived]), () => {});
  } catch {
    // Recording says why.
  }
}

/** A CPU's variants have nothing to choose from, and a GPU's that are forced on a CPU are for tests. */
function tunes(device: Device, { runner: { tune = true } }: RankRequest): TuningStats['state'] {
  return device.traits.software || device.adapter.software ? 'software' : tune ? 'on' : 'off';
}

/** Chooses among a GPU's plans of equal bits (engine/tuning/tune.ts). */
async function tuneHere(device: Device, request: RankRequest): Promise<TuningStats> {
  const state = tunes(device, request);
  if (state !== 'on') return { state, choices: 0, known: 0, measured: 0, left: 0, chosen: {}, ms: 0 };
  const { tune } = await import('../tuning/tune.js');
  return tune(device, { signal: request.signal, ...request.stopwatch });
}

/** As `wrongVariants`, on a device of its own; once for an adapter and these kernels. */
async function wrongHere(
  device: Device,
  { config, type: types, runner: { kvType, contextLength, slots }, again }: RankRequest,
  sources: readonly PipelineSource[],
  signal: AbortSignal,
): Promise<Replacements> {
  const [{ wrongVariants }, { defaultStore, measured }] = await Promise.all([
    import('./check_variants.js'),
    import('../measure/stores/store.js'),
  ]);
  const store = await defaultStore();
  const wrong: Record<string, Replacement> = {};
  for (const type of eachOf(types)) {
    const subject = { config, type, kvType, contextLength, batched: slots > 1 };
    const found = await measured(store, 'replacements', [device.adapter, subject, sources], false, async () => {
      const own = await again();
      try {
        return await wrongVariants(own, subject, signal);
      } finally {
        own.dispose();
      }
    });
    for (const [kernel, replacement] of Object.entries(found))
      if (wrong[kernel] !== 'plain') wrong[kernel] = replacement;
  }
  return wrong;
}
