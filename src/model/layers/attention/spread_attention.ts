/**
 * Room: attention on the ranks of a stage, whatever the plan: queries go to who keeps chunks of their sequences,
 * states or outputs come back. gqa.ts and mla.ts are the two kinds, with their kernels. Read gqa.ts next.
 */

import { attentionMerge, type AttentionMergeProblem } from '../../../../shaders/attention/attention_merge/index.js';
import { laneSources } from '../../../../shaders/attention/attention_merge/lane_sources.js';
import type { Finish } from '../../../../shaders/attention/share.js';
import { MERGE_LANES } from '../../../../shaders/cache/kv_cache.js';
import { known } from '../../../base/errors.js';
import { nth } from '../../../base/lists.js';
import type { Region } from '../../../distributed/communicator.js';
import type { Buffer, RowsOf, Tensor } from '../../../gpu/index.js';
import { attentionRoutes, firstRowOf, laneRoom, queryRoutes, type Route } from '../../../placement/index.js';
import type { StageContext } from '../layer.js';
import { rowsOf as rowRegion } from '../linear/parts.js';
import { chunksOf } from '../roles.js';
import { ownRowInfo, runsRows, type StageRows } from '../rows.js';
import type { RankRecorder, RankStep } from '../world.js';
import {
  type AttentionShape,
  type Contribution,
  SpreadLayout,
  type StateLayout,
  stateRegions,
  type States,
} from './spread_layout.js';

/** Tells a merge how many entries each head has; of a per-head cache. */
export interface MergeTables {
  /** Of the model. */
  readonly layer: number;
  readonly problem: Pick<AttentionMergeProblem, 'perHead'>;
  readonly blockTable: Tensor;
}

/** What the kernels of a stage's attention work on: rows and heads, wherever they came from. */
export interface AttendedRows extends Pick<SpreadLayout, 'segments' | 'heads' | 'queryStride' | 'pieces'> {
  /** There is room for. */
  readonly rows: number;
  readonly rowInfo: Tensor;
  /** Rows of a step. */
  readonly rowsOf: RowsOf;
  /** f32 [pieces][rows][queryStride]. */
  readonly queries: Buffer;
}

interface OwnLanes {
  readonly states: States;
  readonly layout: StateLayout;
}

/**
 * How a stage's attention is spread over ranks: whose rows a rank attends for, over which chunks, and where the results go. All of it
 * follows from the plan's routes; one rank has none.
 *
 *   queries      to the ranks that keep chunks of their sequences
 *   attention    over own chunks
 *   merge        where one rank keeps all of a head's chunks: merged there, and outputs home
 *                else: chunks to merge lanes, lanes home, merged there in the order of the lanes
 */
export class SpreadAttention {
  readonly input: AttendedRows;
  /** Where this rank projects queries to; undefined where it keeps caches only. */
  readonly ownQueries: Exclude<Tensor, Buffer> | undefined;
  /** Chunks (generated rows) or merge lanes (prompt rows) that a row may have on this rank: the kernels' maxChunks or lanes. */
  readonly partials: number;
  /** How attention of prompt rows writes its states. */
  readonly layout: 'row' | { readonly bundleHeads: number };
  readonly #layout: SpreadLayout;
  readonly #queryRoutes: readonly Route[];
  readonly #attentionRoutes: readonly Route[];
  /** What attention writes. */
  readonly #written: States;
  /** Undefined where one rank has all chunks of a sequence. */
  readonly #own: OwnLanes | undefined;
  readonly #home: { readonly states: States; readonly contributions: readonly Contribution[] } | undefined;
  readonly #sources: Buffer | undefined;
  /** Outputs on their way home, a piece for each weight group, where they aren't written where they go on. */
  readonly #merged: Buffer | undefined;

