import { attentionMerge } from '../../shaders/attention/attention_merge/index.js';
import { laneSources, sharedLanes } from '../../shaders/attention/attention_merge/lane_sources.js';
import type { PartialLayout } from '../../shaders/attention/share.js';
import { MERGE_LANES } from '../../shaders/cache/kv_cache.js';
import { ceilDiv } from '../base/math.js';
import type { Exchange, Region, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape } from '../gpu/index.js';
import { type RankShare, type RowRange, sequenceRanges } from '../placement/index.js';
import {
  type AttentionBlock,
  type AttentionShape,
  filledBuffer,
  type MergeTables,
  recordChunkLanes,
  type StageAttention,
} from './attention_ranks.js';
import { rowsOf } from './record_ranks.js';
import { chunksOf, type Role } from './roles.js';
import type { DealtSequences, StageTopology } from './topology.js';
import type { World } from './world.js';

interface States {
  readonly o: Buffer;
  readonly ml: Buffer;
}

interface Rows {
  readonly first: number;
  readonly count: number;
}

/**
 * Attention where sequences are dealt out to ranks (token parallelism): the root projects every row, each rank attends for the rows
 * of its sequences over its own cache, and what comes of it goes back to the root.
 *
 *   whole sequences:  queries to their ranks; attention and merge there; outputs to the root
 *   split by lanes:   queries to all ranks of a place; attention over own chunks, merged into lanes; lanes to the root, which merges
 *
 * Generated rows are slots, which places hold in runs; the rows of a prompt, or of tokens that are computed again, are all of one
 * sequence (`StepShape.blocks`: rows by place).
 */
export class DealtAttention implements StageAttention {
  readonly blocks: readonly AttentionBlock[];
  readonly partials: number;
  readonly share: { readonly ranks: number; readonly index: number };
  readonly #dealt: DealtSequences;
  readonly #ranges: readonly RowRange[];
  readonly #isRoot: boolean;
  readonly #queries: Buffer;
  readonly #queryStride: number;
  readonly #rowInfo: Buffer;
  readonly #allRowInfo: Buffer;
  /** On a rank without weights: outputs on their way to the root. */
  readonly #merged: Buffer | undefined;
  /** Lanes of a sequence on each rank that splits it. */
  readonly #lanes: number;
  /** Of split sequences, at the root: [rank of the place][lane][row][head]. */
  readonly #home: States | undefined;
  readonly #sources: Buffer | undefined;
  /** Of split sequences, for generated rows: what lanes are merged from. */
  readonly #chunkPartials: States | undefined;

