import { usageError } from '../base/errors.js';
import { nth, range, sameList, sum } from '../base/lists.js';
import {
  cutsColumns,
  groupsAlike,
  isKvOnly,
  type Plan,
  planName,
  type RankShare,
  type Stage,
  type StageKind,
} from './plan.js';
import { dataPlaces, type Place, placeWeights, sequencePlaces } from './sequences/sequence_ranges.js';

/**
 * How the ranks of a plan work together: derived from the plan alone, once, alike on every rank; the runtime and the planner read it.
 *
 * Rows of a step come in row groups, which different ranks run or attend for: one group; or one for each replica of the weights that
 * prompt rows are split over, by the owner of their chunk; or one for each place that sequences are sharded over.
 */

/** A row's role, which decides its kernels (see model/layers/roles.ts). */
export type RowRole = 'prompt' | 'generated';

type WeightGroup = readonly [RankShare, ...RankShare[]];

export interface StageView {
  /** Of the plan. */
  readonly index: number;
  readonly stage: Stage;
  readonly kind: StageKind;
  /** Ranks with weights, in the order of the plan. */
  readonly holders: readonly RankShare[];
  /** Ranks of each weight group (equal heads, and but for `cutsColumns` MLP segments), groups in the order of their heads, replicas by their lanes. */
  readonly groups: readonly WeightGroup[];
  /** Of each weight group: the ranks that keep its heads' cache, place by place, by lanes. Ranks of a place keep the same sequences. */
  readonly places: readonly (readonly Place[])[];
  /** Shares of the sequences by place, alike in all weight groups. */
  readonly weights: readonly number[];
  /** Number of ranks that a sequence's chunks are split over. In a token plan a root without sequences is a place of another size. */
  readonly split: number;
  /** The same, of ranks that split every sequence alike; undefined where ranks hold heads freely: copies may share a head's lanes. */
  readonly sharers: number | undefined;
  /** Queries, keys and values travel normalised and rotated: to ranks that have no weights to do it with. */
  readonly sendsReady: boolean;
  /** A rank attends for the heads of all weight groups. */
  readonly attendsForAll: boolean;
  /** Where ranks run rows of their own: the ranks of each place, in the order of the plan. Otherwise all ranks with weights. */
  readonly placeRanks: readonly Place[];
  /** Replicas of a weight group have MLP segments of their own, and so all run every row. */
  readonly cutsColumns: boolean;
  /** Each routed expert is on one rank: of a place, or (`gathersExperts`) of all. */
  readonly spreadsExperts: boolean;
  /** No place has all MLP segments, so the rows of all places are gathered (where ranks run rows of their own). */
  readonly gathersMlp: boolean;
  /** The same for routed experts. */
  readonly gathersExperts: boolean;
  /** Replicas that prompt rows are split over, here and in every other stage; 1: every rank runs every row. */
  readonly rowSplit: number;
}

export interface StageTopology extends StageView {
  readonly share: RankShare;
  /** Its weight group, or its root's. */
  readonly group: number;
  /** Its place among the group's, and its number in it: the index that holds lanes (owner.ts). */
  readonly place: number;
  readonly sequence: { readonly ranks: number; readonly index: number };
  /** The rank with weights for which it attends: itself, or its root; the first root where it attends for all. */
  readonly holder: RankShare;
  /** It keeps the cache of some sequences: not a root that leaves all of them to others. */
  readonly keepsSome: boolean;
  /** True for a root whose own sequences aren't the first rows of a step: its queries need a second buffer. */
  readonly apart: boolean;
  /** The rank of each weight group that the holder adds segments up with, and those for segments of the MLP: mostly the same. */
  readonly peers: readonly RankShare[];
  readonly mlpPeers: readonly RankShare[];
  /** Row groups that the rank runs in this stage, by role; none for a KV-only rank. */
  readonly runs: Readonly<Record<RowRole, readonly number[]>>;
  readonly attends: Readonly<Record<RowRole, readonly number[]>>;
}

export interface RankTopology {
  readonly plan: Plan;
  readonly rank: number;
  /** By stage of the plan; undefined where the rank holds nothing. */
  readonly stages: readonly (StageTopology | undefined)[];
  /** The rank that samples; where ranks run rows of their own, the one of the rank's place. */
  readonly root: number;
  /** Where ranks run rows of their own: the place whose rows it runs. */
  readonly ownPlace: number | undefined;
  /** Row groups that the rank runs, in all stages of which it has weights. */
  readonly runs: Readonly<Record<RowRole, readonly number[]>>;
}

