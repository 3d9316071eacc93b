import type { KvCompressionStats } from '../contracts/api.js';
import type { Runner } from './runner.js';
import { sum } from '../../base/lists.js';

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
