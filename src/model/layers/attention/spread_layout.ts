import { type LaneContributor } from '../../../../shaders/attention/attention_merge/lane_sources.js';
import { localChunks, localLanes } from '../../../../shaders/attention/share.js';
import type { Runs } from '../../../../shaders/attention/window.js';
import { MERGE_LANES } from '../../../../shaders/cache/kv_cache.js';
import { known } from '../../../base/errors.js';
import { joinsLanes } from '../../../base/kv_units.js';
import { nth, range, sum } from '../../../base/lists.js';
import { gcd } from '../../../base/math.js';
import type { Region } from '../../../distributed/communicator.js';
import type { Buffer } from '../../../gpu/index.js';
import {
  headsBeside,
  bundlesOf,
  type HeadBundle,
  type LaneSlots,
  laneRoom,
  type StageTopology,
  usualPlace,
} from '../../../placement/index.js';
import { chunksOf, queryStride, type Role } from '../roles.js';
import { runsRows } from '../rows.js';
import type { World } from '../world.js';

export interface AttentionShape {
  /** Query heads of attention segments. */
  readonly headsOf: (segments: readonly number[]) => number;
  /** Elements from row to row of the queries of attention segments. */
  readonly queryStrideOf: (segments: readonly number[]) => number;
  /** Elements of a head's output. */
  readonly dim: number;
  /** Elements from row to row of the outputs. */
  readonly outStride: number;
  /** Heads have lost entries, so that ranks differ in how many chunks a step has, and copies may come to have any lanes. */
  readonly uneven: boolean;
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /** Of the keys that a row sees; all before it where left out. */
  readonly slidingWindow?: number;
  /** Of prompt rows: some see keys behind them. */
  readonly runs?: Runs;
}

export interface SpreadRows {
  readonly role: Role;
  /** There is room for, of a row group. */
  readonly rows: number;
  /** Copies of heads have whole sequences for now: a prompt that is compressed at its end. */
  readonly whole: boolean;
}

/** Attention states that aren't merged yet: o, and (m, l), f32. */
export interface States {
  readonly o: Buffer;
  readonly ml: Buffer;
}

/**
 * Where lane states of some query heads lie in a buffer: [bundle][lanes][rows][bundleHeads], a bundle being heads that travel together.
 */
export interface StateLayout {
  /** The first state, counted in states. */
  readonly base: number;
  readonly bundles: number;
  readonly bundleHeads: number;
  /** There is room for. */
  readonly lanes: number;
  readonly rows: number;
}

const stateCount = ({ bundles, bundleHeads, lanes, rows }: Omit<StateLayout, 'base'>): number =>
  bundles * bundleHeads * lanes * rows;

/** Lane states that come to this rank of one keeper, of one bundle. */
export interface Contribution {
  readonly bundle: HeadBundle;
  readonly lanes: LaneSlots;
  readonly layout: StateLayout;
  /** The bundle's first in the layout, of `bundleHeads` heads each. */
  readonly first: number;
}

const keeperOn = (rank: number, { keepers }: HeadBundle): HeadBundle['keepers'][number] | undefined =>
  keepers.find((keeper) => keeper.rank === rank);

/** What a rank's attention of a stage works in: pure, so that it is known before there is a device. */
export class SpreadLayout {
  /** Row groups side by side in the attended rows, each with room of its own. */
  readonly rowPieces: number;
  /** The piece of the attended rows that this rank's own queries are put in; undefined where they have a buffer of their own. */
  readonly ownPiece: number | undefined;
  /** Attention segments that are attended for, and query heads of each weight group's. */
  readonly segments: readonly number[];
  readonly pieces: readonly number[];
  readonly heads: number;
  readonly queryStride: number;
  /** f32 elements of all queries. */
  readonly queries: number;
  /** Chunks (generated rows) or merge lanes (prompt rows) that a row may have on this rank: the kernels' maxChunks or lanes. */
  readonly partials: number;
  /** Neighbouring heads whose lanes travel together. */
  readonly bundleHeads: number;
  /** This rank's lanes come to one state. */
  readonly joins: boolean;
  /** States that attention writes: of chunks, or of lanes that are merged; undefined: `own` lanes. */
  readonly chunkStates: number | undefined;
  /** Lanes of this rank's chunks, with room for those of others behind them where they are merged in place. Undefined: one rank has all. */
  readonly own: { readonly states: number; readonly layout: StateLayout } | undefined;
  /** Lanes that are merged here, `states` of them in a buffer of their own unless they lie in place. Undefined: one rank has all. */
  readonly home: { readonly states: number | undefined; readonly contributions: readonly Contribution[] } | undefined;
  /** By bundle of `bundleHeads` heads: where the lanes lie that are merged to its output. */
  readonly sources: readonly (readonly LaneContributor[])[];

