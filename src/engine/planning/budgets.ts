import { usageError } from '../../base/errors.js';
import { ceilDiv } from '../../base/math.js';
import { modelSizes } from '../../model/model_sizes.js';
import { rankSlice } from '../../model/shape.js';
import { weightBytes } from '../../model/weights/model_map.js';
import { checkMemory, type MemoryOptions, type Plan, type RankMemory } from '../../placement/index.js';
import type { RunnerOptions } from '../contracts/rank.js';
import type { MemorySubject } from '../ranks/rank_memory.js';
import { KV_BLOCK } from '../../base/kv_units.js';

/**
 * Bytes that each of `ranks` ranks may take; undefined where the options say nothing.
 * @throws SplitkvError `usage` for budgets that are none, or one each of another number of ranks.
 */
export function memoryBudgets(memory: number | readonly number[] | undefined, ranks: number): (number | undefined)[] {
  if (memory === undefined) return Array.from({ length: ranks }, () => undefined);
  const list = typeof memory === 'number' ? Array.from({ length: ranks }, () => memory) : [...memory];
  const bad = list.find((bytes) => !(typeof bytes === 'number' && bytes > 0));
  if (bad !== undefined) throw usageError(`memory ${String(bad)}: expected a number of bytes above 0`);
  if (list.length !== ranks) {
    throw usageError(
      `memory: ${list.length} budgets for ${ranks} rank${ranks === 1 ? '' : 's'}; give one number for all ranks, or one each`,
    );
  }
  return list;
}

/** Bytes of each rank's weights, exactly as loading allocates them. */
export const exactWeights =
  ({ config, type }: MemorySubject) =>
  (plan: Plan): number[] =>
    Array.from({ length: plan.worldSize }, (_, rank) => weightBytes(config, type, rankSlice(plan, rank, config)).bytes);

/**
 * Refuses a plan that some rank has no room for, before any device is opened.
 * @throws SplitkvError `limit`, with what would fit.
 */
export async function checkBudgets(
  plan: Plan,
  subject: MemorySubject & { readonly draftBytes?: number | undefined },
  runner: RunnerOptions,
  budgets: readonly (number | undefined)[],
): Promise<void> {
  if (budgets.every((budget) => budget === undefined)) return;
  // Few loads have a budget.
  const { memoryOnPaper } = await import('../ranks/rank_memory.js');
  const { config, type } = subject;
  const { contextLength, kvType, prefillChunk } = runner;
  const compressed = runner.compression !== undefined;
  const options = { contextLength, block: KV_BLOCK, ...roomOf(runner), prefillChunk, compressed };
  checkMemory(
    plan,
    {
      ...modelSizes(config, type, kvType),
      keptStates: runner.keptStates ?? 0,
      keptBlocks: runner.keptBlocks ?? 0,
      draftBytes: subject.draftBytes ?? 0,
    },
    { ...options, ...bytesOf(await memoryOnPaper(plan, subject, runner)) },
    budgets,
  );
}

/** Whole contexts, and windows, that there is room for; in which pools. */
export function roomOf({
  slots,
  batches = 1,
  kvBlocks,
  windows,
  contextLength,
}: RunnerOptions): Pick<MemoryOptions, 'slots' | 'windows' | 'seats'> {
  const total = slots * batches;
  return {
    slots: Math.min(total, (kvBlocks ?? Infinity) / ceilDiv(contextLength, KV_BLOCK)),
    windows: windows ?? total,
    seats: { slots, batches, kvBlocks, windows },
  };
}

/** What of ranks' memory placement can't tell exactly. */
export const bytesOf = (
  memory: readonly RankMemory[],
): { readonly weightBytes: readonly number[]; readonly activationBytes: readonly number[] } => ({
  weightBytes: memory.map(({ weightBytes: bytes }) => bytes),
  activationBytes: memory.map(({ activationBytes: bytes }) => bytes),
});
