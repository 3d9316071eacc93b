/**
 * Room: KV blocks of a rank. By head where caches are compressed or heads are copied (here); elsewhere the scheduler
 * hands them out. Beside it caches that are read, written and moved (cache_blocks.ts).
 */

import type { Buffer, Device } from '../../gpu/index.js';
import { KV_BLOCK, NO_BLOCK } from '../../base/kv_units.js';
import { listIn, nth, range, sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import { countedEntries } from '../../model/compression/budgets.js';
import { laneWord } from '../../../shaders/cache/head_tables.js';
import { HeadBlocks, type HeadBlocksShape, headTableStride } from '../../model/compression/head_blocks.js';
import type { Decoder } from '../../model/forward/decoder.js';
import {
  CHUNK_TOKENS,
  chunkRoom,
  holdersOf,
  LaneShares,
  MERGE_LANES,
  type CopyMove,
  type Owners,
  type RankShare,
  type SharedSequence,
  type Stage,
  type StageTopology,
} from '../../placement/index.js';
import { headBuffers, type LayerBlocks, type PeerBlocks } from './cache_blocks.js';
import type { CacheUse, KeptEntries } from '../contracts/rank.js';

// Loaded together, where heads have tables of their own.
export { PromptCompression } from '../../model/compression/prompt_compression.js';

/** `numBlocks` are of each kv head, in every layer: heads of a layer share them. */
export interface HeadPagesShape extends Pick<HeadBlocksShape, 'slots' | 'numBlocks' | 'block' | 'contextLength'> {
  readonly rank: number;
  /** Where heads are copied. */
  readonly owners?: Owners | undefined;
  /**
   * Copies that share lanes each keep all of a prompt until it ends (`settle`): which entries will be left, and so whose they are, is
   * decided then.
   */
  readonly wholePrompts?: boolean;
  /** Prompts are compressed: what a copy of a head takes isn't known beforehand, so each has room for all sequences. */
  readonly compressed?: boolean;
}

/** Layers that are cached alike. */
interface PagedStage {
  /** Of the plan. */
  readonly index: number;
  readonly firstLayer: number;
  readonly numLayers: number;
  readonly kvHeads: readonly number[];
  readonly blocks: HeadBlocks;
  /** Whether a block of a slot's head is this rank's in one of the layers, of those that hold copies of it. */
  readonly owns: NonNullable<HeadBlocksShape['holds']>;
  /** By kv head: the ranks that hold copies of it. */
  readonly holders: readonly (readonly number[])[];
}

interface Slot {
  /** Positions that there is room for. */
  readonly room: number;
  /** Of the prompt, once it was compressed. */
  readonly prompt: number;
  readonly kept: readonly KeptEntries[];
  /** Of all heads here, copies included. */
  readonly mostKept: number;
  /** Every copy of a head has its own entries only. */
  readonly settled: boolean;
}

const EMPTY: Slot = { room: 0, prompt: 0, kept: [], mostKept: 0, settled: false };

/** The blocks of a rank's cache whose heads keep different entries, and the tables in which kernels find them. */
export class HeadPages {
  /** By the model's layer: u32 [slots][kv heads][tableStride]. */
  readonly tables: ReadonlyMap<number, Buffer>;
  /** By the model's layer: blocks of all its kv heads together. */
  readonly headBlocks: ReadonlyMap<number, number>;
  /** By the model's layer: kv heads here. */
  readonly kvHeads: ReadonlyMap<number, readonly number[]>;
  readonly tableStride: number;
  readonly #stages: readonly PagedStage[];
  readonly #slots: Slot[];
  /** Where copies share lanes. */
  readonly #shares: LaneShares | undefined;

  constructor(
    readonly device: Device,
    stages: readonly StageTopology[],
    readonly shape: HeadPagesShape,
  ) {
    const { owners } = shape;
    this.#shares = owners?.plan.sharing === 'lanes' ? new LaneShares(owners) : undefined;
    // A rank may hold none of a layer's heads.
    const holding = stages.filter(({ share }) => share.kvHeads.length > 0);
    this.#stages = holding.map(({ stage, share }) => {
      const [firstLayer, end] = stage.layers;
      const [layers, kvHeads] = [end - firstLayer, share.kvHeads.length];
      const owns = ownerOf(shape, stage, share, this.#shares);
      const blocks = new HeadBlocks({
        ...shape,
        layers,
        kvHeads,
        numBlocks: this.#blocksOf(stage, share),
        holds: (layer, slot, head, block) => this.#hasWhole(slot) || owns(layer, slot, head, block),
      });
      const index = owners?.plan.stages.indexOf(stage) ?? 0;
      const holders = share.kvHeads.map((head) => holdersOf(stage, head).map(({ rank }) => rank));
      return { index, firstLayer, numLayers: layers, kvHeads: share.kvHeads, blocks, owns, holders };
    });
    this.headBlocks = this.#byLayer(({ blocks }) => blocks.shape.numBlocks);
    this.kvHeads = this.#byLayer(({ kvHeads }) => kvHeads);
    this.tableStride = headTableStride(shape);
    this.tables = this.#byLayer(({ kvHeads }, layer) => {
      const words = shape.slots * kvHeads.length * this.tableStride;
      return device.createBuffer(`layers.${layer}.block_tables`, words * 4);
    });
    this.#slots = Array.from({ length: shape.slots }, () => EMPTY);
  }

  /**
   * Makes room for positions below `tokens`, more than the slot had or as many; chunks of a new sequence are rotated by
   * `chunkOffset`. True where the sequence is new.
   * @throws SplitkvError `context_full`
   */
  reserve(slot: number, tokens: number, chunkOffset = 0): boolean {
    const isNew = nth(this.#slots, slot).room === 0;
    if (isNew) this.shape.owners?.admit(slot, tokens, chunkOffset);
    for (const stage of this.#stages) if (stage.blocks.reserve(slot, tokens)) this.#write(stage, slot);
    this.#slots[slot] = { ...nth(this.#slots, slot), room: tokens };
    return isNew;
  }

  /** Nothing of the slot is held here: nothing is appended for it. */
  leaveOut(slot: number): void {
    for (const stage of this.#stages) this.#write(stage, slot);
  }

  /**
   * The slot's prompt of `length` tokens was compressed: frees the blocks behind what is left, and keeps the room that there was. Copies
   * share its lanes anew.
   * @param kept by the model's layer, entries of each of the model's kv heads
   */
  compressed(slot: number, length: number, kept: ReadonlyMap<number, readonly number[]>): void {
    const keptBy = (layer: number, head: number): number => nth(kept.get(layer) ?? [], head);
    const here = this.#stages.map((stage) => {
      const { firstLayer, numLayers, kvHeads } = stage;
      const layers = range(firstLayer, firstLayer + numLayers);
      return { stage, counts: layers.map((layer) => kvHeads.map((head) => keptBy(layer, head))) };
    });
    const { room } = nth(this.#slots, slot);
    this.#shareLanes(slot, keptBy);
    for (const { stage, counts } of here) {
      stage.blocks.compressed(slot, length, counts);
      stage.blocks.reserve(slot, room);
      this.#write(stage, slot);
    }
    const entries = here.flatMap(({ stage, counts }) => {
      const { firstLayer, kvHeads, owns } = stage;
      return counts.flatMap((layer, at) =>
        layer.flatMap((count, head) =>
          // Of a copied head, another rank may keep the sequence, or its first chunk.
          owns(at, slot, head, 0) ? [{ layer: firstLayer + at, head: nth(kvHeads, head), entries: count }] : [],
        ),
      );
    });
    const mostKept = Math.max(0, ...here.flatMap(({ counts }) => counts.flat()));
    this.#slots[slot] = { ...nth(this.#slots, slot), prompt: length, kept: entries, mostKept };
  }

  /**
   * Tokens of a slot's compressed prompt that its blocks here need no longer hold, in the layer with most: as many for each head, copies
   * included, whoever keeps the sequence of them now.
   */
  evicted(slot: number): number {
    const { prompt } = nth(this.#slots, slot);
    const counted = this.#stages.flatMap(({ blocks }) =>
      blocks.left(slot, prompt).map((heads) => countedEntries(heads, this.shape.block)),
    );
    return prompt - counted.reduce((most, entries) => Math.max(most, entries), 0);
  }

  /** A slot's blocks here that positions below `length` take, layer by layer. */
  blocksBelow(slot: number, length: number): LayerBlocks[] {
    return this.#stages.flatMap(({ firstLayer, numLayers, kvHeads, blocks }) => {
      const byHead = kvHeads.map((_, head) => blocks.blocksBelow(slot, head, length));
      return range(0, numLayers).map((at) => ({ layer: firstLayer + at, heads: byHead.map((own) => nth(own, at)) }));
    });
  }

  release(slot: number): void {
    for (const { blocks } of this.#stages) blocks.release(slot);
    this.shape.owners?.release(slot);
    this.#shares?.release(slot);
    this.#slots[slot] = EMPTY;
  }

  /** Entries that every head of the sequences in slots [first, end) has fewer than positions, at least. */
  leastEvicted(first: number, end: number): number {
    const active = this.#slots.slice(first, end).filter(({ room }) => room > 0);
    const evicted = active.map(({ prompt, mostKept }) => prompt - mostKept);
    return evicted.length === 0 ? 0 : Math.min(...evicted);
  }

  /** Entries of a slot's heads that lie here, in a layer of the model, when the sequence has `length` tokens. */
  entries(layer: number, slot: number, length: number): number {
    const stage = this.#stageOf(layer);
    return stage ? stage.blocks.entries(layer - stage.firstLayer, slot, length) : 0;
  }

  /** The slot's prompt of `length` tokens is there, whole or compressed: copies that share its lanes part with each other's. */
  settle(slot: number, length: number): void {
    if (!this.shape.wholePrompts) return;
    const before = nth(this.#slots, slot);
    if (before.prompt === 0) this.#shareLanes(slot, () => length);
    this.#slots[slot] = { ...before, settled: true };
    for (const stage of this.#stages) {
      stage.blocks.settle(slot);
      this.#write(stage, slot);
    }
  }

  /** Where every copy has the whole prompt, and each will keep its lanes. @param entriesOf a kv head in a layer of the model */
  #shareLanes(slot: number, entriesOf: (layer: number, head: number) => number): void {
    if (!this.shape.wholePrompts) return;
    for (const { index, firstLayer, numLayers } of this.#stages) {
      for (const layer of range(firstLayer, firstLayer + numLayers)) {
        this.#shares?.share(slot, index, layer, (head) => entriesOf(layer, head));
      }
    }
  }

  /** Most lanes that a rank has of a head of some slots' sequences, in a layer of the model. */
  mostLanes(slots: readonly number[], layer: number, head: number, rank: number): number {
    const { index } = this.#stageOf(layer)!;
    const held = (slot: number): number =>
      nth(this.#slots, slot).room > 0
        ? (this.#shares?.lanes(slot, index, layer, head) ?? []).filter((holder) => holder === rank).length
        : 0;
    return Math.max(0, ...slots.map(held));
  }

  #stageOf(layer: number): PagedStage | undefined {
    return this.#stages.find(({ firstLayer, numLayers }) => layer >= firstLayer && layer < firstLayer + numLayers);
  }

  /**
   * Decides anew which copies keep which of the sequences that are there (`Owners.balance`), and takes blocks for what comes to this
   * rank. Returns all moves, and what of them is this rank's to copy; `finish` frees what left, once it is copied.
   */
  balance(sequences: readonly SharedSequence[]): {
    readonly moves: readonly CopyMove[];
    readonly peers: readonly PeerBlocks<LayerBlocks>[];
    readonly finish: () => void;
  } {
    const { rank, owners } = this.shape;
    const moves = owners?.balance(sequences) ?? [];
    const [sends, receives] = [new Map<number, LayerBlocks[]>(), new Map<number, LayerBlocks[]>()];
    const touched: { readonly stage: PagedStage; readonly slot: number; readonly gone: number | undefined }[] = [];
    for (const { stage: index, head, slot, from, to, length } of moves) {
      if (from !== rank && to !== rank) continue;
      const stage = this.#stages.find((own) => own.index === index)!;
      const kvHead = stage.kvHeads.indexOf(head);
      const of = (blocks: readonly (readonly number[])[]): LayerBlocks[] =>
        blocks.map((own, at) => ({ layer: stage.firstLayer + at, heads: [own] }));
      if (to === rank) listIn(receives, from).push(...of(stage.blocks.takeIn(slot, kvHead, length)));
      else listIn(sends, to).push(...of(stage.blocks.blocksBelow(slot, kvHead, length)));
      touched.push({ stage, slot, gone: from === rank ? kvHead : undefined });
    }
    return {
      moves,
      peers: [...new Set([...sends.keys(), ...receives.keys()])].map((peer) => ({
        peer,
        sends: sends.get(peer) ?? [],
        receives: receives.get(peer) ?? [],
      })),
      finish: () => {
        for (const { stage, slot, gone } of touched) {
          if (gone !== undefined) stage.blocks.giveAway(slot, gone);
          this.#write(stage, slot);
        }
      },
    };
  }

  /** What the slot's prompt takes. @param headBlockBytes of a block of one head of a layer, K and V */
  use(slot: number, headBlockBytes: (layer: number) => number): CacheUse {
    const { prompt, kept } = nth(this.#slots, slot);
    const bytes = (layer: number, entries: number): number =>
      ceilDiv(entries, this.shape.block) * headBlockBytes(layer);
    return {
      promptBytes: kept.reduce((sum, { layer }) => sum + bytes(layer, prompt), 0),
      keptBytes: kept.reduce((sum, { layer, entries }) => sum + bytes(layer, entries), 0),
      kept,
    };
  }

  /** `layer`: of the model. */
  #byLayer<T>(of: (stage: PagedStage, layer: number) => T): Map<number, T> {
    return new Map(
      this.#stages.flatMap((stage) =>
        range(stage.firstLayer, stage.firstLayer + stage.numLayers).map((layer) => [layer, of(stage, layer)] as const),
      ),
    );
  }

  #write({ index, firstLayer, numLayers, kvHeads, blocks, holders }: PagedStage, slot: number): void {
    const offset = slot * kvHeads.length * this.tableStride * 4;
    for (let at = 0; at < numLayers; at++) {
      const lanesOf = (head: number): number => {
        const ranks = this.#shares?.lanes(slot, index, firstLayer + at, nth(kvHeads, head)) ?? [];
        return laneWord(ranks.map((rank) => nth(holders, head).indexOf(rank)));
      };
      this.device.write(this.tables.get(firstLayer + at)!, offset, blocks.table(at, slot, lanesOf));
    }
  }

  /** Copies keep a prompt whole until it is settled. */
  #hasWhole(slot: number): boolean {
    return this.shape.wholePrompts === true && !nth(this.#slots, slot).settled;
  }

  /** Blocks of all of a layer's heads: of a copied one, for this rank's part. */
  #blocksOf(stage: Stage, { rank, kvHeads, copies = [] }: RankShare): number {
    const { owners, slots, numBlocks, block, contextLength, compressed } = this.shape;
    if (!owners || compressed) return kvHeads.length * numBlocks;
    const room = { slots, tokens: contextLength };
    const parts = copies.map(({ head }) => {
      const chunks = chunkRoom(stage, owners.plan.sharing, { rank, head }, room);
      return Math.min(numBlocks, (chunks * CHUNK_TOKENS) / block);
    });
    return (kvHeads.length - copies.length) * numBlocks + parts.reduce((sum, part) => sum + part, 0);
  }
}