  constructor(
    readonly world: World,
    readonly stage: StageTopology,
    readonly shape: AttentionShape,
    readonly spread: SpreadRows,
  ) {
    const { role, rows } = spread;
    const { sequence, keepsSome } = stage;
    const rowPieces = world.all.rowPieces[role];
    const groups = headsBeside(stage);
    this.rowPieces = rowPieces;
    this.ownPiece = this.#ownPiece;
    this.segments = groups.flat();
    this.pieces = groups.map((own) => shape.headsOf(own));
    this.heads = sum(this.pieces);
    this.queryStride = queryStride(groups, shape.queryStrideOf);
    this.queries = Math.max(this.pieces.length, rowPieces) * rows * this.queryStride;

    const crossing = this.#crossing;
    const byLanes = crossing.length > 0;
    const chunks = chunksOf(shape.contextLength);
    const lanes = Math.min(MERGE_LANES, chunks);
    const holes = stage.sharers === undefined && byLanes;
    const ownLanes = holes
      ? Math.max(
          ...crossing.map((bundle) => this.#laneRoom(known(keeperOn(world.rank, bundle), 'lane here').lanes, lanes)),
        )
      : localLanes(chunks, sequence);
    this.partials = role === 'prompt' ? ownLanes : localChunks(chunks, sequence);
    this.bundleHeads = holes ? this.heads / this.segments.length : this.pieces.reduce(gcd);
    const attendedRows = keepsSome ? rowPieces * rows : 1;
    this.joins = joinsLanes(sequence.ranks);
    const states = this.joins ? 1 : ownLanes;
    const layout = sequence.ranks > 1 || holes ? this.#room(this.segments, states, 0, attendedRows) : undefined;
    const travels = layout && role === 'prompt' && !this.joins;
    this.chunkStates = travels ? undefined : attendedRows * this.heads * this.partials;

    const inPlace = rowPieces === 1 && keepsSome && !stage.apart ? layout : undefined;
    const merged = this.#merged(crossing, lanes, inPlace);
    const { contributions } = merged;
    this.own = layout && { states: inPlace && byLanes ? merged.states : stateCount(layout), layout };
    this.home = byLanes ? { states: inPlace ? undefined : merged.states, contributions } : undefined;
    this.sources = crossing.flatMap((bundle) => this.#sourcesOf(bundle, contributions));
  }

  /** f32 elements of outputs on their way home, a piece for each weight group; undefined where they are written where they go on. */
  get outputs(): number | undefined {
    const { length } = this.pieces;
    return this.own || (this.#runs && length === 1) ? undefined : length * this.spread.rows * this.shape.outStride;
  }

  /** f32 elements of the largest buffer. */
  get largest(): number {
    const states = Math.max(this.chunkStates ?? 0, this.own?.states ?? 0, this.home?.states ?? 0);
    return Math.max(this.queries, this.outputs ?? 0, states * this.shape.dim);
  }

  get #runs(): boolean {
    return runsRows(this.stage);
  }

  /** Bundles whose lanes are merged from several ranks'. */
  get #crossing(): readonly HeadBundle[] {
    const { world, stage, spread } = this;
    const bundles = this.#runs ? bundlesOf(world.plan, stage, usualPlace(stage), spread.whole) : [];
    return bundles.some(({ keepers }) => keepers.length > 1) ? bundles : [];
  }

  get #ownPiece(): number | undefined {
    const { apart, runs, attendsForAll, group } = this.stage;
    if (apart) return undefined;
    if (this.rowPieces > 1) return nth(runs[this.spread.role], 0);
    return attendsForAll ? group : 0;
  }

