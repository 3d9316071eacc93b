import { didYouMean, throwIfAborted, usageError } from '../../base/errors.js';
import { range, sum } from '../../base/lists.js';
import type { LowRankPair } from '../../model/adapters/targets.js';
import type { AdapterGiven, AdapterInfo, ModelAdapters } from '../contracts/api.js';
import type { AdapterOpening } from '../files/adapter_files.js';
import type { ModelRanks } from '../ranks/rank_group.js';

export interface HeldAdapter {
  /** On the ranks. */
  readonly place: number;
  /** No other has had it, nor will: what the prefix cache knows it by. */
  readonly key: number;
  release(): void;
}

interface Entry {
  readonly info: AdapterInfo;
  readonly place: number;
  readonly key: number;
  readonly pairs: readonly LowRankPair[];
  /** Requests that have it. */
  uses: number;
  /** Once it is removed: called when none has it. */
  free: (() => void) | undefined;
}

const MOST = 64;
const NAME = /^[\w.-]{1,128}$/;

/** A model's adapters by name, and on its ranks. What reads their files comes with the first. */
export class Adapters implements ModelAdapters {
  readonly #present = new Map<string, Entry>();
  /** Places that are taken, also by those that are being added or removed. */
  readonly #places = new Set<number>();
  #keys = 0;
  /** Changes come one after another. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    readonly ranks: ModelRanks,
    readonly opening: AdapterOpening = {},
  ) {}

  get list(): readonly AdapterInfo[] {
    return [...this.#present.values()].map(({ info }) => info);
  }

  add(
    name: string,
    given: AdapterGiven,
    { signal }: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<AdapterInfo> {
    return this.#inTurn(async () => {
      if (!NAME.test(name)) throw usageError(`adapter '${name}': expected letters, digits, '_', '.' and '-'`);
      if (this.#present.has(name)) throw usageError(`adapter '${name}': there is one of that name; remove it first`);
      const place = range(0, MOST).find((each) => !this.#places.has(each));
      if (place === undefined) throw usageError(`adapters: there are ${MOST} already; remove one first`);
      const { partsOf, readAdapter } = await import('../files/adapter_files.js');
      const pairs = await readAdapter(partsOf(name, given), this.ranks.runner.config, this.opening, signal);
      throwIfAborted(signal, 'adding an adapter');
      const before = sum([...this.#present.values()].map(({ info }) => info.bytes));
      const bytes = (await this.#set(place, pairs)) - before;
      this.#places.add(place);
      const info = { name, rank: Math.max(...pairs.map(({ rank }) => rank)), bytes };
      this.#present.set(name, { info, place, key: ++this.#keys, pairs, uses: 0, free: undefined });
      return info;
    });
  }

  /** On all ranks, or on none. Resolves with the bytes that all adapters take. */
  async #set(place: number, pairs: readonly LowRankPair[] | undefined): Promise<number> {
    const { runner } = this.ranks;
    try {
      return sum(await runner.each((rank) => rank.setAdapter(place, pairs)));
    } catch (error) {
      if (pairs) await runner.each((rank) => rank.setAdapter(place)).catch(() => {}); // the first error says why
      throw error;
    }
  }

  remove(name: string): Promise<void> {
    const entry = this.#entry(name);
    this.#present.delete(name);
    const unused = new Promise<void>((resolve) => {
      if (entry.uses === 0) resolve();
      else entry.free = resolve;
    });
    return unused.then(() =>
      this.#inTurn(async () => {
        await this.#set(entry.place, undefined);
        this.#places.delete(entry.place);
      }),
    );
  }

  /** For a request. @throws SplitkvError `usage` for a name that there is none of */
  hold(name: string): HeldAdapter {
    const entry = this.#entry(name);
    entry.uses++;
    return {
      place: entry.place,
      key: entry.key,
      release: () => {
        if (--entry.uses === 0) entry.free?.();
      },
    };
  }

  #entry(name: string): Entry {
    const entry = this.#present.get(name);
    if (entry) return entry;
    const names = [...this.#present.keys()];
    const there = names.length > 0 ? `it has ${names.join(', ')}` : 'it has none: give some at load, or add them';
    throw usageError(`adapter '${name}': the model has no adapter of that name; ${there}.${didYouMean(name, names)}`);
  }

  /** After a recovery: on ranks that are new, too. */
  restore(): Promise<void> {
    return this.#inTurn(async () => {
      for (const { place, pairs } of this.#present.values()) await this.#set(place, pairs);
    });
  }

  #inTurn<T>(body: () => Promise<T>): Promise<T> {
    const next = this.#last.then(body);
    this.#last = next.catch(() => {});
    return next;
  }
}