export interface PlanTopology {
  readonly stages: readonly StageView[];
  readonly ranks: readonly RankTopology[];
  /** Number of row groups. */
  readonly rowGroups: Readonly<Record<RowRole, number>>;
  /** Of these, those whose rows lie side by side, each with room of its own: prompt rows that are split over replicas. */
  readonly rowPieces: Readonly<Record<RowRole, number>>;
  /** Ranks that run rows of their own in one step, so that all rows are so many times a rank's: places, or 1. */
  readonly together: number;
  /** Every place runs the rows of its own sequences, and samples them. */
  readonly ownRows: boolean;
  /** Places that sequences are sharded over, with their shares; undefined where all ranks keep all. */
  readonly places: readonly number[] | undefined;
}

/** Ranks of a stage that run the same rows: those of a rank's place, or all that have weights. */
export const matesOf = ({ placeRanks }: Pick<StageView, 'placeRanks'>, { rank }: Pick<RankShare, 'rank'>): Place =>
  placeRanks.find((ranks) => ranks.some((share) => share.rank === rank))!;

/** Whether a stage's sequences are sharded over places, rather than all of them kept by all of its ranks. */
export const shardsSequences = ({ kind }: Pick<StageView, 'kind'>): boolean => kind === 'token' || kind === 'adp';

const byLane = (a: RankShare, b: RankShare): number => nth(a.lanes, 0) - nth(b.lanes, 0) || a.rank - b.rank;

function weightGroups(kind: StageKind, holders: readonly RankShare[]): WeightGroup[] {
  if (kind === 'arranged') return holders.toSorted((a, b) => a.rank - b.rank).map((share) => [share]);
  const byHead = holders.toSorted((a, b) => (a.heads[0] ?? 0) - (b.heads[0] ?? 0));
  const groups = groupsAlike(byHead, 'heads');
  // Where ranks run their own rows, in the order of the plan: places are alike.
  for (const group of groups) if (kind !== 'adp') group.sort(byLane);
  return groups;
}

function stageView(stage: Stage, index: number): StageView {
  const { shares, kind } = stage;
  const holders = shares.filter((share) => !isKvOnly(share));
  const [first] = holders as [RankShare];
  const groups = weightGroups(kind, holders);
  const placeRanks = kind === 'adp' ? dataPlaces(shares) : [holders];
  const keepers = (group: WeightGroup): readonly Place[] => {
    const [member] = group;
    if (kind === 'arranged') return [group];
    if (kind === 'adp') {
      const keeps = ({ kvHeads }: RankShare): boolean => sameList(kvHeads, member.kvHeads);
      return placeRanks.map((ranks) => ranks.filter(keeps).toSorted(byLane));
    }
    if (kind === 'token') return sequencePlaces(member, shares);
    return [shares.filter(({ kvHeads }) => sameList(kvHeads, member.kvHeads)).toSorted(byLane)];
  };
  const places = groups.map(keepers);
  const [own, replicas, other] = [nth(places, 0), nth(groups, 0).length, groups[1]];
  const split = Math.max(...own.map(({ length }) => length));
  // A latent has no heads to cut: whoever keeps it attends for all.
  const attendsForAll = other !== undefined && own.flat().includes(other[0]);
  const spreadsExperts = holders.some(({ experts }) => !sameList(experts, first.experts));
  const heldBy = (ranks: Place, key: 'mlp' | 'experts'): number => new Set(ranks.flatMap((share) => share[key])).size;
  const gathers = (key: 'mlp' | 'experts'): boolean =>
    placeRanks.some((ranks) => heldBy(ranks, key) < heldBy(holders, key));
  const ownColumns = kind !== 'arranged' && cutsColumns(nth(placeRanks, 0));
  const splitsRows = kind === 'tensor' && !attendsForAll && !spreadsExperts && !ownColumns;
  return {
    index,
    stage,
    kind,
    holders,
    groups,
    places,
    weights: own.length === 1 ? [1] : placeWeights(own),
    split,
    sharers: kind === 'arranged' ? undefined : split,
    sendsReady: kind === 'token',
    attendsForAll,
    placeRanks,
    cutsColumns: ownColumns,
    spreadsExperts,
    gathersMlp: gathers('mlp'),
    gathersExperts: gathers('experts'),
    rowSplit: splitsRows ? replicas : 1,
  };
}