  /** Room for lanes of some attention segments, from state `base` on. */
  #room(segments: readonly number[], lanes: number, base: number, rows = this.spread.rows): StateLayout {
    const { bundleHeads } = this;
    return { base, bundles: this.shape.headsOf(segments) / bundleHeads, bundleHeads, lanes, rows };
  }

  /** Lanes of `most` that there must be room for of a keeper. */
  #laneRoom(lanes: LaneSlots, most: number): number {
    return this.shape.uneven && this.stage.sharers === undefined ? most : laneRoom(lanes, most);
  }

  /**
   * What is merged here: this rank's lanes, then those of the other keepers of the bundles whose home it is.
   * @param most merge lanes that a row may have
   * @param inPlace where this rank's lie, if they are merged there and those of others behind them
   */
  #merged(crossing: readonly HeadBundle[], most: number, inPlace: StateLayout | undefined) {
    const { rank } = this.world;
    const contributions: Contribution[] = [];
    let states = inPlace ? stateCount(inPlace) : 0;
    const add = (bundle: HeadBundle, { lanes }: HeadBundle['keepers'][number]): void => {
      const layout = this.#room(bundle.heads, this.#laneRoom(lanes, most), states);
      contributions.push({ bundle, lanes, layout, first: 0 });
      states += stateCount(layout);
    };
    for (const bundle of crossing) {
      const mine = keeperOn(rank, bundle);
      if (!mine) continue;
      if (!inPlace) add(bundle, mine);
      else {
        const before = this.segments.slice(0, this.segments.indexOf(nth(bundle.heads, 0)));
        const first = this.shape.headsOf(before) / this.bundleHeads;
        contributions.push({ bundle, lanes: mine.lanes, layout: inPlace, first });
      }
    }
    for (const bundle of crossing) {
      if (bundle.home === rank) for (const other of bundle.keepers) if (other.rank !== rank) add(bundle, other);
    }
    return { states, contributions };
  }

  #sourcesOf(bundle: HeadBundle, contributions: readonly Contribution[]): LaneContributor[][] {
    const own = contributions.filter((contribution) => contribution.bundle === bundle);
    const placesOf = (lanes: LaneSlots): readonly number[] => {
      // Elsewhere than at its home a copied head's output lacks lanes, and isn't used.
      if (bundle.home !== this.world.rank) return range(0, lanes.of);
      if (this.stage.sharers !== undefined) return lanes.slots;
      return [bundle.keepers.findIndex((keeper) => keeper.lanes === lanes)];
    };
    return range(0, this.shape.headsOf(bundle.heads) / this.bundleHeads).map((at) =>
      own.map(({ lanes, layout, first }) => ({
        slots: placesOf(lanes),
        base: layout.base + (first + at) * layout.lanes * layout.rows * this.bundleHeads,
        lanes: layout.lanes,
      })),
    );
  }
}

/** Bytes of `rows` rows from `firstRow` on, of the first `lanes` lanes of some bundles; `dim`: elements of o. */
export function stateRegions(
  { o, ml }: States,
  dim: number,
  layout: StateLayout,
  part: {
    readonly firstBundle: number;
    readonly bundles: number;
    readonly lanes: number;
    readonly firstRow: number;
    readonly rows: number;
  },
): Region[] {
  const { base, bundleHeads, lanes: room } = layout;
  const { firstBundle, bundles, lanes, firstRow, rows } = part;
  const run = (bundle: number, lane: number, count: number) => ({
    first: base + ((bundle * room + lane) * layout.rows + firstRow) * bundleHeads,
    count: count * bundleHeads,
  });
  const all = range(firstBundle, firstBundle + bundles);
  const whole = rows === layout.rows;
  const runs =
    whole && lanes === room
      ? [run(firstBundle, 0, bundles * room * rows)]
      : whole
        ? all.map((bundle) => run(bundle, 0, lanes * rows))
        : all.flatMap((bundle) => range(0, lanes).map((lane) => run(bundle, lane, rows)));
  const of = (buffer: Buffer, width: number): Region[] =>
    runs.map(({ first, count }) => ({ buffer, offset: first * width * 4, size: count * width * 4 }));
  return [...of(o, dim), ...of(ml, 2)];
}
