import { KV_BLOCK, NO_BLOCK } from '../../base/kv_units.js';
import { nth, sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import type { Buffer, Device } from '../../gpu/index.js';
import { cacheLayer, layerWindows, type ModelConfig, segmentKvHeads } from '../../model/config/model_config.js';
import type { Decoder } from '../../model/forward/decoder.js';
import type { World } from '../../model/layers/world.js';
import type { SharedSequence } from '../../placement/index.js';
import type { KvPiece } from '../contracts/prefill_worker.js';
import type { CacheUse, CopiedBlock, KeptPlaces, SlotBlocks } from '../contracts/rank.js';
import { type BufferBlocks, exchangeBlocks, headBlocks, readBlocks, writeBlocks } from './cache_blocks.js';
import type { SlotTables } from './slot_tables.js';

/** What a rank's slots have on its GPU, blocks of caches and recurrent states: copied, moved, read, written and counted. One call at a time. */
export class SlotCaches {
  #scratch: Buffer | undefined;

  constructor(
    readonly device: Device,
    readonly world: World,
    readonly tables: SlotTables,
    readonly forward: Decoder,
  ) {}

  copyBlocks(slot: number, copies: readonly CopiedBlock[]): void {
    const { device, tables } = this;
    const { cacheBuffers: buffers } = this.forward;
    if (!tables.keeps(slot) || buffers.length === 0) return;
    // A buffer can't be copied onto itself.
    this.#scratch ??= device.createBuffer('block copy', Math.max(...buffers.map(({ blockBytes }) => blockBytes)));
    const scratch = this.#scratch.gpu;
    const encoder = device.gpu.createCommandEncoder();
    for (const copy of copies) {
      for (const { buffer, blockBytes, isWindowed } of buffers) {
        const of = isWindowed ? copy.windows : copy;
        if (!of) continue;
        const from = tables.local(slot, of.from, isWindowed);
        const to = tables.local(slot, of.to, isWindowed);
        if (to === NO_BLOCK) continue; // of another rank's lane, as `from`
        encoder.copyBufferToBuffer(buffer.gpu, from * blockBytes, scratch, 0, blockBytes);
        encoder.copyBufferToBuffer(scratch, 0, buffer.gpu, to * blockBytes, blockBytes);
      }
    }
    device.gpu.queue.submit([encoder.finish()]);
  }

  /** The slot's recurrent states to a place that keeps them, or back. */
  copyState(slot: number, place: number, back: boolean): void {
    const states = this.#statesOf(slot);
    if (states.length === 0) return;
    const encoder = this.device.gpu.createCommandEncoder();
    const [own, other] = [this.tables.stateOf(slot), this.tables.keptState(slot, place)];
    for (const { buffer, bytes, kept } of states) {
      if (back) encoder.copyBufferToBuffer(kept!.gpu, other * bytes, buffer.gpu, own * bytes, bytes);
      else encoder.copyBufferToBuffer(buffer.gpu, own * bytes, kept!.gpu, other * bytes, bytes);
    }
    this.device.gpu.queue.submit([encoder.finish()]);
  }

  /** Only the rank that runs a slot has its states. */
  #statesOf(slot: number): Decoder['states'] {
    return this.tables.owners.runs(this.world.rank, slot) ? this.forward.states : [];
  }

  async moveBlocks(from: SlotBlocks, to: SlotBlocks): Promise<void> {
    const { device, world, tables } = this;
    const { places, group } = world.topology.stages.find((stage) => stage !== undefined)!;
    const keeperOf = ({ slot }: SlotBlocks): number =>
      nth(nth(nth(places, group), tables.owners.placeOf(slot)), 0).rank;
    const [source, target] = [keeperOf(from), keeperOf(to)];
    if (world.rank !== source && world.rank !== target) return;
    const own = world.rank === source ? from : to;
    const local = (blocks: readonly number[] = [], windowed = false): number[] =>
      blocks.map((block) => tables.local(own.slot, block, windowed));
    const [blocks, windows] = [local(own.blocks), local(own.windows?.blocks, true)];
    const all = this.#blocks((windowed) => (windowed ? windows : blocks));
    const moves =
      own === from ? { peer: target, sends: all, receives: [] } : { peer: source, sends: [], receives: all };
    await exchangeBlocks(world, device, [moves]);
  }

  /** Blocks in every cache buffer; `windowed`: of layers with windows. */
  #blocks(blocksOf: (windowed: boolean) => readonly number[]): BufferBlocks[] {
    return this.forward.cacheBuffers.map((of) => ({ ...of, blocks: blocksOf(of.isWindowed) }));
  }

  /** Resolves with how many blocks of copied heads moved. */
  async balanceCopies(sequences: readonly SharedSequence[]): Promise<number> {
    if (!this.tables.pages) return 0;
    const { moves, peers, finish } = this.tables.pages.balance(sequences);
    const all = peers.map(({ peer, sends, receives }) => ({
      peer,
      sends: headBlocks(this.forward, sends),
      receives: headBlocks(this.forward, receives),
    }));
    await exchangeBlocks(this.world, this.device, all);
    finish();
    return moves.length;
  }

  use(slot: number): CacheUse {
    if (!this.tables.pages) return { promptBytes: 0, keptBytes: 0, kept: [] };
    return this.tables.pages.use(slot, (layer) => this.forward.layerCache(layer).headBlockBytes!);
  }

  /** By layer of the model: tokens of all heads that a step reads here. @param lengths by slot */
  tokens(config: Pick<ModelConfig, 'layers'>, lengths: readonly number[]): number[] {
    const { plan, topology, rank } = this.world;
    const { pages, owners } = this.tables;
    const windows = layerWindows(config);
    const total = (of: (length: number, slot: number) => number): number =>
      sum(lengths.map((length, slot) => (length > 0 ? of(length, slot) : 0)));
    return plan.stages.flatMap(({ layers: [first, end] }, index) => {
      const stage = topology.stages[index];
      return Array.from({ length: end - first }, (_, at) => {
        if (!stage || cacheLayer(config, first + at) !== first + at) return 0;
        if (this.forward.layerCache(first + at).states) return 0;
        if (pages) return total((length, slot) => pages.entries(first + at, slot, length));
        const { kvHeads } = stage.share;
        const tokens = (kvHead: number, slot: number, length: number): number =>
          owners.tokens(rank, index, kvHead, slot, length);
        const window = windows[first + at] ?? Infinity;
        const seen = (kvHead: number, slot: number, length: number): number =>
          tokens(kvHead, slot, length) - tokens(kvHead, slot, Math.max(0, length - window));
        const heads = segmentKvHeads(nth(config.layers, first + at).attention);
        return heads * total((length, slot) => sum(kvHeads.map((kvHead) => seen(kvHead, slot, length))));
      });
    });
  }

  /** All blocks of a slot with so many tokens. */
  read(slot: number, length: number): Promise<Uint8Array> {
    const { pages } = this.tables;
    const blocks = pages
      ? headBlocks(this.forward, pages.blocksBelow(slot, length))
      : this.#blocks(() => [...this.tables.table(slot)]);
    return readBlocks(this.device, blocks);
  }

  readPlaces(slot: number, { blocks, windows, states }: KeptPlaces): Promise<Uint8Array> {
    const held = (list: readonly number[], windowed: boolean): number[] =>
      list.map((block) => this.tables.local(slot, block, windowed)).filter((block) => block !== NO_BLOCK);
    const own = this.#blocks((windowed) => held(windowed ? windows : blocks, windowed));
    const kept = this.#statesOf(slot).map(({ kept: buffer, bytes: blockBytes }) => ({
      buffer: buffer!,
      blockBytes,
      blocks: states.map((place) => this.tables.keptState(slot, place)),
    }));
    return readBlocks(this.device, [...own, ...kept]);
  }

  /** What another rank, or a file, had of a slot's prompt. */
  write(slot: number, { tokens, firstBlock, bytes, entries, states }: KvPiece): void {
    const { device, forward } = this;
    if (bytes && entries) {
      const pages = this.tables.pages!;
      const layers = pages.blocksBelow(slot, tokens).map(({ layer, heads }) => {
        const kvHeads = pages.kvHeads.get(layer)!;
        const countOf = (at: number): number => ceilDiv(nth(entries.get(layer)!, nth(kvHeads, at)), KV_BLOCK);
        return { layer, heads: heads.map((blocks, at) => blocks.slice(0, countOf(at))) };
      });
      writeBlocks(device, headBlocks(forward, layers), bytes);
    } else if (bytes) {
      const count = bytes.byteLength / sum(forward.cacheBuffers.map(({ blockBytes }) => blockBytes));
      const table = (windowed: boolean): number[] =>
        [...this.tables.table(slot, windowed)].slice(firstBlock, firstBlock + count);
      writeBlocks(device, this.#blocks(table), bytes);
    }
    let at = 0;
    for (const { buffer, bytes: size } of states ? forward.states : []) {
      device.write(buffer, this.tables.stateOf(slot) * size, states!.subarray(at, (at += size)));
    }
  }
}
