import { CHUNK_TOKENS, KV_BLOCK, NO_BLOCK } from '../base/kv_units.js';
import { range, sum } from '../base/lists.js';
import { ceilDiv } from '../base/math.js';
import { localChunks } from './owner.js';
import type { Owners } from './owners.js';

/**
 * The cache's blocks as pools: one for each place that sequences are dealt out to. A pool has as many lanes as ranks split a sequence,
 * each with as many blocks: lane l has blocks [l * n, (l + 1) * n), and chunk c of a sequence with offset o takes them from lane
 * (c + o) mod lanes. A rank has the blocks of its lanes of the pools that it keeps, so numbers of the pool say where a block is on every
 * rank, and nobody else hands blocks out.
 */
export class CachePools {
  /** Of every pool. */
  readonly lanes: number;

  /** `kvBlocks`: of all pools together; default: as many as every slot may need. */
  constructor(
    readonly owners: Owners,
    readonly contextLength: number,
    readonly kvBlocks?: number,
  ) {
    this.lanes = owners.split;
  }

  /** Blocks of each lane of a place's pool. */
  laneBlocks(place: number): number {
    const { owners, lanes, contextLength, kvBlocks } = this;
    const chunkBlocks = CHUNK_TOKENS / KV_BLOCK;
    const slots = owners.placeSlots(place);
    if (slots === 0) return 0;
    const whole = Math.min(ceilDiv(contextLength, KV_BLOCK), localChunks(contextLength, lanes) * chunkBlocks) * slots;
    if (kvBlocks === undefined) return Math.max(1, whole);
    const blocks = Math.ceil((kvBlocks * slots) / owners.total);
    // Whole chunks: the longest sequence may begin in any lane.
    const part = lanes === 1 ? blocks : ceilDiv(ceilDiv(blocks, chunkBlocks), lanes) * chunkBlocks;
    return Math.max(1, Math.min(whole, part));
  }

  /** Blocks of a place's pool. */
  poolBlocks(place: number): number {
    return this.lanes * this.laneBlocks(place);
  }

  /** A rank's part of the pools. */
  ofRank(rank: number): RankBlocks {
    const { owners, lanes } = this;
    const held = range(0, lanes).filter((lane) => owners.holdsLane(rank, lane, lanes));
    const places = owners.keptPlaces(rank);
    return new RankBlocks(lanes, new Map(places.map((place) => [place, this.laneBlocks(place)])), held, (slot) =>
      owners.placeOf(slot),
    );
  }
}

/** Where blocks of the pools lie on one rank. */
export class RankBlocks {
  /** On the rank; one that keeps no sequence still binds a cache. */
  readonly numBlocks: number;
  readonly #bases = new Map<number, number>();

  constructor(
    readonly lanes: number,
    /** By place that the rank keeps. */
    readonly laneBlocks: ReadonlyMap<number, number>,
    /** Ascending. */
    readonly held: readonly number[],
    readonly placeOf: (slot: number) => number,
  ) {
    let base = 0;
    for (const [place, blocks] of laneBlocks) {
      this.#bases.set(place, base);
      base += blocks * held.length;
    }
    this.numBlocks = Math.max(1, sum([...laneBlocks.values()]) * held.length);
  }

  /** The rank's number of a block of a slot's pool; NO_BLOCK where another rank has it. */
  local(slot: number, block: number): number {
    const place = this.placeOf(slot);
    const blocks = this.laneBlocks.get(place);
    if (blocks === undefined) return NO_BLOCK;
    const at = this.held.indexOf(Math.floor(block / blocks));
    return at < 0 ? NO_BLOCK : this.#bases.get(place)! + at * blocks + (block % blocks);
  }
}
