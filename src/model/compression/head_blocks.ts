import { HEAD_TABLE_LEAD, HEAD_TABLE_TAIL } from '../../../shaders/cache/head_tables.js';
import { NO_BLOCK } from '../../base/kv_units.js';
import { internalError, SplitkvError } from '../../base/errors.js';
import { nth, range, sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';

/** Of a rank's cache whose heads have block tables of their own. */
export interface HeadBlocksShape {
  readonly layers: number;
  readonly kvHeads: number;
  readonly slots: number;
  /** Blocks of one head in each layer's cache. */
  readonly numBlocks: number;
  /** Tokens per block. */
  readonly block: number;
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /** Whether a block of a slot's kv head (by its place in the cache) lies here, in one of the layers; all of them where left out. */
  readonly holds?: (layer: number, slot: number, kvHead: number, block: number) => boolean;
}

/** Words of a head's table. */
export const headTableStride = ({ contextLength, block }: Pick<HeadBlocksShape, 'contextLength' | 'block'>): number =>
  HEAD_TABLE_LEAD + ceilDiv(contextLength, block) + HEAD_TABLE_TAIL;

interface Head {
  evicted: number;
  /** NO_BLOCK where another rank holds the entries. */
  readonly blocks: number[];
}

const held = (blocks: readonly number[]): number[] => blocks.filter((block) => block !== NO_BLOCK);

/**
 * Which blocks hold the entries of each (layer, slot, kv head). Every layer has blocks of its own to hand out; a head takes them
 * one at a time as it grows, and gives back those behind its last entry when it is compressed. Pure bookkeeping.
 */
export class HeadBlocks {
  readonly tableStride: number;
  readonly #layers: readonly {
    /** The last is handed out next. */
    readonly free: number[];
    /** [slot][kv head] */
    readonly slots: readonly (readonly Head[])[];
  }[];

  constructor(readonly shape: HeadBlocksShape) {
    const { layers, slots, kvHeads, numBlocks } = shape;
    this.tableStride = headTableStride(shape);
    this.#layers = range(0, layers).map(() => ({
      free: range(0, numBlocks).reverse(),
      slots: range(0, slots).map(() => range(0, kvHeads).map(() => ({ evicted: 0, blocks: [] }))),
    }));
  }

  get used(): number {
    const { layers, numBlocks } = this.shape;
    return layers * numBlocks - sum(this.#layers.map(({ free }) => free.length));
  }

  /** Blocks more than it has that a slot needs to hold positions below `tokens`, in the layer that needs most beyond its free ones. */
  missing(slot: number, tokens: number): number {
    return Math.max(
      ...this.#layers.map(({ free, slots }, at) => this.#wanted(at, slot, nth(slots, slot), tokens) - free.length),
    );
  }

  #wanted(layer: number, slot: number, heads: readonly Head[], tokens: number): number {
    const wanted = heads.map((head, index) =>
      range(head.blocks.length, Math.max(head.blocks.length, this.#blocksFor(head, tokens))).filter((block) =>
        this.holds(layer, slot, index, block),
      ),
    );
    return wanted.flat().length;
  }

  /** A slot's heads, or those of one kv head, by layer, with the layer's free blocks. */
  *#of(slot: number, only?: number) {
    for (const [layer, { free, slots }] of this.#layers.entries()) {
      for (const [kvHead, head] of nth(slots, slot).entries())
        if (only === undefined || kvHead === only) yield { layer, kvHead, head, free };
    }
  }

  /** Whether a block of a slot's kv head, by its place in the cache, lies here. */
  holds(layer: number, slot: number, kvHead: number, block: number): boolean {
    return this.shape.holds?.(layer, slot, kvHead, block) ?? true;
  }

  #blocksFor({ evicted }: Head, tokens: number): number {
    return ceilDiv(Math.max(0, tokens - evicted), this.shape.block);
  }

  /**
   * Makes room for positions below `tokens`; true where tables changed.
   * @throws SplitkvError `context_full` when a layer has too few free blocks; nothing is taken then.
   */
  reserve(slot: number, tokens: number): boolean {
    const missing = this.missing(slot, tokens);
    if (missing > 0) {
      throw new SplitkvError(
        'context_full',
        `${tokens} tokens of slot ${slot} need ${missing} KV blocks more than a layer has free, of ${this.shape.numBlocks} of ` +
          `${this.shape.block} tokens of a head: lower kvBudget, or run fewer sequences`,
      );
    }
    let changed = false;
    for (const { layer, kvHead, head, free } of this.#of(slot)) {
      while (head.blocks.length < this.#blocksFor(head, tokens)) {
        head.blocks.push(this.holds(layer, slot, kvHead, head.blocks.length) ? free.pop()! : NO_BLOCK);
        changed = true;
      }
    }
    return changed;
  }

  /**
   * A prompt of `length` tokens was compressed to `kept` entries, [layer][kv head]: blocks behind them are free again. Returns their
   * number.
   */
  compressed(slot: number, length: number, kept: readonly (readonly number[])[]): number {
    let freed = 0;
    for (const { layer, kvHead, head, free } of this.#of(slot)) {
      const entries = kept[layer]?.[kvHead];
      if (entries === undefined || entries > length || head.evicted !== 0) {
        throw internalError(
          `layer ${layer}, head ${kvHead} of slot ${slot} kept ${entries} of ${length} entries, ${head.evicted} evicted before`,
        );
      }
      head.evicted = length - entries;
      const left = held(head.blocks.splice(ceilDiv(entries, this.shape.block)));
      free.push(...left.reverse());
      freed += left.length;
    }
    return freed;
  }

  /** Frees a slot's blocks that needn't lie here, now that `holds` says so. */
  settle(slot: number): void {
    for (const { layer, kvHead, head, free } of this.#of(slot)) {
      for (const [place, block] of head.blocks.entries()) {
        if (block === NO_BLOCK || this.holds(layer, slot, kvHead, place)) continue;
        free.push(block);
        head.blocks[place] = NO_BLOCK;
      }
    }
  }

  /**
   * A slot's kv head comes here from another rank: takes a block for each that it has there. Returns the first ones, those of positions
   * below `length`, by layer.
   * @throws SplitkvError `internal` without room: whoever moves a head knows that there is some
   */
  takeIn(slot: number, kvHead: number, length: number): number[][] {
    for (const { head, free } of this.#of(slot, kvHead)) {
      if (free.length < head.blocks.length) {
        throw internalError(`no room for kv head ${kvHead} of slot ${slot} on the rank that it goes to`);
      }
      for (const place of head.blocks.keys()) head.blocks[place] = free.pop()!;
    }
    return this.blocksBelow(slot, kvHead, length);
  }

  /** Blocks of a slot's kv head that positions below `length` take, by layer. */
  blocksBelow(slot: number, kvHead: number, length: number): number[][] {
    return [...this.#of(slot, kvHead)].map(({ head }) => head.blocks.slice(0, this.#blocksFor(head, length)));
  }

  giveAway(slot: number, kvHead: number): void {
    for (const { head, free } of this.#of(slot, kvHead)) {
      free.push(...head.blocks.toReversed());
      head.blocks.fill(NO_BLOCK);
    }
  }

  /** Entries that a slot's heads were left with of a prompt of `length` tokens, [layer][kv head], wherever they lie. */
  left(slot: number, length: number): number[][] {
    return this.#layers.map(({ slots }) => nth(slots, slot).map(({ evicted }) => length - evicted));
  }

  /** Entries that lie here of a slot's heads in a layer, when the sequence has `length` tokens. */
  entries(layer: number, slot: number, length: number): number {
    const { block } = this.shape;
    const here = this.#heads(layer, slot).map(({ evicted, blocks }) => {
      const left = length - evicted;
      return sum(blocks.map((own, at) => (own === NO_BLOCK ? 0 : Math.min(block, Math.max(0, left - at * block)))));
    });
    return sum(here);
  }

  #heads(layer: number, slot: number): readonly Head[] {
    return nth(nth(this.#layers, layer).slots, slot);
  }

  release(slot: number): void {
    for (const { head, free } of this.#of(slot)) {
      free.push(...held(head.blocks.splice(0)).reverse());
      head.evicted = 0;
    }
  }

  /**
   * A slot's tables of a layer as kernels read them, u32 [kv heads][tableStride]; they begin at word slot * kvHeads * tableStride.
   * @param lanesOf the `laneWord` of a kv head, by its place in the cache
   */
  table(layer: number, slot: number, lanesOf: (kvHead: number) => number = () => 0): Uint32Array<ArrayBuffer> {
    const words = new Uint32Array(this.shape.kvHeads * this.tableStride).fill(NO_BLOCK);
    for (const [head, { evicted, blocks }] of this.#heads(layer, slot).entries()) {
      words[head * this.tableStride] = evicted;
      words.set(blocks, head * this.tableStride + HEAD_TABLE_LEAD);
      words[(head + 1) * this.tableStride - HEAD_TABLE_TAIL] = lanesOf(head);
    }
    return words;
  }
}
