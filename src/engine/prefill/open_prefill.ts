/**
 * Room: prompts on a device of their own: a worker computes keys and values, the ranks that decode take them over as
 * cache blocks. PrefillPool shares prompts between several workers. Read contracts/prefill_worker.ts next.
 */

import { isLoss, messageOf } from '../../base/errors.js';
import { KV_BLOCK } from '../../base/kv_units.js';
import { nth, range, sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import { openDevice } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import { modelShape } from '../../model/shape.js';
import { makePlan } from '../../placement/index.js';
import type { PrefillOptions } from '../contracts/api.js';
import type { ModelPlace } from '../workers/model_place.js';
import type { CacheUse, RunnerOptions } from '../contracts/rank.js';
import { keptBlocksOf } from '../planning/plan_subject.js';
import { type AdapterRequest, namedAdapter } from '../planning/rank_adapters.js';
import { type ModelRanks, RankGroup } from '../ranks/rank_group.js';
import { Engine } from '../serving/engine.js';
import { WorkerGroup, type WorkerGroupOptions } from '../workers/worker_group.js';
import type { RankPlaces } from '../workers/worker_protocol.js';
import type { HandedKv, PrefillWorker } from '../contracts/prefill_worker.js';

export interface PrefillRequest extends Pick<
  WorkerGroupOptions,
  'config' | 'type' | 'cache' | 'integrity' | 'digest' | 'signal' | 'onProgress' | 'onWarning'
> {
  /** Of one worker each. */
  readonly options: readonly PrefillOptions[];
  readonly reader: TensorReader;
  /** As of the ranks that generate. */
  readonly runner: Pick<RunnerOptions, 'contextLength' | 'prefillChunk' | 'kvType' | 'tune' | 'compression'>;
  /** Where nothing is asked for: the first rank's. */
  readonly adapter: AdapterRequest;
  /** Ranks that generate: the workers' devices come after theirs. */
  readonly ranks: number;
  /** Prompts that are compressed are kept whole, too, for others that begin alike. */
  readonly prefixCaching?: boolean | undefined;
  /** Where the model is, for a worker thread of its own. */
  readonly place: ModelPlace | undefined;
  /** A worker's place on another machine, by its number. */
  readonly placesOf?: ((worker: number) => RankPlaces) | undefined;
}

/** Opens prefill workers, each on a device of its own with whole weights. @throws as `load` */
export async function openPrefill(request: PrefillRequest): Promise<PrefillWorker> {
  const opened: PrefillWorker[] = [];
  try {
    for (const [index, options] of request.options.entries()) opened.push(await openOne(request, options, index));
  } catch (error) {
    await Promise.all(opened.map((worker) => worker.dispose()));
    throw error;
  }
  return opened.length === 1 ? nth(opened, 0) : new PrefillPool(opened, request.onWarning);
}

async function openOne(request: PrefillRequest, options: PrefillOptions, index: number): Promise<PrefillWorker> {
  const { config, type, ranks, place, placesOf, signal, onProgress, onWarning } = request;
  const { contextLength, prefillChunk, kvType, tune = true, compression } = request.runner;
  const runner = { contextLength, prefillChunk, kvType };
  const { variants, fast } = request.adapter;
  const adapter =
    options.adapter === undefined || placesOf
      ? request.adapter
      : { ...namedAdapter(options.adapter), ...(variants && { variants }), ...(fast && { fast }) };
  const shared = {
    config,
    type,
    plan: makePlan('single', 1, modelShape(config)),
    adapters: [adapter],
    // What it hands over is whole, or compressed as the ranks would.
    runner: {
      ...runner,
      slots: 1,
      tune,
      keepsAll: true,
      ...(compression && {
        compression,
        keptBlocks: keptBlocksOf({ ...request.runner, prefixCaching: request.prefixCaching }),
      }),
    },
    signal,
    onProgress,
    onWarning,
  };
  const { reader, cache, integrity, digest } = request;
  const open: typeof openDevice = (asked) => openDevice({ ...asked, instance: ranks + index });
  const group = place
    ? await WorkerGroup.open({
        ...shared,
        place,
        cache,
        integrity,
        digest,
        oneByOne: false,
        places: placesOf?.(index),
      })
    : await RankGroup.open({ ...shared, reader, virtual: false, open });
  return new SplitkvPrefill(group);
}

/** A prefill worker of our own kernels: what it hands over is bit for bit what the ranks would have computed. */
export class SplitkvPrefill implements PrefillWorker {
  readonly kind = 'splitkv';
  readonly atOnce = 1;
  #engine: Engine;

  /** @param ranks one rank with whole weights and one slot */
  constructor(readonly ranks: ModelRanks) {
    this.#engine = this.#open();
  }

  #open(): Engine {
    const { promptRows, options } = this.ranks.runner;
    const prefixCaching = (options.keptBlocks ?? 0) > 0;
    return new Engine(this.ranks, { slots: 1, tokensPerIteration: promptRows + 1, prefixCaching, recover: false });
  }

  get adapter(): string {
    return this.ranks.adapter.name;
  }

  get weightBytes(): number {
    return nth(this.ranks.runner.ranks, 0).facts.weightBytes;
  }

  async prefill(prompt: readonly number[], signal?: AbortSignal): Promise<HandedKv> {
    let handed: HandedKv | undefined;
    const onPrompt = async (slot: number): Promise<void> => {
      handed = await this.#read(slot, prompt.length);
    };
    await this.#engine.compute('prefill', { prompt, onPrompt }, signal);
    return handed!;
  }

  async #read(slot: number, tokens: number): Promise<HandedKv> {
    const { runner } = this.ranks;
    const rank = nth(runner.ranks, 0);
    const { caches } = rank.facts;
    const [bytes, lastRow, use] = await Promise.all([rank.readKv(slot), rank.readLastRow(slot), rank.cacheUse(slot)]);
    const entries = runner.options.compression && this.#entries(use, tokens);
    const numBlocks = ceilDiv(tokens, KV_BLOCK);
    const { kvHeads, numLayers } = modelShape(runner.config);
    const perLayer = caches.length / numLayers;
    const blocksIn = (buffer: number): number =>
      entries
        ? sum(nth(entries, Math.floor(buffer / perLayer)).map((own) => ceilDiv(own, KV_BLOCK))) / kvHeads
        : numBlocks;
    let at = 0;
    const buffers = caches.map(({ blockBytes: size }, buffer) => bytes.subarray(at, (at += size * blocksIn(buffer))));
    return { tokens, blocks: numBlocks, buffers, lastRow, entries };
  }

  /** [layer][kv head]: what compression kept; all of a prompt that it left as it is. */
  #entries({ kept }: CacheUse, tokens: number): number[][] {
    const { numLayers, kvHeads } = modelShape(this.ranks.runner.config);
    const entries = range(0, numLayers).map(() => range(0, kvHeads).map(() => tokens));
    for (const { layer, head, entries: own } of kept) nth(entries, layer)[head] = own;
    return entries;
  }

  assertUsable(): void {
    this.ranks.assertUsable();
  }

  async recover(signal?: AbortSignal): Promise<void> {
    await this.#engine.close();
    await this.ranks.recover(signal);
    this.#engine = this.#open();
  }

  async dispose(): Promise<void> {
    await this.#engine.dispose();
  }
}

