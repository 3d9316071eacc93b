import { usageError } from '../../base/errors.js';
import type { OpenOptions } from '../../loader/index.js';
import type { AdapterGiven, AdapterInfo, ModelAdapters } from '../contracts/api.js';
import type { ModelRanks } from '../ranks/rank_group.js';
import type { Adapters, HeldAdapter } from '../serving/adapters.js';
import type { EngineAdapters } from '../serving/engine.js';

/** A model's adapters, of which most models have none: their code comes with the first. */
export class LazyAdapters implements ModelAdapters, EngineAdapters {
  #all: Adapters | undefined;

  constructor(
    readonly ranks: ModelRanks,
    readonly network: OpenOptions,
  ) {}

  get list(): readonly AdapterInfo[] {
    return this.#all?.list ?? [];
  }

  async add(
    name: string,
    given: AdapterGiven,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<AdapterInfo> {
    const own = await import('../serving/adapters.js');
    this.#all ??= new own.Adapters(this.ranks, this.network);
    return this.#all.add(name, given, options);
  }

  async remove(name: string): Promise<void> {
    await this.#named(name).remove(name);
  }

  hold(name: string): HeldAdapter {
    return this.#named(name).hold(name);
  }

  #named(name: string): Adapters {
    if (this.#all) return this.#all;
    throw usageError(`adapter '${name}': the model has no adapters; give some at load, or add them`);
  }

  async restore(): Promise<void> {
    await this.#all?.restore();
  }
}
