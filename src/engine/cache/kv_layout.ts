import { nth, range } from '../../base/lists.js';
import { KV_BLOCK, NO_BLOCK } from '../../base/kv_units.js';
import { joinBytes } from '../../base/math.js';
import { layerWindows, type ModelConfig } from '../../model/config/model_config.js';
import { stateStrips, type Strip } from '../../model/layers/recurrent/states.js';
import { modelShape, runsOf } from '../../model/shape.js';
import type { CachePools, Owners } from '../../placement/index.js';
import type { HandedKv } from '../contracts/prefill_worker.js';
import type { CacheFacts, KeptPlaces, RankFacts } from '../contracts/rank.js';
import type { CachedBlock } from '../scheduler/prefix_cache.js';

/** What a block is kept in: of layers that see all tokens, of those with windows, and the states of recurrent layers behind it. */
export const KV_PARTS = ['all', 'window', 'state'] as const;
export type KvPart = (typeof KV_PARTS)[number];
/** What there is of a block, whatever the plan: [layer][cache buffer][kv head], or [layer] of whole states. */
export type KvBlock = Partial<Record<KvPart, Uint8Array<ArrayBuffer>>>;

/** A cache buffer of a rank: of which kv heads, and where each is in a part. */
interface OwnBuffer extends Pick<CacheFacts, 'isWindowed'> {
  readonly stage: number;
  readonly part: KvPart;
  readonly headBytes: number;
  readonly offsets: readonly number[];
}

/** A cache buffer of all ranks together. */
interface WholeBuffer {
  readonly layer: number;
  readonly part: KvPart;
  readonly at: number;
  readonly headBytes: number;
}

