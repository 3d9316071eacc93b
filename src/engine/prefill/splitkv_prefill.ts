import { KV_BLOCK } from '../../base/kv_units.js';
import { range, sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import { modelShape } from '../../model/shape.js';
import type { CacheUse } from '../contracts/rank.js';
import type { ModelRanks } from '../ranks/rank_group.js';
import { Engine } from '../serving/engine.js';
import type { HandedKv } from '../contracts/handed_kv.js';
import type { PrefillWorker } from '../contracts/prefill_worker.js';

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
    return this.ranks.runner.ranks[0]!.facts.weightBytes;
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
    const rank = runner.ranks[0]!;
    const { cacheBlockBytes } = rank.facts;
    const [bytes, lastRow, use] = await Promise.all([rank.readKv(slot), rank.readLastRow(slot), rank.cacheUse(slot)]);
    const entries = runner.options.compression && this.#entries(use, tokens);
    const numBlocks = ceilDiv(tokens, KV_BLOCK);
    const { kvHeads, numLayers } = modelShape(runner.config);
    const perLayer = cacheBlockBytes.length / numLayers;
    const blocksIn = (buffer: number): number =>
      entries ? sum(entries[Math.floor(buffer / perLayer)]!.map((own) => ceilDiv(own, KV_BLOCK))) / kvHeads : numBlocks;
    let at = 0;
    const buffers = cacheBlockBytes.map((size, buffer) => bytes.subarray(at, (at += size * blocksIn(buffer))));
    return { tokens, blocks: numBlocks, buffers, lastRow, entries };
  }

  /** [layer][kv head]: what compression kept; all of a prompt that it left as it is. */
  #entries({ kept }: CacheUse, tokens: number): number[][] {
    const { numLayers, kvHeads } = modelShape(this.ranks.runner.config);
    const entries = range(0, numLayers).map(() => range(0, kvHeads).map(() => tokens));
    for (const { layer, head, entries: own } of kept) entries[layer]![head] = own;
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