function stageTopology(view: StageView, rank: number, rowGroups: PlanTopology['rowGroups']): StageTopology | undefined {
  const share = view.stage.shares.find((candidate) => candidate.rank === rank);
  if (!share) return undefined;
  const own = view.groups.findIndex((ranks) => ranks.includes(share));
  // A KV-only rank is of its root's group.
  const group = own >= 0 ? own : view.places.findIndex((places) => places.some((place) => place.includes(share)));
  const [replicas, places] = [nth(view.groups, group), nth(view.places, group)];
  const holder = own >= 0 ? share : replicas[0];
  const place = places.findIndex((members) => members.includes(share));
  const replica = replicas.indexOf(holder);
  const members = view.kind === 'arranged' ? [share] : nth(places, place);
  const peers = view.groups.map((ranks) => nth(ranks, replica));
  const runsOf = (role: RowRole): readonly number[] => {
    if (holder !== share) return [];
    if (view.kind === 'adp') return [place];
    return role === 'prompt' && view.rowSplit > 1 ? [replica] : range(0, rowGroups[role]);
  };
  const attendsOf = (role: RowRole): readonly number[] => (shardsSequences(view) ? [place] : range(0, rowGroups[role]));
  return {
    ...view,
    share,
    group,
    place,
    sequence: { ranks: members.length, index: members.indexOf(share) },
    holder,
    keepsSome: view.kind !== 'token' || nth(view.weights, place) > 0,
    apart: view.kind === 'token' && holder === share && place > 0,
    peers,
    mlpPeers: view.cutsColumns ? matesOf(view, holder) : peers,
    runs: { prompt: runsOf('prompt'), generated: runsOf('generated') },
    attends: { prompt: attendsOf('prompt'), generated: attendsOf('generated') },
  };
}

const known = new WeakMap<Plan, PlanTopology>();

/** The topology of a checked plan; derived once for each plan object. */
export function planTopology(plan: Plan): PlanTopology {
  const found = known.get(plan);
  if (found) return found;
  const alone = plan.stages.map(stageView);
  // Rows stay where they are from stage to stage, or aren't split at all.
  const { rowSplit: first } = nth(alone, 0);
  const rowSplit = alone.every((view) => view.rowSplit === first) ? first : 1;
  const views = alone.map((view) => ({ ...view, rowSplit }));
  const sharding = views.find(shardsSequences);
  const ownRows = sharding?.kind === 'adp';
  const places = sharding?.weights.length;
  const rowGroups = { prompt: places ?? rowSplit, generated: places ?? 1 };
  const placeOf = (rank: number): number | undefined => {
    if (!ownRows) return undefined;
    const placeRanks = views.find(({ stage }) => stage.shares.some((share) => share.rank === rank))?.placeRanks ?? [];
    return placeRanks.findIndex((ranks) => ranks.some((share) => share.rank === rank));
  };
  const ranks = range(0, plan.worldSize).map((rank): RankTopology => {
    const stages = views.map((view) => stageTopology(view, rank, rowGroups));
    const runs = stages.find((stage) => stage && stage.holder === stage.share)?.runs;
    const ownPlace = placeOf(rank);
    return {
      plan,
      rank,
      stages,
      root: plan.head.find((share) => ownPlace === undefined || placeOf(share.rank) === ownPlace)!.rank,
      ownPlace,
      runs: runs ?? { prompt: [], generated: [] },
    };
  });
  const topology = {
    stages: views,
    ranks,
    rowGroups,
    rowPieces: places === undefined ? rowGroups : { prompt: 1, generated: 1 },
    together: (ownRows && places) || 1,
    ownRows,
    places: sharding?.weights,
  };
  known.set(plan, topology);
  return topology;
}

/** @throws SplitkvError `usage` for a rank that the plan gives nothing to do. */
export function rankTopology(plan: Plan, rank: number): RankTopology {
  const topology = planTopology(plan).ranks[rank];
  if (!topology?.stages.some(Boolean)) {
    throw usageError(`the ${planName(plan)} gives rank ${rank} no layers: leave the rank out`);
  }
  return topology;
}

/** Where a row group begins among the rows of some groups that follow each other. */
export const firstRowOf = (group: number, groups: readonly number[], rows: readonly number[]): number =>
  sum(groups.slice(0, groups.indexOf(group)).map((before) => nth(rows, before)));