  /** `whole`: copies of heads have whole sequences for now: a prompt that is compressed at its end. */
  constructor(
    readonly context: StageContext,
    readonly shape: AttentionShape,
    readonly stageRows: StageRows,
    whole = false,
  ) {
    const { device, world, topology: stage } = context;
    const { role, rows, attendedInfo, scratch } = stageRows;
    const layout = new SpreadLayout(world, stage, shape, { role, rows, whole });
    const { rowPieces, segments, heads, queryStride, pieces, partials, own, home } = layout;
    this.#layout = layout;
    this.#queryRoutes = queryRoutes(world.all, stage.index, role);
    this.#attentionRoutes = attentionRoutes(world.all, world.plan, stage.index, role, whole);
    const floats = (name: string, count: number): Buffer => scratch.createBuffer(`${role} ${name}`, count * 4);
    const states = (name: string, count: number): States => ({
      o: floats(`${name} o`, count * shape.dim),
      ml: floats(`${name} ml`, count * 2),
    });
    const runs = runsRows(stage);
    const attends = stage.attends[role];
    const queries = floats('queries', layout.queries);
    this.partials = partials;
    this.layout = own && layout.chunkStates === undefined ? { bundleHeads: layout.bundleHeads } : 'row';
    this.input = {
      rows: rowPieces * rows,
      rowInfo: attendedInfo,
      rowsOf:
        rowPieces > 1 ? (counts) => span(counts, rows) : (counts) => attends.reduce((sum, of) => sum + counts[of]!, 0),
      segments,
      heads,
      queries,
      queryStride,
      pieces,
    };
    const pieceBytes = rows * queryStride * 4;
    if (runs) {
      const { ownPiece } = layout;
      this.ownQueries =
        ownPiece === undefined
          ? { buffer: floats('own queries', rows * queryStride), offset: 0, size: pieceBytes }
          : { buffer: queries, offset: ownPiece * pieceBytes, size: pieceBytes };
    }
    this.#own = own && { states: states('lane', own.states), layout: own.layout };
    const { chunkStates } = layout;
    this.#written =
      this.#own && chunkStates === undefined
        ? this.#own.states
        : states(own ? 'chunk' : 'partial', known(chunkStates, 'number of states'));
    if (home) {
      const merged = home.states === undefined ? known(this.#own, 'lane').states : states('home', home.states);
      this.#home = { states: merged, contributions: home.contributions };
      const table = laneSources(layout.sources, {
        rows,
        bundleHeads: layout.bundleHeads,
        ...(stage.sharers !== undefined && { slots: stage.sharers }),
      });
      this.#sources = device.createBuffer(`${role} lane sources`, table.byteLength);
      device.write(this.#sources, 0, table);
    }
    this.#merged = layout.outputs === undefined ? undefined : floats('merged', layout.outputs);
  }

  /** This rank attends for its own rows, over whole sequences, and for no others: nothing travels but sums of segments. */
  get isLocal(): boolean {
    const { rank } = this.context.world;
    const travels = [...this.#queryRoutes, ...this.#attentionRoutes].some(
      ({ from, to }) => from !== to && (from === rank || to === rank),
    );
    return !travels && !this.#own && !this.#home && this.ownQueries !== undefined && this.input.pieces.length === 1;
  }

  /** Brings the queries here that this rank attends for. */
  recordQueries(recorder: RankRecorder): void {
    const { queries, queryStride } = this.input;
    this.context.world.exchangeRoutes(recorder, 'queries', this.#queryRoutes, ({ from, cargo }, side, step) => {
      if (cargo.kind !== 'queries') return [];
      const count = nth(step.rows, cargo.group);
      if (side === 'receive') {
        const first = this.#pieceOf(from) * this.stageRows.rows + this.#attendedFirst(cargo.group, step);
        return [rowRegion(queries, queryStride, count, first)];
      }
      const { buffer } = known(this.ownQueries, 'query of this rank');
      const first = (this.#layout.ownPiece ?? 0) * this.stageRows.rows + this.#ownFirst(cargo.group, step);
      return [rowRegion(buffer, queryStride, count, first)];
    });
  }

  /** The piece that queries of a rank's weight group are put in, and its outputs. */
  #pieceOf(of: number): number {
    const { attendsForAll, groups } = this.context.topology;
    return attendsForAll ? groups.findIndex((ranks) => ranks.some(({ rank }) => rank === of)) : 0;
  }

  #ownFirst(group: number, step: RankStep): number {
    return firstRowOf(group, this.context.topology.runs[this.stageRows.role], step.rows);
  }

  #attendedFirst(group: number, step: RankStep): number {
    if (this.#layout.rowPieces > 1) return group * this.stageRows.rows;
    return firstRowOf(group, this.context.topology.attends[this.stageRows.role], step.rows);
  }

