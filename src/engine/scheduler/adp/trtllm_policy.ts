import type { SchedulerConfig } from '../config.js';
import type { RankState } from '../rank_state.js';
import type { ContextPolicy, Situation } from '../routing.js';
import type { WaitingQueue } from '../waiting_queue.js';
import { routeLeastLoaded } from './least_loaded.js';
import { WaitGate } from './wait_gate.js';

/** TensorRT-LLM's attention data parallelism: its router, and its balancer where that is enabled. */
export class TrtllmPolicy implements ContextPolicy {
  readonly #gate: WaitGate | undefined;

  constructor(config: SchedulerConfig) {
    this.#gate = config.attentionDp.enableBalance ? new WaitGate(config.attentionDp) : undefined;
  }

  route(waiting: WaitingQueue, ranks: readonly RankState[]): void {
    routeLeastLoaded(waiting, ranks);
  }

  opens(_waiting: WaitingQueue, { ranks, work }: Situation): boolean {
    if (!this.#gate) return true;
    const offers = ranks.map((rank, index) => {
      const generations = work[index]!.decodes.length;
      return {
        generations,
        slots: rank.slots,
        hasContext: rank.hasRunnableContext(work[index]!),
      };
    });
    return this.#gate.opens(offers);
  }

  observe(): void {}
}