function ownerOf(
  { owners, block }: HeadPagesShape,
  stage: Stage,
  { rank, kvHeads }: RankShare,
  shares: LaneShares | undefined,
): PagedStage['owns'] {
  if (!owners) return () => true;
  const index = owners.plan.stages.indexOf(stage);
  return (at, slot, place, number) => {
    const kvHead = nth(kvHeads, place);
    const chunk = Math.floor((number * block) / CHUNK_TOKENS);
    const lanes = shares?.lanes(slot, index, stage.layers[0] + at, kvHead);
    return lanes ? lanes[chunk % MERGE_LANES] === rank : owners.holds(rank, { stage: index, kvHead, slot, chunk });
  };
}

/** A layer's K or V beside its cache: block k of kv head h begins at (h * count + k) * blockBytes. */
interface KeptBuffer {
  readonly layer: number;
  /** Of the cache. */
  readonly own: Buffer;
  readonly kept: Buffer;
  readonly blockBytes: number;
}

/** Blocks that lie side by side in both buffers. */
interface Run {
  readonly own: number;
  readonly kept: number;
  count: number;
}

/** Where a rank keeps blocks of whole prompts, beside a cache in which prompts are compressed. */
export class KeptPromptBlocks {
  readonly #buffers: readonly KeptBuffer[];

