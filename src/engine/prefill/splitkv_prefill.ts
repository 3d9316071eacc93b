import type { ModelRanks } from '../ranks/rank_group.js';
import type { HandedKv } from './handed_kv.js';
import type { PrefillWorker } from './prefill_worker.js';

/** A prefill worker of our own kernels: what it hands over is bit for bit what the ranks would have computed. */
export class SplitkvPrefill implements PrefillWorker {
  readonly kind = 'splitkv';
  #last: Promise<unknown> = Promise.resolve();

  /** @param ranks one rank with whole weights and one slot */
  constructor(readonly ranks: ModelRanks) {}

  get adapter(): string {
    return this.ranks.adapter.name;
  }

  get weightBytes(): number {
    return this.ranks.runner.ranks[0]!.facts.weightBytes;
  }

  prefill(prompt: readonly number[], signal?: AbortSignal): Promise<HandedKv> {
    const result = this.#last.then(() => this.ranks.runner.computeKv(prompt, signal));
    this.#last = result.catch(() => {});
    return result;
  }

  assertUsable(): void {
    this.ranks.assertUsable();
  }

  recover(signal?: AbortSignal): Promise<void> {
    return this.ranks.recover(signal);
  }

  async dispose(): Promise<void> {
    await this.#last;
    await this.ranks.dispose();
  }
}