  /** `scratch`: for what stages may share. */
  constructor(
    device: Device,
    scratch: Pick<Device, 'createBuffer'>,
    readonly world: World,
    stage: StageTopology,
    readonly shape: AttentionShape,
    readonly rows: {
      readonly role: Role;
      readonly rows: number;
      readonly rowInfo: Buffer;
      readonly queries: Buffer | undefined;
      readonly outStride: number;
    },
  ) {
    const dealt = stage.dealt!;
    const { role } = rows;
    this.#dealt = dealt;
    this.#ranges = sequenceRanges(dealt.weights, rows.rows);
    this.#isRoot = stage.share === dealt.root;
    this.share = stage.sequence;
    const chunks = chunksOf(shape.contextLength);
    const lanes = Math.min(MERGE_LANES, chunks);
    this.#lanes = ceilDiv(lanes, dealt.split);
    this.partials = ceilDiv(role === 'prompt' ? lanes : chunks, this.share.ranks);
    this.#queryStride = shape.queryStrideOf(dealt.root);
    const heads = shape.headsOf(dealt.root);
    const floats = (name: string, count: number): Buffer => scratch.createBuffer(`${role} ${name}`, count * 4);
    const states = (name: string, count: number): States => ({
      o: floats(`${name} o`, count * shape.dim),
      ml: floats(`${name} ml`, count * 2),
    });
    this.#queries = rows.queries ?? floats('queries', rows.rows * this.#queryStride);
    this.#allRowInfo = rows.rowInfo;
    // The root's rows come first, so its row_info is everybody's.
    this.#rowInfo = this.#isRoot ? rows.rowInfo : floats('own row_info', rows.rows * 2);
    const split = dealt.split > 1;
    this.#merged = this.#isRoot || split ? undefined : floats('merged', rows.rows * rows.outStride);
    this.#home = this.#isRoot && split ? states('home', dealt.split * this.#lanes * rows.rows * heads) : undefined;
    if (this.#home) {
      const lanes = sharedLanes(
        { ranks: dealt.split },
        { base: 0, lanes: this.#lanes, states: this.#lanes * rows.rows * heads },
      );
      const sources = laneSources([lanes], { rows: rows.rows, bundleHeads: heads });
      this.#sources = filledBuffer(device, `${role} lane sources`, sources);
    }
    // A root that keeps no sequence attends for none.
    const attends = dealt.weights[dealt.place]! > 0;
    const count = rows.rows * heads;
    const splitHere = this.share.ranks > 1;
    this.#chunkPartials = splitHere && role === 'generated' ? states('chunk', count * this.partials) : undefined;
    // The root's lanes are the first at home, where they stay.
    const partial =
      splitHere && this.#home
        ? this.#home
        : states('partial', attends ? count * (splitHere ? this.#lanes : this.partials) : 1);
    this.blocks = [
      {
        share: dealt.root,
        own: true,
        heads,
        queries: this.#queries,
        queryStride: this.#queryStride,
        rowInfo: this.#rowInfo,
        stepOf: (step) => ({ ...step, rows: this.#rowsOf(dealt.place, step).count }),
        partialO: partial.o,
        partialMl: partial.ml,
        homes: [dealt.root.rank],
      },
    ];
  }

  /** A place's rows among the root's. */
  #rowsOf(place: number, step: StepShape): Rows {
    if (step.blocks) return { first: 0, count: step.blocks[place]! };
    const [first, end] = this.#ranges[place]!;
    return { first, count: Math.max(0, Math.min(end, step.rows) - first) };
  }

  /**
   * Between the root and each rank that follows it, in one exchange: a place's rows, which are the first ones there. `index`: of the
   * rank in its place, as the root sees it; 0 where rows are the rank's own.
   */
  #hop(
    recorder: Recorder,
    label: string,
    toRoot: boolean,
    regionsOf: (rows: Rows, step: StepShape, index: number) => Region[],
  ): void {
    const { root, places, place } = this.#dealt;
    const isFollower = (member: RankShare): boolean => member !== root;
    this.world.hop(recorder, label, (step): Omit<Exchange, 'label'> => {
      const transfers = this.#isRoot
        ? places.flatMap((members, at) =>
            members.filter(isFollower).map((member): Transfer => ({
              peer: member.rank,
              regions: regionsOf(this.#rowsOf(at, step), step, members.indexOf(member)),
            })),
          )
        : [{ peer: root.rank, regions: regionsOf({ ...this.#rowsOf(place, step), first: 0 }, step, 0) }];
      return this.#isRoot === toRoot ? { sends: [], receives: transfers } : { sends: transfers, receives: [] };
    });
  }

  /** Lanes that travel lie together. */
  layoutOf({ heads }: AttentionBlock): PartialLayout {
    return this.share.ranks > 1 ? { bundleHeads: heads } : 'row';
  }

  recordRows(recorder: Recorder): void {
    if (this.#isRoot) return;
    this.world.hop(recorder, 'own rows', (step) => {
      const { first, count } = this.#rowsOf(this.#dealt.place, step);
      const peer = this.world.rank;
      return {
        sends: [{ peer, regions: [rowsOf(this.#allRowInfo, 2, count, first)] }],
        receives: [{ peer, regions: [rowsOf(this.#rowInfo, 2, count)] }],
      };
    });
  }

  recordQueries(recorder: Recorder): void {
    this.#hop(recorder, 'queries', false, ({ first, count }) => [
      rowsOf(this.#queries, this.#queryStride, count, first),
    ]);
  }

  target(block: AttentionBlock): { readonly partial_o: Buffer; readonly partial_ml: Buffer } {
    return this.#chunkPartials
      ? { partial_o: this.#chunkPartials.o, partial_ml: this.#chunkPartials.ml }
      : { partial_o: block.partialO, partial_ml: block.partialMl };
  }

  recordLanes(recorder: Recorder, block: AttentionBlock): void {
    // Where one rank has every chunk of its sequences nothing travels before the merge.
    const { shape, partials, share } = this;
    const lanes = this.#lanes;
    const chunks = this.#chunkPartials;
    if (chunks) recordChunkLanes(recorder, { chunks, shape, rows: this.rows.rows, partials, lanes, share, block });
  }

  recordMerge(recorder: Recorder, out: Buffer | undefined, outStride: number, tables?: MergeTables): void {
    if (this.#dealt.split > 1) this.#recordHome(recorder, out, outStride);
    else this.#recordOutputs(recorder, out, outStride, tables);
  }

  #recordOutputs(recorder: Recorder, out: Buffer | undefined, outStride: number, tables?: MergeTables): void {
    const { rows, shape } = this;
    const [block] = this.blocks;
    recorder.dispatch(
      attentionMerge,
      {
        rows: rows.rows,
        heads: block!.heads,
        headDim: shape.dim,
        partials: this.partials,
        outStride,
        ...(tables && { perHead: tables.perHead }),
      },
      {
        partial_o: block!.partialO,
        partial_ml: block!.partialMl,
        row_info: this.#rowInfo,
        block_table: tables?.blockTable,
        out: this.#merged ?? out,
      },
      block!.stepOf,
    );
    this.#hop(recorder, 'attended', true, ({ first, count }) => [
      rowsOf(this.#merged ?? out!, outStride, count, first),
    ]);
  }

  /** Lanes of split sequences meet at the root, each at its row, and one dispatch merges the rows of every place. */
  #recordHome(recorder: Recorder, out: Buffer | undefined, outStride: number): void {
    const { rows, shape } = this;
    const [block] = this.blocks;
    const states = this.#home ?? { o: block!.partialO, ml: block!.partialMl };
    this.#hop(recorder, 'partials', true, (of, step, index) =>
      this.#laneRegions(states, index * this.#lanes, of, step),
    );
    if (!this.#home) return;
    recorder.dispatch(
      attentionMerge,
      {
        mode: 'home',
        rows: rows.rows,
        heads: block!.heads,
        headDim: shape.dim,
        outStride,
      },
      {
        partial_o: this.#home.o,
        partial_ml: this.#home.ml,
        row_info: this.#allRowInfo,
        chunk_offsets: shape.chunkOffsets,
        sources: this.#sources,
        out,
      },
    );
  }

  /** Rows of the lanes from `firstLane` on that the step's sequences have reached. */
  #laneRegions({ o, ml }: States, firstLane: number, { first, count }: Rows, step: StepShape): Region[] {
    const lanes = Math.min(this.#lanes, ceilDiv(Math.min(MERGE_LANES, step.chunks), this.#dealt.split));
    const { heads } = this.blocks[0]!;
    const of = (buffer: Buffer, width: number): Region[] => {
      const row = heads * width * 4;
      const lane = this.rows.rows * row;
      if (count === this.rows.rows) return [{ buffer, offset: firstLane * lane, size: lanes * lane }];
      return Array.from({ length: lanes }, (_, k) => ({
        buffer,
        offset: (firstLane + k) * lane + first * row,
        size: count * row,
      }));
    };
    return [...of(o, this.shape.dim), ...of(ml, 2)];
  }
}
