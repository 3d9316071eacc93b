import { nth, sum } from '../../base/lists.js';
import type { AttentionStats, KvCompressionStats } from '../contracts/api.js';
import { pipelineDepth } from '../../placement/index.js';
import type { RankCounts } from '../contracts/rank.js';
import type { ModelRanks } from './rank_group.js';
import type { Runner } from './runner.js';

/** Decode steps of a generation whose attention is timed, its first ones: of about as many KV tokens as `attentionStats` counts. */
const TIMED_STEPS = 16;

/** Begins to time attention on every rank. Ranks that share a device are left out: what one takes would tell of the others. */
export async function timeAttention({ runner, options }: ModelRanks): Promise<void> {
  if (runner.ranks.length > 1 && !options.virtual) await runner.timeAttention(TIMED_STEPS);
}

/**
 * Milliseconds of a step by rank, of those timed since `before`; undefined where a rank timed none, or where clocks stand still, as
 * some drivers' do.
 */
export function attentionMs(now: readonly RankCounts[], before?: readonly RankCounts[]): number[] | undefined {
  const ms = now.map(({ timedSteps, attentionMs: all }, rank) => {
    const then = before?.[rank];
    return (all - (then?.attentionMs ?? 0)) / (timedSteps - (then?.timedSteps ?? 0));
  });
  return ms.every(Number.isFinite) && ms.some((each) => each > 0) ? ms : undefined;
}

/** What the ranks read of the cache in a decode step (`Runner.kvTokens`); undefined on one rank, which nobody waits for. */
export async function attentionStats(runner: Runner, lengths: readonly number[]): Promise<AttentionStats | undefined> {
  if (runner.ranks.length === 1) return undefined;
  const byRank = await runner.kvTokens(lengths);
  const { utilisation: predicted } = runner.plan;
  return {
    kv_tokens_per_step: byRank.map(sum),
    ...busiest(byRank, pipelineDepth(runner.plan)),
    ...(predicted !== undefined && { predicted_utilisation: predicted }),
  };
}

/**
 * Ranks meet in every layer, so in each the one that reads most counts.
 * @param byRank [rank][layer]
 * @param stages of a pipeline, whose ranks meet in their own layers only
 */
export function busiest(
  byRank: readonly (readonly number[])[],
  stages = 1,
): Pick<AttentionStats, 'busiest_kv_tokens_per_step' | 'utilisation'> {
  const longest = sum(nth(byRank, 0).map((_, layer) => Math.max(...byRank.map((layers) => nth(layers, layer)))));
  const all = sum(byRank.flat());
  return {
    busiest_kv_tokens_per_step: longest,
    utilisation: longest > 0 ? (all * stages) / (byRank.length * longest) : 1,
  };
}

/** What compression left of the prompt in a slot; undefined where it wasn't compressed. */
export async function kvCompressionStats(
  runner: Runner,
  slot: number,
  promptTokens: number,
): Promise<KvCompressionStats | undefined> {
  const { compression } = runner.options;
  if (!compression) return undefined;
  const uses = await runner.cacheUse(slot);
  const kept = uses.flatMap((use) => use.kept.map(({ entries }) => entries));
  if (kept.length === 0) return undefined;
  const ranks = uses.map(({ promptBytes, keptBytes }) => ({ bytes_before: promptBytes, bytes_after: keptBytes }));
  return {
    policy: compression.policy,
    budget: compression.budget,
    prompt_tokens: promptTokens,
    kept_tokens: {
      mean: sum(kept) / kept.length,
      least: kept.reduce((a, b) => Math.min(a, b)),
      most: kept.reduce((a, b) => Math.max(a, b)),
    },
    bytes_before: sum(ranks.map((rank) => rank.bytes_before)),
    bytes_after: sum(ranks.map((rank) => rank.bytes_after)),
    ranks,
  };
}
