import { KV_BLOCK, NO_BLOCK } from '../../base/kv_units.js';
import { nth, range } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import type { Buffer, Device } from '../../gpu/index.js';
import { layerWindows, type ModelConfig } from '../../model/config/model_config.js';
import type { CacheOptions } from '../../model/layers/attention/cache.js';
import type { World } from '../../model/layers/world.js';
import { type BlockRun, CachePools, keptWindow, Owners, type Plan, type RankBlocks } from '../../placement/index.js';
import type { RunnerOptions } from '../contracts/rank.js';
import type * as HeadTables from './head_pages.js';

/** What only caches with tables by head need (compressed prompts, copied heads), loaded when one is wanted. */
export type CompressionParts = typeof HeadTables;

interface Slot {
  /** By logical block; NO_BLOCK where another rank holds it. */
  readonly table: Uint32Array;
  /** In layers with windows: NO_BLOCK also where they keep none. */
  readonly windowed: Uint32Array;
  readonly chunkOffset: number;
}

const EMPTY: Slot = { table: new Uint32Array(), windowed: new Uint32Array(), chunkOffset: 0 };

/** Which blocks each slot's sequence has on this rank, on the host and in the tables that kernels read. */
export class SlotTables {
  /** Who holds what, and runs which rows. */
  readonly owners: Owners;
  /** Where prompts are compressed or heads are copied: blocks and tables of each head, instead of one table. */
  readonly pages: HeadTables.HeadPages | undefined;
  /** Where the pools' blocks are here. */
  readonly #pool: RankBlocks;
  /** Of layers with windows, where they keep fewer. */
  readonly #windows: { readonly pool: RankBlocks; readonly table: Buffer } | undefined;
  readonly #slots: Slot[];
  readonly #blockTable: Buffer;
  readonly #chunkOffsets: Buffer;
  readonly #tableStride: number;
  readonly #states: CacheOptions['states'];
  #stateOf: readonly number[] = [];

