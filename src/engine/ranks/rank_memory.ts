import { type Device, openPaperDevice } from '../../gpu/index.js';
import { hasState, type ModelConfig, takesRows } from '../../model/config/model_config.js';
import { loadWeights } from '../../model/device_model.js';
import { type LayerSlice, rankSlice, spanLength, totalLength } from '../../model/shape.js';
import { World } from '../../model/layers/world.js';
import { Owners, type Plan, type RankMemory, rankTopology } from '../../placement/index.js';
import type { WeightTypes } from '../../model/weights/weight_types.js';
import { blankWeights } from '../measure/synthetic_weights.js';
import type { RunnerOptions } from '../contracts/rank.js';
import { RankRunner } from './rank_runner.js';

export interface MemorySubject {
  readonly config: ModelConfig;
  readonly type: WeightTypes;
}

/**
 * What every rank of a plan takes, in order of ranks: all that loading allocates, counted on paper, whichever adapters they get:
 * where GPUs and adapters on the CPU differ, which is in a few buffers of activations, the larger number. Adapters with small
 * bindings take a little less for activations, as their steps are smaller.
 */
export async function memoryOnPaper(plan: Plan, subject: MemorySubject, runner: RunnerOptions): Promise<RankMemory[]> {
  const known = new Map<string, Omit<RankMemory, 'rank'>>();
  const memories: RankMemory[] = [];
  for (let rank = 0; rank < plan.worldSize; rank++) {
    const key = formOf(plan, rank, subject.config, runner);
    let memory = known.get(key);
    if (!memory) {
      const onGpu = await rankOnPaper(plan, rank, subject, runner);
      const onCpu = await rankOnPaper(plan, rank, subject, runner, await openPaperDevice(undefined, 'software'));
      memory = onGpu.totalBytes < onCpu.totalBytes ? onCpu : onGpu;
      known.set(key, memory);
    }
    memories.push({ rank, ...memory });
  }
  return memories;
}

/**
 * What one rank takes.
 * @param like a device with the adapter's limits; default: what current GPUs offer
 * @throws SplitkvError `limit` where a buffer exceeds them
 */
export async function rankOnPaper(
  plan: Plan,
  rank: number,
  subject: MemorySubject,
  runner: RunnerOptions,
  like?: Device,
): Promise<Omit<RankMemory, 'rank'>> {
  const { device, facts } = await recordOnPaper(plan, rank, subject, runner, like);
  const totalBytes = device.usage.bytes;
  const { weightBytes, kvBytes, stateBytes } = facts;
  return { weightBytes, kvBytes, stateBytes, activationBytes: totalBytes - weightBytes - kvBytes, totalBytes };
}

/** A rank whose device is paper: what it allocates and compiles is what loading would. `like` and throws: as `rankOnPaper`. */
export async function recordOnPaper(
  plan: Plan,
  rank: number,
  { config, type }: MemorySubject,
  runner: RunnerOptions,
  like?: Device,
): Promise<RankRunner> {
  const device = await openPaperDevice(like);
  const world = new World(plan, rank);
  const reader = blankWeights(config, rankSlice(plan, rank, config));
  const weights = await loadWeights(device, config, reader, type, world);
  return RankRunner.create(device, world, config, weights, { ...runner, memory: [] });
}

/** Ranks of one plan that hold as much of everything, and do as much, take the same memory. */
function formOf(plan: Plan, rank: number, config: ModelConfig, { slots, batches = 1 }: RunnerOptions): string {
  const slice = rankSlice(plan, rank, config);
  const uneven = hasState(config);
  const layer = ({ index, heads, queryHeads, kvHeads, mlp, experts }: LayerSlice): unknown[] => [
    index,
    // Segments of a recurrent mixer needn't be alike.
    uneven && heads,
    // Several runs of heads pad their columns by where they are cut.
    queryHeads.length > 1 ? queryHeads : totalLength(queryHeads),
    totalLength(kvHeads),
    spanLength(experts),
    mlp,
  ];
  const rows = [slice.embeddingRows, slice.headRows].map((span) => (span ? spanLength(span) : 0));
  const samples = rankTopology(plan, rank).root === rank;
  const owners = new Owners(plan, slots, batches);
  const kept = Array.from({ length: batches }, (_, batch) => {
    const [first, end] = owners.slotsOf(rank, batch);
    return end - first;
  });
  const caches = rankTopology(plan, rank).stages.map((stage) => {
    if (!stage) return undefined;
    const { kvHeads, lanes, sequences, copies } = stage.share;
    return [kvHeads.length, lanes, sequences, copies, stage.apart];
  });
  const encodes = takesRows(config) && rank === 0;
  return JSON.stringify([slice.layers.map(layer), rows, samples, caches, kept, encodes]);
}
