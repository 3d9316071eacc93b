import type { WeightType } from '../../../shaders/linear/pack.js';
import type { Device } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { loadWeights } from '../../model/device_model.js';
import type { World } from '../../model/layers/world.js';
import type { WeightProgress } from '../../model/weights/weight_loader.js';
import type { RunnerOptions } from './rank.js';
import { RankRunner } from './rank_runner.js';

/** Of a rank that is being opened. */
export interface RankProgress extends WeightProgress {
  /** Kernels that are compiled of those that the rank's programs need, as far as that is known. */
  readonly kernelsCompiled?: number;
  readonly kernelsTotal?: number;
}

export interface RankRequest {
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly type: WeightType;
  readonly runner: RunnerOptions;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Loads a rank's slice on its device and records its programs; their kernels are compiled while the weights arrive.
 * @throws as `loadWeights` and `RankRunner.create`
 */
export async function openRank(
  device: Device,
  world: World,
  { config, reader, type, runner, signal }: RankRequest,
  onProgress?: (progress: RankProgress) => void,
): Promise<{ readonly runner: RankRunner; readonly parameters: number }> {
  const failed = new AbortController();
  let weights: WeightProgress | undefined;
  let kernels: Pick<RankProgress, 'kernelsCompiled' | 'kernelsTotal'> = {};
  const tell = (): void => weights && onProgress?.({ ...weights, ...kernels });
  const compiling = compileAhead(device, world, { config, type, runner, signal: failed.signal }, (compiled, total) => {
    kernels = { kernelsCompiled: compiled, kernelsTotal: total };
    tell();
  });
  try {
    const model = await loadWeights(device, config, reader, type, world, {
      signal,
      onProgress: (progress) => {
        weights = progress;
        tell();
      },
    });
    await compiling;
    return { runner: await RankRunner.create(device, world, config, model, runner), parameters: model.parameters };
  } catch (error) {
    // Nothing may be under way on a device that is given up.
    failed.abort();
    await compiling;
    throw error;
  }
}

/** Compiles what the rank's programs will need; what fails is compiled again, and told, when they are recorded. */
async function compileAhead(
  device: Device,
  { plan, rank }: World,
  { config, type, runner, signal }: Omit<RankRequest, 'reader'>,
  onProgress: (compiled: number, total: number) => void,
): Promise<void> {
  try {
    const { recordOnPaper } = await import('../planning/rank_memory.js');
    const paper = await recordOnPaper(plan, rank, { config, type }, runner, device);
    await device.compile(paper.device.pipelineSources, signal, onProgress);
  } catch {
    // Recording says why.
  }
}