  /** `parts`: needed where heads have tables of their own. */
  constructor(
    readonly device: Device,
    readonly world: World,
    config: Pick<ModelConfig, 'layers'>,
    readonly options: RunnerOptions,
    readonly parts: CompressionParts | undefined,
  ) {
    const { slots, batches = 1, contextLength, compression } = options;
    const total = slots * batches;
    this.owners = new Owners(world.plan, slots, batches, compression !== undefined);
    const pools = cachePools(this.owners, config, options);
    this.#pool = pools.ofRank(world.rank);
    this.#slots = Array.from({ length: total }, () => EMPTY);
    if (parts) {
      const held = world.topology.stages.filter((stage) => stage !== undefined);
      const compressed = compression !== undefined;
      this.pages = new parts.HeadPages(device, held, {
        rank: world.rank,
        slots: total,
        numBlocks: this.#pool.numBlocks,
        block: KV_BLOCK,
        contextLength,
        owners: world.plan.sharing && this.owners,
        compressed,
        wholePrompts: compressed && world.plan.sharing === 'lanes',
      });
    }
    this.#tableStride = this.pages?.tableStride ?? ceilDiv(contextLength, KV_BLOCK);
    const tableBytes = total * this.#tableStride * 4;
    this.#blockTable = device.createBuffer('block_table', this.pages ? 4 : tableBytes);
    this.#windows = pools.window && {
      pool: pools.ofRank(world.rank, 'window'),
      table: device.createBuffer('window_block_table', tableBytes),
    };
    // And the ends of runs.
    this.#chunkOffsets = device.createBuffer('chunk_offsets', 2 * total * 4);
    this.#states = this.#allocateStates();
  }

  /** What the model's program needs of the cache. */
  get cacheOptions(): CacheOptions {
    const { options, pages, parts, world, owners } = this;
    return {
      type: options.kvType,
      block: KV_BLOCK,
      numBlocks: this.#pool.numBlocks,
      blockTable: this.#blockTable,
      chunkOffsets: this.#chunkOffsets,
      runEnds: this.owners.total,
      tableStride: this.#tableStride,
      contextLength: options.contextLength,
      states: this.#states,
      windowed: this.#windows && { numBlocks: this.#windows.pool.numBlocks, blockTable: this.#windows.table },
      ...(pages && {
        headTables: pages,
        compression: options.compression && { options: options.compression, compressor: parts!.PromptCompression },
        copyOwners: world.plan.sharing && owners,
      }),
    };
  }

  /** Of a slot whose rows this rank runs: its state's number. */
  stateOf(slot: number): number {
    return nth(this.#stateOf, slot);
  }

  /** This rank's number of a kept state of a slot's place: each place whose rows it runs has states of its own. */
  keptState(slot: number, place: number): number {
    const before = this.owners.rowPlaces(this.world.rank).indexOf(this.owners.placeOf(slot));
    return before * (this.options.keptStates ?? 0) + place;
  }

  /** The states of the slots whose rows this rank runs, in order of the slots. */
  #allocateStates(): CacheOptions['states'] {
    const { device, world, owners } = this;
    const runs = owners.rowSlotsOf(world.rank);
    const places = device.createBuffer('state_places', owners.total * 4);
    this.#stateOf = range(0, owners.total).map((slot) => Math.max(0, runs.indexOf(slot)));
    device.write(places, 0, Uint32Array.from(this.#stateOf));
    // A rank without slots of its own has a row that is never active.
    const { keptStates = 0 } = this.options;
    return { count: Math.max(1, runs.length), places, kept: keptStates * owners.rowPlaces(world.rank).length };
  }

  /** Whether this rank keeps a slot's sequences, or a part of each. */
  keeps(slot: number): boolean {
    return this.owners.keeps(this.world.rank, slot);
  }

  /** `windowed`: of layers with windows. */
  table(slot: number, windowed = false): Uint32Array {
    return windowed ? nth(this.#slots, slot).windowed : nth(this.#slots, slot).table;
  }

  chunkOffset(slot: number): number {
    return nth(this.#slots, slot).chunkOffset;
  }

  /** `RankStep.offsets` of rows of some slots by row group; undefined where no ranks split sequences. */
  offsetsOf(slotsByGroup: readonly (readonly number[])[]): number[][] | undefined {
    if (this.owners.split === 1 || this.pages) return undefined;
    return slotsByGroup.map((slots) => [...new Set(slots.map((slot) => this.chunkOffset(slot)))]);
  }

  /** This rank's number of a block of a slot's pool; NO_BLOCK where another rank has it. */
  local(slot: number, block: number, windowed = false): number {
    return (windowed ? this.#windows!.pool : this.#pool).local(slot, block);
  }

  /** Of heads with tables of their own: room for positions below `tokens`. */
  reserve(slot: number, tokens: number, chunkOffset: number): void {
    if (!this.keeps(slot)) this.pages!.leaveOut(slot);
    else if (this.pages!.reserve(slot, tokens, chunkOffset)) this.#writeChunkOffset(slot, chunkOffset);
  }

  /** Gives a slot blocks, by the numbers of its pools. */
  setBlocks(slot: number, blocks: readonly number[], chunkOffset: number, windows?: BlockRun): void {
    this.owners.admit(slot, blocks.length * KV_BLOCK, chunkOffset);
    const table = Uint32Array.from(blocks, (block) => this.local(slot, block));
    const windowed = new Uint32Array(this.#windows ? table.length : 0).fill(NO_BLOCK);
    if (windows)
      windowed.set(
        Array.from(windows.blocks, (block) => this.local(slot, block, true)),
        windows.first,
      );
    this.#slots[slot] = { table, windowed, chunkOffset };
    const offset = slot * this.#tableStride * 4;
    this.device.write(this.#blockTable, offset, table);
    if (this.#windows) this.device.write(this.#windows.table, offset, windowed);
    this.#writeChunkOffset(slot, chunkOffset);
  }

  release(slot: number): void {
    this.pages?.release(slot);
    this.owners.release(slot);
    this.#slots[slot] = EMPTY;
  }

  /** The end of the run that the next step has of a slot's sequence; 0: it has none. */
  writeRunEnd(slot: number, end: number): void {
    this.device.write(this.#chunkOffsets, (this.owners.total + slot) * 4, Uint32Array.of(end));
  }

  #writeChunkOffset(slot: number, chunkOffset: number): void {
    this.device.write(this.#chunkOffsets, slot * 4, new Uint32Array([chunkOffset]));
  }
}

/** Whether heads have blocks and tables of their own, as they keep different entries: prompts are compressed, or heads are copied. */
export const hasHeadTables = ({ sharing }: Plan, { compression }: RunnerOptions): boolean =>
  compression !== undefined || sharing !== undefined;

/** The pools of a model's cache: alike for every rank and for who hands their blocks out. */
export function cachePools(
  owners: Owners,
  config: Pick<ModelConfig, 'layers'>,
  { contextLength, prefillChunk, kvBlocks, compression, windows, keepsAll = false }: RunnerOptions,
): CachePools {
  const options = { contextLength, prefillChunk, compressed: compression !== undefined };
  const window = keepsAll ? undefined : keptWindow(owners.plan, layerWindows(config), options);
  return new CachePools(owners, contextLength, kvBlocks, window, windows);
}
