import { attentionMerge, type HeadTables } from '../../shaders/attention/attention_merge/index.js';
import { laneSources, sharedLanes } from '../../shaders/attention/attention_merge/lane_sources.js';
import type { PartialLayout } from '../../shaders/attention/share.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../../shaders/cache/kv_cache.js';
import { ceilDiv } from '../base/math.js';
import type { Exchange, Region, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape, Tensor } from '../gpu/index.js';
import type { RankShare } from '../placement/plan.js';
import { rowsOf } from './record_ranks.js';
import type { Role } from './roles.js';
import type { StageTopology } from './topology.js';
import type { World } from './world.js';

/** Attention's shape on a stage, whatever its kernels. */
export interface AttentionShape {
  /** Query heads of a rank's weight group. */
  readonly headsOf: (share: RankShare) => number;
  /** Elements from row to row of a weight group's queries. */
  readonly queryStrideOf: (share: RankShare) => number;
  /** Elements of a head's output. */
  readonly dim: number;
  /** Heads have lost entries, so that ranks differ in how many chunks a step has. */
  readonly uneven?: boolean;
  /** Tokens a sequence may have. */
  readonly contextLength: number;
  readonly chunkOffsets: Buffer;
}

/** Rows of a weight group that this rank attends for, over the chunks that it owns. */
export interface AttentionBlock {
  /** The rank whose queries these are; of several with the same, the one that sends them here. */
  readonly share: RankShare;
  readonly own: boolean;
  readonly heads: number;
  /** [rows][queryStride] f32. */
  readonly queries: Buffer;
  readonly queryStride: number;
  readonly rowInfo: Tensor;
  /** The step as this block's dispatches see it. */
  readonly stepOf: ((step: StepShape) => StepShape) | undefined;
  /** What attention of prompt rows writes, and attention of generated rows where one rank owns every chunk. */
  readonly partialO: Buffer;
  readonly partialMl: Buffer;
  /** Ranks where these rows go on: each needs the block's partials. */
  readonly homes: readonly number[];
}

/** How a stage's attention is spread over ranks, as a forward program records it. */
export interface StageAttention {
  readonly blocks: readonly AttentionBlock[];
  /** Chunks (generated rows) or merge lanes (prompt rows) that a row may have on this rank: the kernels' maxChunks or lanes. */
  readonly partials: number;
  readonly share: { readonly ranks: number; readonly index: number };
  /** How attention of prompt rows lays out a block's partials. */
  layoutOf(block: AttentionBlock): PartialLayout;
  /** Before the stage's first layer: which rows are this rank's. */
  recordRows(recorder: Recorder): void;
  /** Brings every block's queries here. */
  recordQueries(recorder: Recorder): void;
  /** What attention writes for a block. */
  target(block: AttentionBlock): { readonly partial_o: Buffer; readonly partial_ml: Buffer };
  /** After a block's attention of generated rows. `tables`: of a per-head cache. */
  recordLanes(recorder: Recorder, block: AttentionBlock, tables?: MergeTables): void;
  /** Everything home, merged into `out` (undefined on a rank that runs no rows of its own). `tables`: of a per-head cache. */
  recordMerge(recorder: Recorder, out: Buffer | undefined, outStride: number, tables?: MergeTables): void;
}

/** Tells a merge how many entries each head has. Only ranks that hold whole sequences have caches by head. */
export interface MergeTables {
  readonly perHead: HeadTables;
  readonly blockTable: Tensor;
}

/**
 * The partial attention states of a stage's rows on a rank: which blocks it attends for, and how queries and partials travel.
 *
 *   one rank owns every chunk: attention, merge
 *   several:                   [queries to the owners] attention over own chunks, [lanes merged,] partials home, merge
 */
export class AttentionRanks implements StageAttention {
  readonly blocks: readonly AttentionBlock[];
  /** Chunks (generated rows) or merge lanes (prompt rows) that a row may have on this rank: the kernels' maxChunks or lanes. */
  readonly partials: number;
  readonly share: { readonly ranks: number; readonly index: number };
  readonly role: Role;
  readonly rows: number;
  readonly #chunkPartials: { readonly o: Buffer; readonly ml: Buffer } | undefined;
  readonly #home: { readonly o: Buffer; readonly ml: Buffer; readonly sources: Buffer } | undefined;
  readonly #lanes: number;
  readonly #own: AttentionBlock;

