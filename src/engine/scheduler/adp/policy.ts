/**
 * Room: which rank takes a request, and when prompts run, where each request lives on one rank: TensorRT-LLM's rules
 * (here) or fitted times (cost_policy.ts). docs/adp.md explains.
 */

import { nth } from '../../../base/lists.js';
import type { SchedulerConfig } from '../config.js';
import { KvPolicy } from '../kv/kv_policy.js';
import type { RankState } from '../rank_state.js';
import { type ContextPolicy, OnePool, type Situation } from '../routing.js';
import type { WaitingQueue } from '../waiting_queue.js';
import type { Sequence } from '../sequence.js';
import type { AttentionDpConfig } from './config.js';
import { CostPolicy } from './cost_policy.js';

export function contextPolicy(config: SchedulerConfig): ContextPolicy {
  if (config.ranks.length === 1) return new OnePool();
  if (config.sharedRows) return KvPolicy.of(config);
  return config.attentionDp.mode === 'trtllm' ? new TrtllmPolicy(config) : new CostPolicy(config);
}

/** TensorRT-LLM's attention data parallelism: its router, and its balancer where that is enabled. */
class TrtllmPolicy implements ContextPolicy {
  readonly #gate: WaitGate | undefined;

  constructor(config: SchedulerConfig) {
    this.#gate = config.attentionDp.enableBalance ? new WaitGate(config.attentionDp) : undefined;
  }

  readonly route = routeLeastLoaded;

  opens(_waiting: WaitingQueue, { ranks, work }: Situation): boolean {
    if (!this.#gate) return true;
    const offers = ranks.map((rank, index) => {
      const own = nth(work, index);
      const { slots } = rank.limits;
      return { generations: own.decodes.length, slots, hasContext: rank.hasRunnableContext(own) };
    });
    return this.#gate.opens(offers);
  }
}

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
  const slots = Math.max(...ranks.map((rank) => rank.limits.slots));
  const active = ranks.reduce((sum, rank) => sum + rank.numActive, 0);
  const room = ranks.reduce((sum, rank) => sum + rank.limits.slots, 0) - active;
  if (room <= 0 || waiting.length === 0) return;
  const requests = waiting.inTurn(room);
  for (const request of requests) waiting.remove(request);
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
    if (rank.numActive >= Math.min(expected, rank.limits.slots) || !rank.canEverHold(request)) continue;
    if (!best || rank.promptTokens < best.promptTokens) best = rank;
    else if (rank.promptTokens === best.promptTokens && rank.numActive < best.numActive) best = rank;
  }
  return best;
}

export interface RankOffer {
  readonly hasContext: boolean;
  readonly generations: number;
  readonly slots: number;
}

/**
 * TensorRT-LLM's ADP balancer: whether contexts run in this iteration, the same on every rank. Two counters, kept as they are
 * there, with what is odd about them: `wait` advances though nobody may have a context; one rank without a free slot holds all
 * up until the timeout; the batching wait compares nothing; `batch` outlives a lost synchronisation.
 */
export class WaitGate {
  wait = 0;
  batch = 0;

  constructor(private readonly config: Pick<AttentionDpConfig, 'timeoutIters' | 'batchingWaitIters'>) {}

  opens(ranks: readonly RankOffer[]): boolean {
    const free = ranks.every(({ generations, slots }) => generations < slots);
    const contexts = ranks.every(({ hasContext }) => hasContext);
    const generating = ranks.every(({ generations }) => generations > 0);
    if (free && contexts) {
      this.wait = 0;
      if (!generating) return true;
      if (this.batch < this.config.batchingWaitIters) {
        this.batch++;
        return false;
      }
      this.batch = 0;
      return true;
    }
    this.wait++;
    if (this.wait < this.config.timeoutIters && generating) return false;
    this.wait = 0;
    return true;
  }
}
