import type { RankState } from '../rank_state.js';
import type { Sequence } from '../sequence.js';
import type { WaitingQueue } from '../waiting_queue.js';

/**
 * TensorRT-LLM's router. New requests, longest prompt first, each to the rank with the least (prompt tokens, active requests,
 * rank) that has fewer than `expected` active ones, where
 *
 *     expected = min(max(ceil((active + new) / ranks), most active), slots)
 *
 * Prompt tokens are those of the rank's active requests as they came: what is generated never counts. Where ranks differ in
 * size, one whose pool could never hold the request is passed over.
 */
export function routeLeastLoaded(waiting: WaitingQueue, ranks: readonly RankState[]): void {
  const slots = Math.max(...ranks.map((rank) => rank.slots));
  const active = ranks.reduce((sum, rank) => sum + rank.numActive, 0);
  const room = ranks.reduce((sum, rank) => sum + rank.slots, 0) - active;
  if (room <= 0 || waiting.length === 0) return;
  const requests = waiting.take(room);
  const mostActive = Math.max(...ranks.map((rank) => rank.numActive));
  const expected = Math.min(Math.max(Math.ceil((active + requests.length) / ranks.length), mostActive), slots);
  for (const request of requests.toSorted((a, b) => b.promptLength - a.promptLength)) {
    const rank = leastLoaded(ranks, request, expected) ?? leastLoaded(ranks, request, slots);
    if (rank) rank.bind(request);
    else waiting.insert(request); // only ranks that are full could hold it
  }
}

function leastLoaded(ranks: readonly RankState[], request: Sequence, expected: number): RankState | undefined {
  let best: RankState | undefined;
  for (const rank of ranks) {
    if (rank.numActive >= Math.min(expected, rank.slots) || !rank.canEverHold(request)) continue;
    if (!best || rank.promptTokens < best.promptTokens) best = rank;
    else if (rank.promptTokens === best.promptTokens && rank.numActive < best.numActive) best = rank;
  }
  return best;
}