/** How blocks lie on the ranks of a plan, and how in what is kept of them, which knows of no plan. */
export class KvLayout {
  readonly bytes: Readonly<Record<KvPart, number>>;
  readonly #buffers: readonly WholeBuffer[];
  readonly #ranks: readonly {
    readonly buffers: readonly OwnBuffer[];
    readonly states: readonly (readonly Strip[])[];
  }[];
  readonly #kvHeads: number;
  /** Layers with windows have blocks of their own. */
  readonly hasWindowPool: boolean;
  /** Keys that a row of those layers sees. */
  readonly window: number;
  /** Blocks are shared whole: those of layers with windows must be there from the first one on. */
  readonly needsAllWindows: boolean;

  constructor(
    readonly owners: Owners,
    readonly pools: CachePools,
    config: ModelConfig,
    facts: readonly Pick<RankFacts, 'caches'>[],
  ) {
    const { stages } = owners.plan;
    const windows = layerWindows(config);
    this.#kvHeads = modelShape(config).kvHeads;
    this.hasWindowPool = pools.window !== undefined;
    this.window = pools.window?.tokens ?? Infinity;
    const bytes = { all: 0, window: 0, state: 0 };
    const partOf = (layer: number): KvPart => (windows[layer] === undefined ? 'all' : 'window');
    const stageOf = (layer: number): number =>
      stages.findIndex(({ layers: [first, end] }) => layer >= first && layer < end);
    const shareOf = (rank: number, stage: number) => nth(owners.topology.ranks, rank).stages[stage]!.share;
    const buffers: WholeBuffer[] = [];
    const bufferAt = new Map<string, WholeBuffer>();
    const stateAt = new Map<number, number>();
    for (const layer of range(0, config.layers.length)) {
      const state = stateStrips(nth(config.layers, layer).attention, []);
      if (state) {
        stateAt.set(layer, bytes.state);
        bytes.state += state.length * 4;
      }
      const rank = facts.findIndex(({ caches }) => caches.some((cache) => cache.layer === layer));
      const own = rank < 0 ? [] : nth(facts, rank).caches.filter((cache) => cache.layer === layer);
      const part = partOf(layer);
      for (const [index, { blockBytes }] of own.entries()) {
        const headBytes = blockBytes / shareOf(rank, stageOf(layer)).kvHeads.length;
        const whole = { layer, part, at: bytes[part], headBytes };
        bytes[part] += headBytes * this.#kvHeads;
        buffers.push(whole);
        bufferAt.set(`${layer}.${index}`, whole);
      }
    }
    this.bytes = bytes;
    this.#buffers = buffers;
    this.#ranks = facts.map(({ caches }, rank) => ({
      buffers: caches.map(({ layer, isWindowed }, index): OwnBuffer => {
        const stage = stageOf(layer);
        const number = index - caches.findIndex((cache) => cache.layer === layer);
        const { part, at, headBytes } = bufferAt.get(`${layer}.${number}`)!;
        const offsets = shareOf(rank, stage).kvHeads.map((head) => at + head * headBytes);
        return { stage, isWindowed, part, headBytes, offsets };
      }),
      states: nth(owners.topology.ranks, rank).stages.flatMap((stage) => {
        if (!stage) return [];
        return range(...stage.stage.layers).flatMap((layer) => {
          const state = stateStrips(nth(config.layers, layer).attention, runsOf(stage.share.heads));
          const base = stateAt.get(layer) ?? 0;
          return (state?.buffers ?? []).map((strips) =>
            strips.map(([at, length]): Strip => [base + at * 4, length * 4]),
          );
        });
      }),
    }));
    this.needsAllWindows = this.#ranks.some(({ buffers: own }) =>
      own.some(({ part, isWindowed }) => part === 'window' && !isWindowed),
    );
  }

  /** What ranks are asked for. */
  static places(blocks: readonly CachedBlock[]): KeptPlaces {
    const given = (of: 'window' | 'state'): number[] => blocks.flatMap(({ [of]: place }) => place ?? []);
    return { blocks: blocks.map(({ block }) => block), windows: given('window'), states: given('state') };
  }

  /** Puts together what ranks answered for `places` of these blocks. */
  join(slot: number, placed: readonly CachedBlock[], answers: readonly Uint8Array[]): KvBlock[] {
    const { bytes } = this;
    const blocks = placed.map(({ window, state }): KvBlock => ({
      all: new Uint8Array(bytes.all),
      ...(bytes.window > 0 &&
        (!this.hasWindowPool || window !== undefined) && { window: new Uint8Array(bytes.window) }),
      ...(bytes.state > 0 && state !== undefined && { state: new Uint8Array(bytes.state) }),
    }));
    for (const [rank, answer] of answers.entries()) {
      const { buffers, states } = nth(this.#ranks, rank);
      let next = 0;
      for (const { stage, part, isWindowed, headBytes, offsets } of buffers) {
        const kind = isWindowed ? 'window' : 'all';
        const own = this.pools.ofRank(rank, kind);
        for (const [index, { block, window }] of placed.entries()) {
          const number = isWindowed ? window : block;
          if (number === undefined || own.local(slot, number) === NO_BLOCK) continue;
          const lane = Math.floor(number / this.pools.laneBlocks(this.owners.placeOf(slot), kind));
          const isHeld = this.owners.holdsLane(rank, stage, slot, lane);
          for (const offset of offsets) {
            if (isHeld) nth(blocks, index)[part]?.set(answer.subarray(next, next + headBytes), offset);
            next += headBytes;
          }
        }
      }
      if (!this.owners.runs(rank, slot)) continue;
      for (const strips of states) {
        for (const { state } of blocks) {
          if (!state) continue;
          for (const [at, length] of strips) state.set(answer.subarray(next, (next += length)), at);
        }
      }
    }
    return blocks;
  }

  /** As ranks take over blocks from `first` on, which follow each other; the last one's state is the sequence's. */
  handed(first: number, blocks: readonly KvBlock[]): HandedKv {
    const end = first + blocks.length;
    const buffers = this.#buffers.map(({ part, at, headBytes }) => {
      const size = headBytes * this.#kvHeads;
      const all = new Uint8Array(size * blocks.length);
      for (const [index, { [part]: bytes }] of blocks.entries()) {
        if (bytes) all.set(bytes.subarray(at, at + size), index * size);
      }
      return all;
    });
    const layers = this.#buffers.map(({ layer }) => layer);
    return { tokens: end * KV_BLOCK, blocks: end, firstBlock: first, buffers, layers, state: blocks.at(-1)?.state };
  }

  /** What a rank that runs a sequence's rows has of its states. */
  statesOf(rank: number, state: Uint8Array): Uint8Array {
    return joinBytes(
      nth(this.#ranks, rank).states.flatMap((strips) => strips.map(([at, length]) => state.subarray(at, at + length))),
    );
  }
}
