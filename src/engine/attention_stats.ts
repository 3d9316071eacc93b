import type { AttentionStats } from './api.js';
import type { Runner } from './ranks/runner.js';

/** What the ranks read of the cache in a decode step (`Runner.kvTokens`); undefined on one rank, which nobody waits for. */
export async function attentionStats(runner: Runner, lengths: readonly number[]): Promise<AttentionStats | undefined> {
  if (runner.ranks.length === 1) return undefined;
  const byRank = await runner.kvTokens(lengths);
  const { utilisation: predicted } = runner.plan;
  return {
    kv_tokens_per_step: byRank.map((layers) => layers.reduce((sum, tokens) => sum + tokens, 0)),
    ...busiest(byRank),
    ...(predicted !== undefined && { predicted_utilisation: predicted }),
  };
}

/** Ranks meet in every layer, so in each the one that reads most counts. @param byRank [rank][layer] */
export function busiest(
  byRank: readonly (readonly number[])[],
): Pick<AttentionStats, 'busiest_kv_tokens_per_step' | 'utilisation'> {
  const longest = byRank[0]!.reduce(
    (sum, _, layer) => sum + byRank.reduce((most, layers) => Math.max(most, layers[layer]!), 0),
    0,
  );
  const all = byRank.flat().reduce((sum, tokens) => sum + tokens, 0);
  return { busiest_kv_tokens_per_step: longest, utilisation: longest > 0 ? all / (byRank.length * longest) : 1 };
}
