import type { Buffer, Device } from '../gpu/index.js';
import { ceilDiv } from '../base/math.js';
import { HeadBlocks, headTableStride } from '../model/compression/head_blocks.js';
import type { StageTopology } from '../model/topology.js';
import type { CacheUse, KeptEntries } from './rank.js';

export interface HeadPagesShape {
  readonly slots: number;
  /** Blocks of each kv head, in every layer: heads of a layer share them. */
  readonly numBlocks: number;
  /** Tokens a block. */
  readonly block: number;
  readonly contextLength: number;
}

/** Layers that are cached alike. */
interface PagedStage {
  readonly firstLayer: number;
  readonly numLayers: number;
  readonly kvHeads: readonly number[];
  readonly blocks: HeadBlocks;
}

interface Slot {
  /** Positions that there is room for. */
  readonly room: number;
  /** Of the prompt, once it was compressed. */
  readonly prompt: number;
  readonly kept: readonly KeptEntries[];
}

const EMPTY: Slot = { room: 0, prompt: 0, kept: [] };

/** The blocks of a rank's cache whose heads are compressed one by one, and the tables in which kernels find them. */
export class HeadPages {
  /** By the model's layer: u32 [slots][kv heads][tableStride]. */
  readonly tables: ReadonlyMap<number, Buffer>;
  readonly tableStride: number;
  readonly #stages: readonly PagedStage[];
  readonly #slots: Slot[];

  constructor(
    readonly device: Device,
    stages: readonly StageTopology[],
    readonly shape: HeadPagesShape,
  ) {
    // A rank may hold none of a layer's heads.
    const holding = stages.filter(({ share }) => share.kvHeads.length > 0);
    this.#stages = holding.map(({ stage, share }) => {
      const [firstLayer, end] = stage.layers;
      const [layers, kvHeads] = [end - firstLayer, share.kvHeads.length];
      const blocks = new HeadBlocks({ ...shape, layers, kvHeads, numBlocks: shape.numBlocks * kvHeads });
      return { firstLayer, numLayers: layers, kvHeads: share.kvHeads, blocks };
    });
    this.tableStride = headTableStride(shape);
    this.tables = new Map(
      this.#stages.flatMap(({ firstLayer, numLayers, kvHeads }) =>
        Array.from({ length: numLayers }, (_, at) => {
          const words = shape.slots * kvHeads.length * this.tableStride;
          return [firstLayer + at, device.createBuffer(`layers.${firstLayer + at}.block_tables`, words * 4)] as const;
        }),
      ),
    );
    this.#slots = Array.from({ length: shape.slots }, () => EMPTY);
  }

  /** Makes room for positions below `tokens`, more than the slot had or as many. @throws SplitkvError `context_full` */
  reserve(slot: number, tokens: number): void {
    for (const stage of this.#stages) if (stage.blocks.reserve(slot, tokens)) this.#write(stage, slot);
    this.#slots[slot] = { ...this.#slots[slot]!, room: tokens };
  }

  /** Nothing of the slot is held here: nothing is appended for it. */
  leaveOut(slot: number): void {
    for (const stage of this.#stages) this.#write(stage, slot);
  }

  /**
   * The slot's prompt of `length` tokens was compressed: frees the blocks behind what is left, and keeps the room that there was.
   * @param kept entries by stage, [layer][kv head]
   */
  compressed(slot: number, length: number, kept: readonly (readonly (readonly number[])[])[]): void {
    for (const [index, { blocks }] of this.#stages.entries()) blocks.compressed(slot, length, kept[index]!);
    const { room } = this.#slots[slot]!;
    for (const stage of this.#stages) {
      stage.blocks.reserve(slot, room);
      this.#write(stage, slot);
    }
    const entries = this.#stages.flatMap(({ firstLayer, kvHeads }, index) =>
      kept[index]!.flatMap((layer, at) =>
        layer.map((count, head) => ({ layer: firstLayer + at, head: kvHeads[head]!, entries: count })),
      ),
    );
    this.#slots[slot] = { room, prompt: length, kept: entries };
  }

  release(slot: number): void {
    for (const { blocks } of this.#stages) blocks.release(slot);
    this.#slots[slot] = EMPTY;
  }

  /** Entries that every head of the sequences in slots [first, end) has fewer than positions, at least. */
  leastEvicted(first: number, end: number): number {
    const evicted = this.#slots.slice(first, end).flatMap(({ room, prompt, kept }) => {
      if (room === 0) return [];
      return [kept.length === 0 ? 0 : prompt - kept.reduce((most, { entries }) => Math.max(most, entries), 0)];
    });
    return evicted.length === 0 ? 0 : Math.min(...evicted);
  }

  /** What the slot's prompt takes. @param headBlockBytes of a block of one head, K and V */
  use(slot: number, headBlockBytes: number): CacheUse {
    const { prompt, kept } = this.#slots[slot]!;
    const bytes = (entries: number): number => ceilDiv(entries, this.shape.block) * headBlockBytes;
    return {
      promptBytes: kept.length * bytes(prompt),
      keptBytes: kept.reduce((sum, { entries }) => sum + bytes(entries), 0),
      kept,
    };
  }

  #write({ firstLayer, numLayers, kvHeads, blocks }: PagedStage, slot: number): void {
    const offset = slot * kvHeads.length * this.tableStride * 4;
    for (let at = 0; at < numLayers; at++) {
      this.device.write(this.tables.get(firstLayer + at)!, offset, blocks.table(at, slot));
    }
  }
}
