import { type LaneContributor } from '../../../../shaders/attention/attention_merge/lane_sources.js';
import { localChunks, localLanes } from '../../../../shaders/attention/share.js';
import { MERGE_LANES } from '../../../../shaders/cache/kv_cache.js';
import { nth, range } from '../../../base/lists.js';
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
import type { World } from '../world.js';

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
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /** Of the keys that a row sees; all before it where left out. */
  readonly slidingWindow?: number;
}

/** The rows that a rank runs, or attends for. */
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
  readonly rank: number;
  readonly lanes: LaneSlots;
  readonly layout: StateLayout;
  /** The bundle's first in the layout, of `bundleHeads` heads each. */
  readonly first: number;
}

/** What a rank's attention of a stage works in: pure, so that it is known before there is a device. */
export interface SpreadLayout {
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
  /** f32 elements of outputs on their way home, a piece for each weight group; undefined where they are written where they go on. */
  readonly outputs: number | undefined;
  /** Chunks (generated rows) or merge lanes (prompt rows) that a row may have on this rank: the kernels' maxChunks or lanes. */
  readonly partials: number;
  /** Neighbouring heads whose lanes travel together. */
  readonly bundleHeads: number;
  /** States that attention writes; undefined where it writes `own` lanes. */
  readonly chunkStates: number | undefined;
  /** Lanes of this rank's chunks, with room for those of others behind them where they are merged in place. Undefined: one rank has all. */
  readonly own: { readonly states: number; readonly layout: StateLayout } | undefined;
  /** Lanes that are merged here, `states` of them in a buffer of their own unless they lie in place. Undefined: one rank has all. */
  readonly home: { readonly states: number | undefined; readonly contributions: readonly Contribution[] } | undefined;
  /** By bundle of `bundleHeads` heads: where the lanes lie that are merged to its output. */
  readonly sources: readonly (readonly LaneContributor[])[];
  /** f32 elements of the largest buffer. */
  readonly largest: number;
}

const keeperOn = (rank: number, { keepers }: HeadBundle): HeadBundle['keepers'][number] | undefined =>
  keepers.find((keeper) => keeper.rank === rank);

export function spreadLayout(
  world: World,
  stage: StageTopology,
  shape: AttentionShape,
  spread: SpreadRows,
): SpreadLayout {
  const { plan, rank } = world;
  const { role, rows, whole } = spread;
  const runs = stage.holder === stage.share;
  const rowPieces = world.all.rowPieces[role];
  const bundles = runs ? bundlesOf(plan, stage, usualPlace(stage), whole) : [];
  const byLanes = bundles.some(({ keepers }) => keepers.length > 1);
  const crossing = byLanes ? bundles : [];
  const attended = attendedHere(stage, shape, rows, rowPieces);
  const written = writtenHere(rank, stage, shape, spread, rowPieces, attended, crossing);
  const { partials, bundleHeads, layout, inPlace, chunkStates } = written;
  const merged = mergedHere(rank, shape, attended, written, crossing);
  const own = layout && { states: inPlace && byLanes ? merged.states : stateCount(layout), layout };
  const home = byLanes
    ? { states: inPlace ? undefined : merged.states, contributions: merged.contributions }
    : undefined;
  const states = Math.max(chunkStates ?? 0, own?.states ?? 0, home?.states ?? 0);
  const { pieces, queries } = attended;
  const outputs = own || (runs && pieces.length === 1) ? undefined : pieces.length * rows * shape.outStride;
  return {
    rowPieces,
    ownPiece: ownPieceOf(stage, role, rowPieces),
    ...attended,
    outputs,
    partials,
    bundleHeads,
    chunkStates,
    own,
    home,
    sources: merged.sources,
    largest: Math.max(queries, outputs ?? 0, states * shape.dim),
  };
}

function ownPieceOf(stage: StageTopology, role: Role, rowPieces: number): number | undefined {
  if (stage.apart) return undefined;
  if (rowPieces > 1) return nth(stage.runs[role], 0);
  return stage.attendsForAll ? stage.group : 0;
}

type Attended = Pick<SpreadLayout, 'segments' | 'pieces' | 'heads' | 'queryStride' | 'queries'>;

/** What this rank attends to: queries of the heads of each weight group that it attends for. */
function attendedHere(stage: StageTopology, shape: AttentionShape, rows: number, rowPieces: number): Attended {
  const groups = headsBeside(stage);
  const pieces = groups.map((own) => shape.headsOf(own));
  const stride = queryStride(groups, shape.queryStrideOf);
  return {
    segments: groups.flat(),
    pieces,
    heads: pieces.reduce((sum, own) => sum + own, 0),
    queryStride: stride,
    queries: Math.max(pieces.length, rowPieces) * rows * stride,
  };
}

