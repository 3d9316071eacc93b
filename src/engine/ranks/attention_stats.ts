import type { AttentionStats } from '../contracts/api.js';
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
    kv_tokens_per_step: byRank.map((layers) => layers.reduce((sum, tokens) => sum + tokens, 0)),
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
  const longest = byRank[0]!.reduce(
    (sum, _, layer) => sum + byRank.reduce((most, layers) => Math.max(most, layers[layer]!), 0),
    0,
  );
  const all = byRank.flat().reduce((sum, tokens) => sum + tokens, 0);
  return {
    busiest_kv_tokens_per_step: longest,
    utilisation: longest > 0 ? (all * stages) / (byRank.length * longest) : 1,
  };
}