  /**
   * Of generated rows, whose chunks are merged: which of them attention wrote. Lanes of prompt rows are all written, and read as far as
   * a row sees.
   */
  get #window(): Pick<AttentionMergeProblem, 'slidingWindow' | 'runs'> {
    const { slidingWindow, runs } = this.shape;
    if (runs && this.stageRows.role === 'prompt') return { runs };
    return this.stageRows.role === 'generated' && slidingWindow !== undefined ? { slidingWindow } : {};
  }

  get target(): { readonly partial_o: Buffer; readonly partial_ml: Buffer } {
    return { partial_o: this.#written.o, partial_ml: this.#written.ml };
  }

  /** Steps of one chunk are merged where they are attended to: on a software adapter, where nothing else merges and nothing travels. */
  get #finishes(): boolean {
    const { shape, input, context } = this;
    const isPacked = input.heads * shape.dim === shape.outStride;
    const isOwn = this.stageRows.role === 'generated' && this.isLocal && !context.cache.headTables;
    return isOwn && isPacked && context.device.traits.software;
  }

  /** Attention of generated rows, which `split` dispatches: to partials, which are merged, or, in steps of one chunk, to `out`. */
  recordSplit(
    recorder: RankRecorder,
    out: Buffer | undefined,
    split: (of: Finish, target: SpreadAttention['target']) => void,
  ): void {
    const { partials: maxChunks, target } = this;
    if (!this.#finishes || !out) return split({ maxChunks }, target);
    recorder.inSteps(isOne, () => split({ maxChunks: 1, finishes: true }, { ...target, partial_o: out }));
    if (maxChunks > 1) recorder.inSteps(isMore, () => split({ maxChunks }, target));
  }

  /** After attention: everything home, merged into `out` (undefined on a rank without weights). */
  recordMerge(recorder: RankRecorder, out: Buffer | undefined, tables?: MergeTables): void {
    if (this.#own) this.#recordLanes(recorder, this.#own, tables);
    if (this.#finishes && out) {
      if (this.partials > 1) recorder.inSteps(isMore, () => this.#recordOutputs(recorder, out, tables));
    } else if (!this.#own && !this.#home) this.#recordOutputs(recorder, out, tables);
    else {
      this.context.world.exchangeRoutes(
        recorder,
        this.context.topology.sharers === undefined ? 'copies' : 'partials',
        this.#attentionRoutes,
        (route, side, step) => this.#laneRegions(route, side, step, tables?.layer),
      );
      if (this.#home) this.#recordHome(recorder, this.#home.states, out, tables);
    }
  }

  /** This rank's chunks to lanes, or lanes to what they come to: prompt rows' are written as they travel where they aren't joined. */
  #recordLanes(recorder: RankRecorder, { states, layout }: OwnLanes, tables: MergeTables | undefined): void {
    if (this.stageRows.role === 'prompt' && !this.#layout.joins) return;
    const { lanes, bundleHeads } = layout;
    const share = this.context.topology.sequence;
    const to = { out: states.o, out_ml: states.ml };
    this.#recordPartials(recorder, { mode: 'lanes', lanes, bundleHeads, share }, to, tables);
  }

  /** A merge of what attention wrote here. */
  #recordPartials(
    recorder: RankRecorder,
    problem: Partial<AttentionMergeProblem>,
    to: { readonly out: Buffer | undefined; readonly out_ml?: Buffer },
    tables: MergeTables | undefined,
  ): void {
    const { input, partials, target } = this;
    const { rows, heads, rowInfo, rowsOf } = input;
    const own = { rows, heads, partials, ...problem, ...this.#window };
    this.#dispatch(recorder, own, { ...target, row_info: rowInfo, ...to }, tables, rowsOf);
  }

  #dispatch(
    recorder: RankRecorder,
    problem: Omit<AttentionMergeProblem, 'headDim'>,
    tensors: Readonly<Record<string, Tensor | undefined>>,
    tables: MergeTables | undefined,
    rowsOf?: RowsOf,
  ): void {
    recorder.dispatch(
      attentionMerge,
      { ...problem, headDim: this.shape.dim, ...tables?.problem },
      { ...tensors, chunk_offsets: this.context.cache.chunkOffsets, block_table: tables?.blockTable },
      rowsOf,
    );
  }

  /** `layer`: of the model, where heads have tables of their own. */
  #laneRegions({ from, to, cargo }: Route, side: 'send' | 'receive', step: RankStep, layer?: number): Region[] {
    if (cargo.kind !== 'lanes') return [];
    // A rank's own lie where they are merged.
    if (from === to && this.#home?.states === this.#own?.states) return [];
    const { dim, uneven, contextLength } = this.shape;
    const { headTables } = this.context.cache;
    const head = nth(cargo.heads, 0);
    const most = Math.min(MERGE_LANES, chunksOf(contextLength));
    const lanes =
      uneven && layer !== undefined && headTables
        ? Math.min(most, headTables.mostLanes(known(step.slots, 'slots'), layer, head, from))
        : laneRoom(cargo.lanes, Math.min(most, step.chunks), step.offsets?.[cargo.group]);
    // Another rank has all chunks of these rows.
    if (lanes === 0) return [];
    const rows = nth(step.rows, cargo.group);
    if (side === 'send') {
      const { states, layout } = known(this.#own, 'lane');
      const { segments } = this.input;
      const before = segments.slice(0, segments.indexOf(head));
      return stateRegions(states, dim, layout, {
        firstBundle: this.shape.headsOf(before) / layout.bundleHeads,
        bundles: this.shape.headsOf(cargo.heads) / layout.bundleHeads,
        lanes,
        firstRow: this.#attendedFirst(cargo.group, step),
        rows,
      });
    }
    const { states, contributions } = known(this.#home, 'home of lanes');
    const { layout, first, bundle } = known(
      contributions.find((own) => own.lanes.slots[0] === cargo.lanes.slots[0] && own.bundle.heads[0] === head),
      'room for these lanes',
    );
    return stateRegions(states, dim, layout, {
      firstBundle: first,
      bundles: this.shape.headsOf(bundle.heads) / layout.bundleHeads,
      lanes: Math.min(lanes, layout.lanes),
      firstRow: this.#ownFirst(cargo.group, step),
      rows,
    });
  }

  /** Lanes of all keepers, in order, to outputs. */
  #recordHome(recorder: RankRecorder, states: States, out: Buffer | undefined, tables: MergeTables | undefined): void {
    const { shape } = this;
    const { sharers, share } = this.context.topology;
    const problem = {
      mode: 'home',
      rows: this.stageRows.rows,
      heads: shape.headsOf(share.heads),
      bundleHeads: this.#layout.bundleHeads,
      ...(sharers !== undefined && { sharers }),
      ...(this.stageRows.role === 'prompt' && this.#window),
      outStride: shape.outStride,
    } as const;
    const info = ownRowInfo(this.context.world, this.stageRows);
    const tensors = { partial_o: states.o, partial_ml: states.ml, row_info: info, sources: this.#sources, out };
    this.#dispatch(recorder, problem, tensors, tables);
  }

  /** Merged where all chunks are; outputs to the rank that projects them. */
  #recordOutputs(recorder: RankRecorder, out: Buffer | undefined, tables: MergeTables | undefined): void {
    const { input, shape } = this;
    const merged = this.#merged ?? out;
    const pieces = input.pieces.length > 1 && { outPieces: input.pieces };
    this.#recordPartials(recorder, { outStride: shape.outStride, ...pieces }, { out: merged }, tables);
    this.context.world.exchangeRoutes(recorder, 'attended', this.#attentionRoutes, ({ to, cargo }, side, step) => {
      const count = nth(step.rows, cargo.group);
      if (side === 'receive')
        return [rowRegion(known(out, 'buffer of outputs'), shape.outStride, count, this.#ownFirst(cargo.group, step))];
      const first = this.#pieceOf(to) * this.stageRows.rows + this.#attendedFirst(cargo.group, step);
      return [rowRegion(known(merged, 'buffer of outputs'), shape.outStride, count, first)];
    });
  }
}

const isOne = (chunks: number): boolean => chunks === 1;
const isMore = (chunks: number): boolean => chunks > 1;

/** Rows up to the last of row groups that each have room for `room` rows. */
function span(counts: readonly number[], room: number): number {
  const last = counts.findLastIndex((count) => count > 0);
  return last < 0 ? 0 : last * room + nth(counts, last);
}