  /** @param count blocks of each kv head */
  constructor(
    readonly device: Device,
    readonly pages: HeadPages,
    forward: Pick<Decoder, 'layerCache'>,
    readonly count: number,
  ) {
    this.#buffers = [...pages.kvHeads].flatMap(([layer, { length: heads }]) =>
      headBuffers(forward, layer).map(({ buffer: own, blockBytes }) => {
        const kept = device.createBuffer(`layers.${layer}.kept_prompts`, heads * count * blockBytes);
        return { layer, own, kept, blockBytes };
      }),
    );
  }

  get bytes(): number {
    return sum(this.#buffers.map(({ kept }) => kept.size));
  }

  /** As `Rank.copyPrompt`; the slot has room for what comes back. */
  copy(slot: number, first: number, kept: readonly number[], back: boolean): void {
    const encoder = this.device.gpu.createCommandEncoder();
    const runs = new Map(
      this.pages.blocksBelow(slot, (first + kept.length) * KV_BLOCK).map(({ layer, heads }) => {
        const places = heads.flatMap((blocks, head) =>
          range(0, kept.length).map((at) => ({
            own: nth(blocks, first + at),
            kept: head * this.count + nth(kept, at),
          })),
        );
        return [layer, runsOf(places)] as const;
      }),
    );
    for (const { layer, own, kept: other, blockBytes } of this.#buffers) {
      for (const { own: at, kept: there, count } of runs.get(layer)!) {
        const [ownAt, otherAt, bytes] = [at * blockBytes, there * blockBytes, count * blockBytes];
        if (back) encoder.copyBufferToBuffer(other.gpu, otherAt, own.gpu, ownAt, bytes);
        else encoder.copyBufferToBuffer(own.gpu, ownAt, other.gpu, otherAt, bytes);
      }
    }
    this.device.gpu.queue.submit([encoder.finish()]);
  }
}

/** Pairs of blocks joined to runs; those that another rank holds are left out. */
function runsOf(places: readonly { readonly own: number; readonly kept: number }[]): Run[] {
  const runs: Run[] = [];
  for (const { own, kept } of places) {
    if (own === NO_BLOCK) continue;
    const last = runs.at(-1);
    if (last && own === last.own + last.count && kept === last.kept + last.count) last.count++;
    else runs.push({ own, kept, count: 1 });
  }
  return runs;
}