/** What attention writes: states of chunks, or of merge lanes where a row's cache is on several ranks. */
interface Written extends Pick<SpreadLayout, 'partials' | 'bundleHeads' | 'chunkStates'> {
  /** Merge lanes that a row may have. */
  readonly lanes: number;
  /** This rank's lanes; undefined where it has all of them. */
  readonly layout: StateLayout | undefined;
  /** They are merged where they lie, and those of others behind them. */
  readonly inPlace: boolean;
  /** Room for lanes of these attention segments, from state `base` on. */
  readonly room: (segments: readonly number[], lanes: number, base: number, rows?: number) => StateLayout;
}

/** @param crossing bundles whose lanes are merged from several ranks' */
function writtenHere(
  rank: number,
  stage: StageTopology,
  { headsOf, contextLength }: AttentionShape,
  { role, rows }: SpreadRows,
  rowPieces: number,
  { segments, pieces, heads }: Attended,
  crossing: readonly HeadBundle[],
): Written {
  const chunks = chunksOf(contextLength);
  const lanes = Math.min(MERGE_LANES, chunks);
  const holes = stage.sharers === undefined && crossing.length > 0;
  const ownLanes = holes
    ? Math.max(...crossing.map((bundle) => laneRoom(keeperOn(rank, bundle)!.lanes, lanes)))
    : localLanes(chunks, stage.sequence);
  const partials = role === 'prompt' ? ownLanes : localChunks(chunks, stage.sequence);
  const bundleHeads = holes ? heads / segments.length : pieces.reduce(gcd);
  const attendedRows = stage.keepsSome ? rowPieces * rows : 1;
  const room: Written['room'] = (of, lanesOf, base, rowsOf = rows) => ({
    base,
    bundles: headsOf(of) / bundleHeads,
    bundleHeads,
    lanes: lanesOf,
    rows: rowsOf,
  });
  const layout = stage.sequence.ranks > 1 || holes ? room(segments, ownLanes, 0, attendedRows) : undefined;
  return {
    lanes,
    partials,
    bundleHeads,
    layout,
    inPlace: layout !== undefined && rowPieces === 1 && stage.keepsSome && !stage.apart,
    chunkStates: layout && role === 'prompt' ? undefined : attendedRows * heads * partials,
    room,
  };
}

/** What is merged here: this rank's lanes, then those of the other keepers of the bundles whose home it is. */
function mergedHere(
  rank: number,
  { headsOf }: AttentionShape,
  { segments }: Attended,
  { lanes, bundleHeads, layout, inPlace, room }: Written,
  crossing: readonly HeadBundle[],
): Pick<SpreadLayout, 'sources'> & { readonly states: number; readonly contributions: readonly Contribution[] } {
  const contributions: Contribution[] = [];
  let states = inPlace ? stateCount(layout!) : 0;
  const add = (bundle: HeadBundle, { rank: from, lanes: slots }: HeadBundle['keepers'][number]): void => {
    const of = room(bundle.heads, laneRoom(slots, lanes), states);
    contributions.push({ bundle, rank: from, lanes: slots, layout: of, first: 0 });
    states += stateCount(of);
  };
  for (const bundle of crossing) {
    const mine = keeperOn(rank, bundle);
    if (!mine) continue;
    if (!inPlace) add(bundle, mine);
    else {
      const before = segments.slice(0, segments.indexOf(nth(bundle.heads, 0)));
      const first = headsOf(before) / bundleHeads;
      contributions.push({ bundle, rank, lanes: mine.lanes, layout: layout!, first });
    }
  }
  for (const bundle of crossing) {
    if (bundle.home === rank) for (const other of bundle.keepers) if (other.rank !== rank) add(bundle, other);
  }
  const sources = crossing.flatMap((bundle) => {
    const own = contributions.filter((contribution) => contribution.bundle === bundle);
    return Array.from({ length: headsOf(bundle.heads) / bundleHeads }, (_, at) =>
      own.map(({ lanes: slots, layout: of, first }) => ({
        // Elsewhere than at its home a copied head's output lacks lanes, and isn't used.
        slots: bundle.home === rank ? slots.slots : range(0, slots.of),
        base: of.base + (first + at) * of.lanes * of.rows * bundleHeads,
        lanes: of.lanes,
      })),
    );
  });
  return { states, contributions, sources };
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
