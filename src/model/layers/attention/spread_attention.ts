import { attentionMerge, type HeadTables } from '../../../../shaders/attention/attention_merge/index.js';
import { type LaneContributor, laneSources } from '../../../../shaders/attention/attention_merge/lane_sources.js';
import { MERGE_LANES } from '../../../../shaders/cache/kv_cache.js';
import { ceilDiv } from '../../../base/math.js';
import type { Region } from '../../../distributed/communicator.js';
import type { Buffer, Device, RowsOf, Tensor } from '../../../gpu/index.js';
import {
  attendedGroups,
  attentionRoutes,
  bundlesOf,
  firstRowOf,
  type HeadBundle,
  laneRoom,
  queryRoutes,
  type Route,
  type StageTopology,
} from '../../../placement/index.js';
import { stateCount, type StateLayout, stateRegions, type States } from './lane_states.js';
import { rowsOf as rowRegion } from '../linear/parts.js';
import { chunksOf, queryStride, type Role } from '../roles.js';
import { ownRowInfo, rowBlocks } from '../stage_rows.js';
import type { RankRecorder, RankStep, World } from '../world.js';

/** Attention's shape on a stage, whatever its kernels. */
export interface AttentionShape {
  /** Query heads of attention segments. */
  readonly headsOf: (segments: readonly number[]) => number;
  /** Elements from row to row of the queries of attention segments. */
  readonly queryStrideOf: (segments: readonly number[]) => number;
  /** Elements of a head's output. */
  readonly dim: number;
  /** Elements from row to row of the outputs. */
  readonly outStride: number;
  /** Heads have lost entries, so that ranks differ in how many chunks a step has. */
  readonly uneven: boolean;
  /** Tokens a sequence may have. */
  readonly contextLength: number;
  readonly chunkOffsets: Buffer;
}

/** The rows that a rank runs, or attends for. */
export interface AttentionRows {
  readonly role: Role;
  /** There is room for, of a row group. */
  readonly rows: number;
  /** vec2<u32> [row groups with room of their own][rows] */
  readonly rowInfo: Buffer;
  /** Copies of heads have whole sequences for now: a prompt that is compressed at its end. */
  readonly whole?: boolean;
}

/** Tells a merge how many entries each head has; of a per-head cache. */
export interface MergeTables {
  readonly perHead: HeadTables;
  readonly blockTable: Tensor;
}

/** What the kernels of a stage's attention work on: rows and heads, wherever they came from. */
export interface AttendedRows {
  /** There is room for. */
  readonly rows: number;
  readonly rowInfo: Tensor;
  /** Rows of a step. */
  readonly rowsOf: RowsOf;
  /** Attention segments. */
  readonly segments: readonly number[];
  readonly heads: number;
  /** f32 [pieces][rows][queryStride]; `pieces`: query heads of each. */
  readonly queries: Buffer;
  readonly queryStride: number;
  readonly pieces: readonly number[];
}

/** Lane states that come to this rank of one keeper, of one bundle. */
interface Contribution {
  readonly bundle: HeadBundle;
  readonly rank: number;
  readonly lanes: readonly number[];
  readonly layout: StateLayout;
  /** The bundle's first in the layout, of `bundleHeads` heads each. */
  readonly first: number;
}

/** Room for the lane states of another rank, of one bundle. */
interface Guest {
  readonly bundle: HeadBundle;
  readonly keeper: HeadBundle['keepers'][number];
  readonly layout: Omit<StateLayout, 'base'>;
}

