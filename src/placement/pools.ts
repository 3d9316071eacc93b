import { CHUNK_TOKENS, KV_BLOCK, NO_BLOCK } from '../base/kv_units.js';
import { range, sum } from '../base/lists.js';
import { ceilDiv } from '../base/math.js';
import { localChunks, localChunksOfRun } from './owner.js';
import type { Owners } from './owners.js';
import { pipelineDepth, type Plan } from './plan.js';
import { planTopology } from './topology.js';

/** Steps that are submitted before the oldest one's ids are read, at most. */
export const MAX_STEPS_IN_FLIGHT = 8;

/** What layers with windows keep of a sequence: its last tokens, as many as the widest of their windows needs. */
export interface KeptWindow {
  /** Keys that a row sees, its own included. */
  readonly tokens: number;
  /** Tokens of a sequence that steps in flight may write, at most. */
  readonly step: number;
}

/** What decides whether layers with windows keep less than all tokens. */
export interface WindowOptions {
  readonly contextLength: number;
  /** Prompt rows of a step, at most. */
  readonly prefillChunk: number;
  readonly compressed?: boolean;
}

/**
 * What layers with windows keep; undefined where they keep all tokens: heads with tables of their own (compressed, or copied), windows
 * that the context doesn't exceed by more than a step.
 * @param windows by layer of the model; undefined: all keys are seen
 */
export function keptWindow(
  plan: Plan,
  windows: readonly (number | undefined)[],
  { contextLength, prefillChunk, compressed = false }: WindowOptions,
): KeptWindow | undefined {
  const cut = windows.filter((window) => window !== undefined && window < contextLength) as number[];
  if (cut.length === 0 || compressed || plan.sharing !== undefined) return undefined;
  const { places, rowGroups, stages } = planTopology(plan);
  const rows = Math.min(prefillChunk, contextLength);
  const split = places ? 1 : rowGroups.prompt;
  // Rows that are split over ranks are whole chunks of each.
  const chunk = split === 1 ? rows : split * Math.min(Math.max(rows, CHUNK_TOKENS), contextLength);
  const kept = { tokens: Math.max(...cut), step: Math.max(chunk * pipelineDepth(plan), MAX_STEPS_IN_FLIGHT) };
  const lanes = Math.max(...stages.map((stage) => stage.split));
  return windowBlocks(kept, lanes) < contextBlocks(contextLength, lanes) ? kept : undefined;
}

const CHUNK_BLOCKS = CHUNK_TOKENS / KV_BLOCK;

/** Blocks of each of `lanes` lanes that the longest sequence may take, wherever it begins. */
const contextBlocks = (contextLength: number, lanes: number): number =>
  Math.min(ceilDiv(contextLength, KV_BLOCK), localChunks(contextLength, lanes) * CHUNK_BLOCKS);

/** Blocks of each of `lanes` lanes that a sequence takes in layers with windows, wherever its window is. */
export function windowBlocks({ tokens, step }: KeptWindow, lanes: number): number {
  const run = tokens - 1 + step;
  /** That a run of so many tokens lies in, at most. */
  const touched = (unit: number): number => Math.floor((run - 2) / unit) + 2;
  return Math.min(touched(KV_BLOCK), localChunksOfRun(touched(CHUNK_TOKENS), lanes) * CHUNK_BLOCKS);
}

/**
 * The cache's blocks as pools: one for each place that sequences are dealt out to. A pool has as many lanes as ranks split a sequence,
 * each with as many blocks: lane l has blocks [l * n, (l + 1) * n), and a chunk takes them from the lane of its holder (`chunkOwner`). A
 * rank has the blocks of its lanes of the pools that it keeps, so numbers of the pool say where a block is on every rank, and nobody else
 * hands blocks out.
 *
 * Layers with windows have pools of their own beside these (`KeptWindow`), with fewer blocks and numbers of their own, cut alike.
 */
export class CachePools {
  /** Of every pool. */
  readonly lanes: number;

  /** `kvBlocks`: of all pools together; default: as many as every slot may need. */
  constructor(
    readonly owners: Owners,
    readonly contextLength: number,
    readonly kvBlocks?: number,
    /** Of layers with windows; default: they keep all tokens. */
    readonly window?: KeptWindow,
    /** Sequences whose windows there is room for, of all pools together; default: one for every slot. */
    readonly windows = owners.total,
  ) {
    this.lanes = owners.split;
  }

  /** Blocks of each lane of a place's pool: of the layers that keep all tokens, or of those with windows. */
  laneBlocks(place: number, of: PoolKind = 'all'): number {
    const { owners, lanes, contextLength, kvBlocks, window } = this;
    const slots = owners.placeSlots(place);
    if (slots === 0) return 0;
    if (of === 'window' && window) {
      const sequences = Math.min(slots, Math.ceil((this.windows * slots) / owners.total));
      return Math.min(windowBlocks(window, lanes) * sequences, this.laneBlocks(place));
    }
    const whole = contextBlocks(contextLength, lanes) * slots;
    if (kvBlocks === undefined) return Math.max(1, whole);
    const blocks = Math.ceil((kvBlocks * slots) / owners.total);
    // Whole chunks: the longest sequence may begin in any lane.
    const part = lanes === 1 ? blocks : ceilDiv(ceilDiv(blocks, CHUNK_BLOCKS), lanes) * CHUNK_BLOCKS;
    return Math.max(1, Math.min(whole, part));
  }

  poolBlocks(place: number, of: PoolKind = 'all'): number {
    return this.lanes * this.laneBlocks(place, of);
  }

  ofRank(rank: number, of: PoolKind = 'all'): RankBlocks {
    const { owners, lanes } = this;
    const held = range(0, lanes).filter((lane) => owners.holdsIndex(rank, lane, lanes));
    const places = owners.keptPlaces(rank);
    return new RankBlocks(lanes, new Map(places.map((place) => [place, this.laneBlocks(place, of)])), held, (slot) =>
      owners.placeOf(slot),
    );
  }
}

/** Blocks of a sequence in layers with windows, by the numbers of their pool: of its logical blocks first, first + 1, ... */
export interface BlockRun {
  readonly first: number;
  readonly blocks: readonly number[];
}

/** Whose blocks: of layers that keep all tokens, or of layers with windows. */
export type PoolKind = 'all' | 'window';

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