  /** `scratch`: for what stages may share. */
  constructor(
    device: Device,
    readonly scratch: Pick<Device, 'createBuffer'>,
    readonly world: World,
    readonly stage: StageTopology,
    readonly shape: AttentionShape,
    rows: {
      readonly role: Role;
      readonly rows: number;
      readonly rowInfo: Buffer;
      readonly queries: Buffer;
    },
  ) {
    const { role } = rows;
    this.role = role;
    this.rows = rows.rows;
    const { ranks } = stage.sequence;
    this.share = stage.sequence;
    const chunks = ceilDiv(shape.contextLength, CHUNK_TOKENS);
    this.#lanes = ceilDiv(Math.min(MERGE_LANES, chunks), ranks);
    this.partials = role === 'prompt' ? this.#lanes : ceilDiv(chunks, ranks);
    this.blocks = this.#makeBlocks(rows);
    this.#own = this.blocks.find(({ own }) => own)!;
    const floats = (name: string, count: number): Buffer => scratch.createBuffer(`${role} ${name}`, count * 4);
    if (ranks > 1) {
      const { heads } = this.#own;
      const states = this.#lanes * rows.rows * heads;
      const sources = laneSources([sharedLanes({ ranks }, { base: 0, lanes: this.#lanes, states })], {
        rows: rows.rows,
        bundleHeads: heads,
      });
      this.#home = {
        o: floats('home o', ranks * states * shape.dim),
        ml: floats('home ml', ranks * states * 2),
        sources: filledBuffer(device, `${role} lane sources`, sources),
      };
      if (role === 'generated') {
        const most = Math.max(...this.blocks.map(({ heads }) => heads));
        const states = rows.rows * most * this.partials;
        this.#chunkPartials = { o: floats('chunk o', states * shape.dim), ml: floats('chunk ml', states * 2) };
      }
    }
  }

  #makeBlocks(rows: { role: Role; rows: number; rowInfo: Buffer; queries: Buffer }): AttentionBlock[] {
    const { scratch, stage, shape } = this;
    const { role } = rows;
    const split = role === 'prompt' && stage.rowBlocks > 1;
    const group = stage.groups[stage.group]!;
    const of = (share: RankShare, own: boolean, block: number, homes: readonly RankShare[]): AttentionBlock => {
      const heads = shape.headsOf(share);
      const queryStride = shape.queryStrideOf(share);
      const states = rows.rows * heads * (stage.sequence.ranks > 1 ? this.#lanes : this.partials);
      const floats = (name: string, count: number): Buffer =>
        scratch.createBuffer(`${role} ${name} of rank ${share.rank}`, count * 4);
      return {
        share,
        own,
        heads,
        queries: own ? rows.queries : floats('queries', rows.rows * queryStride),
        queryStride,
        rowInfo: split ? { buffer: rows.rowInfo, offset: block * rows.rows * 8, size: rows.rows * 8 } : rows.rowInfo,
        stepOf: split ? (step) => ({ ...step, rows: step.blocks![block]! }) : undefined,
        partialO: floats('partial o', states * shape.dim),
        partialMl: floats('partial ml', states * 2),
        homes: homes.map(({ rank }) => rank),
      };
    };
    if (split) return group.map((share, block) => of(share, share === stage.share, block, [share]));
    if (stage.attendsForAll) {
      return stage.groups.map((ranks, index) => of(stage.peers[index]!, index === stage.group, 0, ranks));
    }
    return [of(stage.share, true, 0, group)];
  }

  /** Rows of a block in this step. */
  #rowsOf(block: AttentionBlock, step: StepShape): number {
    return (block.stepOf ? block.stepOf(step) : step).rows;
  }

  /** Lanes that travel lie together. */
  layoutOf({ heads }: AttentionBlock): PartialLayout {
    return this.#home ? { bundleHeads: heads } : 'row';
  }

  recordRows(): void {
    // Rows are every rank's, or split by the host.
  }