const ALL_SLOTS: readonly number[] = Array.from({ length: MERGE_LANES }, (_, slot) => slot);

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

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
  readonly ownQueries: Tensor | undefined;
  /** Chunks (generated rows) or merge lanes (prompt rows) that a row may have on this rank: the kernels' maxChunks or lanes. */
  readonly partials: number;
  /** Of each sequence's chunks, that this rank keeps. */
  readonly share: { readonly ranks: number; readonly index: number };
  /** How attention of prompt rows writes its states. */
  readonly layout: 'row' | { readonly bundleHeads: number };
  /** Queries travel as they are attended to: normalised and rotated, with keys and values likewise. */
  readonly sendsReady: boolean;
  readonly #stage: StageTopology;
  readonly #role: Role;
  readonly #rows: number;
  readonly #ownRowInfo: Tensor;
  readonly #allRowInfo: Buffer;
  /** Row groups side by side in the attended rows, each with room of its own. */
  readonly #rowPieces: number;
  readonly #ownPiece: number;
  readonly #chunkStates: States;
  /** Undefined where one rank has all chunks of a sequence. */
  readonly #own: { readonly states: States; readonly layout: StateLayout } | undefined;
  readonly #home: { readonly states: States; readonly contributions: readonly Contribution[] } | undefined;
  readonly #sources: Buffer | undefined;
  /** On a rank without weights: outputs on their way home. */
  readonly #merged: Buffer | undefined;
  readonly #whole: boolean;

  /** `scratch`: for what stages may share. */
  constructor(
    readonly device: Device,
    scratch: Pick<Device, 'createBuffer'>,
    readonly world: World,
    stage: StageTopology,
    readonly shape: AttentionShape,
    { role, rows, rowInfo, whole = false }: AttentionRows,
  ) {
    const { plan } = world;
    this.#stage = stage;
    this.#role = role;
    this.#rows = rows;
    this.#whole = whole;
    this.#allRowInfo = rowInfo;
    const floats = (name: string, count: number): Buffer => scratch.createBuffer(`${role} ${name}`, count * 4);
    const states = (name: string, count: number): States => ({
      o: floats(`${name} o`, count * shape.dim),
      ml: floats(`${name} ml`, count * 2),
    });
    const runs = stage.holder === stage.share;
    const attends = stage.attends[role];
    this.#rowPieces = rowBlocks(world, role);
    this.sendsReady = stage.kind === 'token';
    const ownPiece = this.#rowPieces > 1 ? stage.runs[role][0]! : stage.attendsForAll ? stage.group : 0;

    // What is attended to.
    const groups = attendedGroups(stage).map((group) => stage.groups[group]![0]!.heads);
    const segments = groups.flat();
    const pieces = groups.map((heads) => shape.headsOf(heads));
    const stride = queryStride(groups, shape.queryStrideOf);
    const queries = floats('queries', Math.max(pieces.length, this.#rowPieces) * rows * stride);
    const blocks = this.#rowPieces;
    this.#ownRowInfo = ownRowInfo(world, { role, rowInfo, rows });
    this.input = {
      rows: blocks * rows,
      // A place's rows are the first ones on a rank without weights; those of a root's own place are its first, too.
      rowInfo: runs ? rowInfo : floats('own row_info', rows * 2),
      rowsOf:
        blocks > 1 ? (counts) => span(counts, rows) : (counts) => attends.reduce((sum, of) => sum + counts[of]!, 0),
      segments,
      heads: pieces.reduce((sum, heads) => sum + heads, 0),
      queries,
      queryStride: stride,
      pieces,
    };
    this.#ownPiece = ownPiece;
    const pieceBytes = rows * stride * 4;
    this.ownQueries = runs ? { buffer: queries, offset: ownPiece * pieceBytes, size: pieceBytes } : undefined;

    // What comes of it.
    // Places of a token plan are alike, but perhaps a root's that keeps no sequence.
    const group =
      stage.kind === 'token'
        ? stage.places[stage.group]!.findIndex(({ length }) => length === stage.split)
        : (stage.runs[role][0] ?? 0);
    const bundles = runs ? bundlesOf(plan, stage, group, whole) : [];
    const byLanes = bundles.some(({ keepers }) => keepers.length > 1);
    const holes = stage.kind === 'arranged' && byLanes;
    this.share = stage.sequence;
    const chunks = chunksOf(shape.contextLength);
    const lanes = Math.min(MERGE_LANES, chunks);
    const states8 = this.share.ranks > 1 || holes;
    const ownLanes = holes
      ? Math.max(
          ...bundles.map(({ keepers }) => laneRoom(keepers.find(({ rank }) => rank === world.rank)!.lanes, lanes)),
        )
      : ceilDiv(lanes, this.share.ranks);
    this.partials = role === 'prompt' ? ownLanes : ceilDiv(chunks, this.share.ranks);
    const { heads } = this.input;
    const bundleHeads = holes ? heads / segments.length : pieces.reduce(gcd);
    this.layout = states8 ? { bundleHeads } : 'row';
    const keeps = stage.kind !== 'token' || stage.weights[stage.place]! > 0;
    const attendedRows = keeps ? this.input.rows : 1;
    const guests = byLanes ? this.#guests(bundles, bundleHeads, lanes) : [];
    const inPlace = states8 && blocks === 1 && keeps;
    if (states8) {
      const layout = { base: 0, bundles: heads / bundleHeads, bundleHeads, lanes: ownLanes, rows: attendedRows };
      const room = stateCount(layout) + (inPlace ? guests.reduce((sum, { layout: of }) => sum + stateCount(of), 0) : 0);
      this.#own = { states: states('lane', room), layout };
      this.#chunkStates =
        role === 'generated' ? states('chunk', attendedRows * heads * this.partials) : this.#own.states;
    } else {
      this.#chunkStates = states('partial', attendedRows * heads * this.partials);
    }
    if (byLanes) {
      const { contributions, count } = this.#contributions(bundles, guests, inPlace ? this.#own!.layout : undefined);
      this.#home = { states: inPlace ? this.#own!.states : states('home', count), contributions };
      const table = laneSources(
        bundles.flatMap((bundle) => this.#contributorsOf(bundle, contributions, bundleHeads)),
        { rows, bundleHeads },
      );
      this.#sources = device.createBuffer(`${role} lane sources`, table.byteLength);
      device.write(this.#sources, 0, table);
    }
    this.#merged = runs || states8 ? undefined : floats('merged', rows * shape.outStride);
  }

  /** Room for the lane states of other ranks, by bundle and keeper. */
  #guests(bundles: readonly HeadBundle[], bundleHeads: number, lanes: number): Guest[] {
    return bundles.flatMap((bundle) =>
      bundle.home !== this.world.rank
        ? []
        : bundle.keepers
            .filter(({ rank }) => rank !== this.world.rank)
            .map((keeper) => ({
              bundle,
              keeper,
              layout: {
                bundles: this.shape.headsOf(bundle.heads) / bundleHeads,
                bundleHeads,
                lanes: laneRoom(keeper.lanes, lanes),
                rows: this.#rows,
              },
            })),
    );
  }

  #contributions(
    bundles: readonly HeadBundle[],
    guests: readonly Guest[],
    own: StateLayout | undefined,
  ): { readonly contributions: Contribution[]; readonly count: number } {
    const { rank } = this.world;
    const contributions: Contribution[] = [];
    let count = own ? stateCount(own) : 0;
    const lanes = Math.min(MERGE_LANES, chunksOf(this.shape.contextLength));
    for (const bundle of bundles) {
      const mine = bundle.keepers.find((keeper) => keeper.rank === rank);
      if (!mine) continue;
      if (own) {
        contributions.push({ bundle, rank, lanes: mine.lanes, layout: own, first: this.#firstBundle(bundle.heads) });
        continue;
      }
      const { bundleHeads } = this.#own!.layout;
      const layout = {
        base: count,
        bundles: this.shape.headsOf(bundle.heads) / bundleHeads,
        bundleHeads,
        lanes: laneRoom(mine.lanes, lanes),
        rows: this.#rows,
      };
      contributions.push({ bundle, rank, lanes: mine.lanes, layout, first: 0 });
      count += stateCount(layout);
    }
    for (const { bundle, keeper, layout } of guests) {
      contributions.push({
        bundle,
        rank: keeper.rank,
        lanes: keeper.lanes,
        layout: { ...layout, base: count },
        first: 0,
      });
      count += stateCount(layout);
    }
    return { contributions, count };
  }

  /** Where the lanes of a bundle's heads lie, `bundleHeads` of them at a time. */
  #contributorsOf(
    bundle: HeadBundle,
    contributions: readonly Contribution[],
    bundleHeads: number,
  ): LaneContributor[][] {
    const own = contributions.filter((contribution) => contribution.bundle === bundle);
    const isHome = bundle.home === this.world.rank;
    return Array.from({ length: this.shape.headsOf(bundle.heads) / bundleHeads }, (_, at) =>
      own.map(({ lanes, layout, first }) => ({
        // Elsewhere than at its home a copied head's output lacks lanes, and isn't used.
        mask: (isHome ? lanes : ALL_SLOTS).reduce((mask, slot) => mask | (1 << slot), 0),
        base: layout.base + (first + at) * layout.lanes * layout.rows * bundleHeads,
        lanes: layout.lanes,
      })),
    );
  }

  /** Of some segments' heads among those that are attended for, counted in bundles. */
  #firstBundle(segments: readonly number[]): number {
    const before = this.input.segments.slice(0, this.input.segments.indexOf(segments[0]!));
    return this.shape.headsOf(before) / this.#own!.layout.bundleHeads;
  }

  /** Before the stage's first layer, on a rank without weights: which of the step's rows are its own. */
  recordRows(recorder: RankRecorder): void {
    const { rowInfo } = this.input;
    if (rowInfo === this.#allRowInfo) return;
    const from = this.#allRowInfo.gpu;
    const to = (rowInfo as Buffer).gpu;
    const { place } = this.#stage;
    recorder.hop({
      label: 'own rows',
      copy: (encoder, { rows }) => {
        const first = firstRowOf(place, [...rows.keys()], rows);
        if (rows[place]! > 0) encoder.copyBufferToBuffer(from, first * 8, to, 0, rows[place]! * 8);
      },
    });
  }

  /** Brings the queries here that this rank attends for. */
  recordQueries(recorder: RankRecorder): void {
    const { queries, queryStride } = this.input;
    const { index } = this.#stage;
    const routes = queryRoutes(this.world.all, index, this.#role);
    this.world.exchangeRoutes(recorder, 'queries', routes, ({ from, cargo }, side, step) => {
      if (cargo.kind !== 'queries') return [];
      const first =
        side === 'send'
          ? this.#ownPiece * this.#rows + this.#ownFirst(cargo.group, step)
          : this.#pieceOf(from) * this.#rows + this.#attendedFirst(cargo.group, step);
      return [rowRegion(queries, queryStride, step.rows[cargo.group]!, first)];
    });
  }

  /** The piece that queries of a rank's weight group are put in. */
  #pieceOf(from: number): number {
    const { attendsForAll, groups } = this.#stage;
    return attendsForAll ? groups.findIndex((ranks) => ranks.some(({ rank }) => rank === from)) : 0;
  }

  /** Where a row group begins among the rows that this rank runs. */
  #ownFirst(group: number, step: RankStep): number {
    return firstRowOf(group, this.#stage.runs[this.#role], step.rows);
  }

  /** Where a row group begins among the rows that this rank attends for. */
  #attendedFirst(group: number, step: RankStep): number {
    if (this.#rowPieces > 1) return group * this.#rows;
    return firstRowOf(group, this.#stage.attends[this.#role], step.rows);
  }

  /** What attention writes. */
  get target(): { readonly partial_o: Buffer; readonly partial_ml: Buffer } {
    return { partial_o: this.#chunkStates.o, partial_ml: this.#chunkStates.ml };
  }

  /** After attention: everything home, merged into `out` (undefined on a rank without weights). */
  recordMerge(recorder: RankRecorder, out: Buffer | undefined, tables?: MergeTables): void {
    if (this.#own) this.#recordLanes(recorder, tables);
    const routes = attentionRoutes(this.world.all, this.world.plan, this.#stage.index, this.#role, this.#whole);
    if (!this.#own && !this.#home) this.#recordOutputs(recorder, routes, out, tables);
    else {
      this.world.exchangeRoutes(
        recorder,
        this.#stage.kind === 'arranged' ? 'copies' : 'partials',
        routes,
        (route, side, step) => this.#laneRegions(route, side, step),
      );
      if (this.#home) this.#recordHome(recorder, out, tables);
    }
  }

  /** Generated rows: this rank's chunks to lanes. */
  #recordLanes(recorder: RankRecorder, tables: MergeTables | undefined): void {
    if (this.#role === 'prompt') return;
    const { input, shape, partials } = this;
    const { states, layout } = this.#own!;
    recorder.dispatch(
      attentionMerge,
      {
        mode: 'lanes',
        rows: input.rows,
        heads: input.heads,
        headDim: shape.dim,
        partials,
        lanes: layout.lanes,
        bundleHeads: layout.bundleHeads,
        share: this.share,
        ...(tables && { perHead: tables.perHead }),
      },
      {
        ...this.target,
        row_info: input.rowInfo,
        chunk_offsets: shape.chunkOffsets,
        block_table: tables?.blockTable,
        out: states.o,
        out_ml: states.ml,
      },
      input.rowsOf,
    );
  }

  #laneRegions({ from, to, cargo }: Route, side: 'send' | 'receive', step: RankStep): Region[] {
    if (cargo.kind !== 'lanes') return [];
    // A rank's own lie where they are merged.
    if (from === to && this.#home?.states === this.#own?.states) return [];
    const { dim, uneven, contextLength } = this.shape;
    const most = Math.min(MERGE_LANES, chunksOf(contextLength));
    const lanes = laneRoom(cargo.lanes, uneven ? most : Math.min(most, step.chunks));
    const rows = step.rows[cargo.group]!;
    if (side === 'send') {
      const { states, layout } = this.#own!;
      return stateRegions(states, dim, layout, {
        firstBundle: this.#firstBundle(cargo.heads),
        bundles: this.shape.headsOf(cargo.heads) / layout.bundleHeads,
        lanes,
        firstRow: this.#attendedFirst(cargo.group, step),
        rows,
      });
    }
    const { states, contributions } = this.#home!;
    const { layout, first, bundle } = contributions.find(
      (own) => own.lanes[0] === cargo.lanes[0] && own.bundle.heads[0] === cargo.heads[0],
    )!;
    return stateRegions(states, dim, layout, {
      firstBundle: first,
      bundles: this.shape.headsOf(bundle.heads) / layout.bundleHeads,
      lanes: Math.min(lanes, layout.lanes),
      firstRow: this.#ownFirst(cargo.group, step),
      rows,
    });
  }

  /** Lanes of all keepers, in order, to outputs. */
  #recordHome(recorder: RankRecorder, out: Buffer | undefined, tables: MergeTables | undefined): void {
    const { shape } = this;
    const { states } = this.#home!;
    const { heads } = this.#stage.share;
    recorder.dispatch(
      attentionMerge,
      {
        mode: 'home',
        rows: this.#rows,
        heads: shape.headsOf(heads),
        headDim: shape.dim,
        bundleHeads: this.#bundleHeads,
        outStride: shape.outStride,
        ...(tables && { perHead: tables.perHead }),
      },
      {
        partial_o: states.o,
        partial_ml: states.ml,
        row_info: this.#ownRowInfo,
        chunk_offsets: shape.chunkOffsets,
        block_table: tables?.blockTable,
        sources: this.#sources,
        out,
      },
    );
  }

  get #bundleHeads(): number {
    return this.#home!.contributions[0]!.layout.bundleHeads;
  }

  /** Merged where all chunks are; outputs to the rank that projects them. */
  #recordOutputs(
    recorder: RankRecorder,
    routes: readonly Route[],
    out: Buffer | undefined,
    tables: MergeTables | undefined,
  ): void {
    const { input, shape } = this;
    const target = this.#merged ?? out;
    recorder.dispatch(
      attentionMerge,
      {
        rows: input.rows,
        heads: input.heads,
        headDim: shape.dim,
        partials: this.partials,
        outStride: shape.outStride,
        ...(tables && { perHead: tables.perHead }),
      },
      {
        ...this.target,
        row_info: input.rowInfo,
        block_table: tables?.blockTable,
        out: target,
      },
      input.rowsOf,
    );
    this.world.exchangeRoutes(recorder, 'attended', routes, ({ cargo }, side, step) => [
      rowRegion(
        target!,
        shape.outStride,
        step.rows[cargo.group]!,
        side === 'receive' ? this.#ownFirst(cargo.group, step) : this.#attendedFirst(cargo.group, step),
      ),
    ]);
  }
}

/** Elements that a prompt row takes of the largest buffer that a stage's attention works in. */
export function stateFloats(world: World, stage: StageTopology, shape: AttentionShape, chunks: number): number {
  const lanes = Math.min(MERGE_LANES, chunks);
  const groups = attendedGroups(stage).map((group) => stage.groups[group]![0]!.heads);
  const heads = groups.reduce((sum, own) => sum + shape.headsOf(own), 0);
  const rowPieces = rowBlocks(world, 'prompt');
  const queries = queryStride(groups, shape.queryStrideOf) * Math.max(groups.length, rowPieces);
  // Own lanes, and those of all keepers where they are merged.
  const group = stage.places[stage.group]!.findIndex(({ length }) => length === stage.split);
  const home = bundlesOf(world.plan, stage, group)
    .flatMap(({ heads: own, keepers }) => keepers.map((keeper) => shape.headsOf(own) * laneRoom(keeper.lanes, lanes)))
    .reduce((sum, states) => sum + states, 0);
  const own = heads * ceilDiv(lanes, stage.kind === 'arranged' ? 1 : stage.sequence.ranks) * rowPieces;
  return Math.max(queries, (own + home) * shape.dim);
}

/** Rows up to the last of row groups that each have room for `room` rows. */
function span(counts: readonly number[], room: number): number {
  const last = counts.findLastIndex((count) => count > 0);
  return last < 0 ? 0 : last * room + counts[last]!;
}