interface Member {
  readonly worker: PrefillWorker;
  /** Tokens of the prompts that it was given and hasn't computed. */
  waiting: number;
  /** Why it gets none: what it failed with. */
  failure: { readonly reason: unknown } | undefined;
}

/**
 * Several prefill workers as one. A prompt goes to the worker with the fewest tokens to compute. A worker that fails is left out, and its
 * prompt computed again by another; one that lost its device, or its thread, is made anew meanwhile and comes back.
 */
export class PrefillPool implements PrefillWorker {
  readonly kind = 'splitkv';
  readonly #members: readonly Member[];
  readonly #repairs = new Set<Promise<void>>();

  /** @param workers one or more */
  constructor(
    workers: readonly PrefillWorker[],
    readonly onWarning: (message: string) => void = () => {},
  ) {
    this.#members = workers.map((worker) => ({ worker, waiting: 0, failure: undefined }));
  }

  get #usable(): Member[] {
    return this.#members.filter(({ failure }) => !failure);
  }

  /** One where none is usable: what it is given says why. */
  get atOnce(): number {
    return Math.max(1, sum(this.#usable.map(({ worker }) => worker.atOnce)));
  }

  get adapter(): string {
    return this.#members.map(({ worker }) => worker.adapter).join(', ');
  }

  /** Of all workers together. */
  get weightBytes(): number {
    return sum(this.#members.map(({ worker }) => worker.weightBytes));
  }

  async prefill(prompt: readonly number[], signal?: AbortSignal): Promise<HandedKv> {
    for (;;) {
      const [first, ...rest] = this.#usable;
      // As one worker fails; `recover` makes all of them anew.
      if (!first) throw this.#members.findLast(({ failure }) => failure)?.failure?.reason;
      const member = rest.reduce((least, other) => (other.waiting < least.waiting ? other : least), first);
      member.waiting += prompt.length;
      try {
        return await member.worker.prefill(prompt, signal);
      } catch (error) {
        if (signal?.aborted) throw error;
        this.#leaveOut(member, error);
      } finally {
        member.waiting -= prompt.length;
      }
    }
  }

  #leaveOut(member: Member, reason: unknown): void {
    if (member.failure) return;
    member.failure = { reason };
    const others = this.#usable.length;
    if (others === 0) return;
    this.onWarning(
      `a prefill worker (${member.worker.adapter}) failed: ${messageOf(reason)}; its prompts are computed by the other${others === 1 ? '' : 's'}`,
    );
    if (!isLoss(reason)) return;
    const repair = this.#repair(member)
      .catch(() => {})
      .finally(() => this.#repairs.delete(repair));
    this.#repairs.add(repair);
  }

  async #repair(member: Member, signal?: AbortSignal): Promise<void> {
    await member.worker.recover(signal);
    member.failure = undefined;
  }

  assertUsable(): void {
    if (this.#usable.length === 0) nth(this.#members, 0).worker.assertUsable();
  }

  async recover(signal?: AbortSignal): Promise<void> {
    await Promise.all(this.#repairs);
    const left = this.#members.filter(({ failure }) => failure);
    const made = await Promise.allSettled(left.map((member) => this.#repair(member, signal)));
    if (this.#usable.length > 0) return;
    for (const one of made) if (one.status === 'rejected') throw one.reason;
  }

  async dispose(): Promise<void> {
    await Promise.all(this.#repairs);
    await Promise.all(this.#members.map(({ worker }) => worker.dispose()));
  }
}