  /** Brings every block's queries here: one hop, none where this rank attends for its own alone. */
  recordQueries(recorder: Recorder): void {
    if (this.blocks.length === 1) return;
    const own = this.#own;
    const others = this.blocks.filter((block) => block !== own);
    this.world.hop(recorder, 'queries', (step) => ({
      sends: others.map((block): Transfer => ({
        peer: block.share.rank,
        regions: [rowsOf(own.queries, own.queryStride, this.#rowsOf(own, step))],
      })),
      receives: others.map((block): Transfer => ({
        peer: block.share.rank,
        regions: [rowsOf(block.queries, block.queryStride, this.#rowsOf(block, step))],
      })),
    }));
  }

  /** What attention writes for a block: chunk partials that `recordLanes` merges, or the block's own. */
  target(block: AttentionBlock): { readonly partial_o: Buffer; readonly partial_ml: Buffer } {
    return this.#chunkPartials
      ? { partial_o: this.#chunkPartials.o, partial_ml: this.#chunkPartials.ml }
      : { partial_o: block.partialO, partial_ml: block.partialMl };
  }

  /** After a block's attention of generated rows: its chunks merged into lanes, where they travel. */
  recordLanes(recorder: Recorder, block: AttentionBlock): void {
    const { shape, rows, partials, share } = this;
    const chunks = this.#chunkPartials;
    if (chunks) recordChunkLanes(recorder, { chunks, shape, rows, partials, lanes: this.#lanes, share, block });
  }

  /** Sends every block's partials home, and merges this rank's own rows into `out`. */
  recordMerge(recorder: Recorder, out: Buffer | undefined, outStride: number, tables?: MergeTables): void {
    const { shape, rows } = this;
    const own = this.#own;
    const problem = { rows, heads: own.heads, headDim: shape.dim, outStride };
    if (!this.#home) {
      recorder.dispatch(
        attentionMerge,
        { ...problem, partials: this.partials, ...(tables && { perHead: tables.perHead }) },
        {
          partial_o: own.partialO,
          partial_ml: own.partialMl,
          row_info: own.rowInfo,
          block_table: tables?.blockTable,
          out,
        },
      );
      return;
    }
    this.world.hop(recorder, 'partials', (step) => this.#partialTransfers(step));
    recorder.dispatch(
      attentionMerge,
      { ...problem, mode: 'home' },
      {
        partial_o: this.#home.o,
        partial_ml: this.#home.ml,
        row_info: own.rowInfo,
        chunk_offsets: shape.chunkOffsets,
        sources: this.#home.sources,
        out,
      },
    );
  }

  #partialTransfers(step: StepShape): Omit<Exchange, 'label'> {
    const home = this.#home!;
    const ranks = this.share.ranks;
    // Lanes that no sequence of the step has reached yet stay where they are.
    const lanes = ceilDiv(Math.min(MERGE_LANES, step.chunks), ranks);
    const own = this.#own;
    return {
      sends: this.blocks.flatMap((block) =>
        block.homes.map((peer): Transfer => ({
          peer,
          regions: this.#laneRegions(block.partialO, block.partialMl, block.heads, 0, lanes, this.#rowsOf(block, step)),
        })),
      ),
      receives: this.stage.owners.map((peer, index): Transfer => ({
        peer,
        regions: this.#laneRegions(home.o, home.ml, own.heads, index * this.#lanes, lanes, this.#rowsOf(own, step)),
      })),
    };
  }

  #laneRegions(o: Buffer, ml: Buffer, heads: number, first: number, lanes: number, rows: number): Region[] {
    const of = (buffer: Buffer, width: number): Region[] => {
      const lane = this.rows * heads * width * 4;
      if (rows === this.rows) return [{ buffer, offset: first * lane, size: lanes * lane }];
      return Array.from({ length: lanes }, (_, k) => ({
        buffer,
        offset: (first + k) * lane,
        size: rows * heads * width * 4,
      }));
    };
    return [...of(o, this.shape.dim), ...of(ml, 2)];
  }
}

/** A buffer of a stage's own with contents that stay. */
export function filledBuffer(device: Device, label: string, data: Uint32Array<ArrayBuffer>): Buffer {
  const buffer = device.createBuffer(label, data.byteLength);
  device.write(buffer, 0, data);
  return buffer;
}

/** A block's chunks merged into the merge lanes that travel. */
export function recordChunkLanes(
  recorder: Recorder,
  {
    chunks,
    shape,
    rows,
    partials,
    lanes,
    share,
    block,
  }: {
    /** States of each chunk. */
    readonly chunks: { readonly o: Buffer; readonly ml: Buffer };
    readonly shape: Pick<AttentionShape, 'dim' | 'chunkOffsets'>;
    readonly rows: number;
    readonly partials: number;
    /** That the block's partials have room for. */
    readonly lanes: number;
    readonly share: { readonly ranks: number; readonly index: number };
    readonly block: AttentionBlock;
  },
): void {
  recorder.dispatch(
    attentionMerge,
    {
      mode: 'lanes',
      rows,
      heads: block.heads,
      headDim: shape.dim,
      partials,
      lanes,
      share,
    },
    {
      partial_o: chunks.o,
      partial_ml: chunks.ml,
      row_info: block.rowInfo,
      chunk_offsets: shape.chunkOffsets,
      out: block.partialO,
      out_ml: block.partialMl,
    },
    block.stepOf,
  );
}
