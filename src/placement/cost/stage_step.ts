import { sameList } from '../lists.js';
import { laneSplit, MERGE_LANES } from '../owner.js';
import { isKvOnly, type Plan, type RankShare, type Stage } from '../plan.js';
import { type Place, placeWeights, sequencePlaces } from '../sequence_ranges.js';
import type { StepRows } from './work.js';

/** How the ranks of a checked stage work together. */
interface StageView {
  readonly stage: Stage;
  /** Those with weights. */
  readonly holders: readonly RankShare[];
  /** Where sequences are dealt out: of some kv heads each, the places that they are dealt out to, the root's first. */
  readonly dealt: readonly (readonly Place[])[];
  /** Ranks of a place, which split its sequences; 1 elsewhere. */
  readonly placeSplit: number;
  /** Ranks with weights and those that only attend wait for each other, and may work on other sequences meanwhile. */
  readonly takesTurns: boolean;
  /** Every rank runs the rows of its own sequences, and MLP segments or experts of all rows. */
  readonly runsOwnRows: boolean;
  /** MLP segments are cut over the ranks. */
  readonly cutsMlp: boolean;
  /** Replicas of each weight group. */
  readonly groups: readonly (readonly RankShare[])[];
  readonly replicas: number;
  /** Ways the cache is split along the sequence. */
  readonly split: number;
  /** Every rank attends for all weight groups' heads, so queries travel between groups. */
  readonly attendsForAll: boolean;
  readonly spreadsExperts: boolean;
  /** Replicas that prompt rows may be split over; 1 where every rank runs every row. */
  readonly rowSplit: number;
}

/** Rows of a step as one stage's ranks see them. */
export interface StageStep extends StageView {
  readonly role: StepRows['role'];
  /** Replicas that these rows are split over. */
  readonly rowSplit: number;
  /** Rows that a rank runs, the most of any. */
  readonly rows: number;
  /** Rows that a rank runs. */
  readonly rowsOf: (share: RankShare) => number;
  /** Rows of its MLP segments: all, where ranks run their own rows and compute segments for each other. */
  readonly mlpRowsOf: (share: RankShare) => number;
  /** Rows whose sequences a rank keeps, where whole sequences are dealt out. */
  readonly keptOf: (share: RankShare) => number;
  /** Sum over the step's rows of the cached tokens that a rank attends to for each. */
  readonly attendedOf: (share: RankShare) => number;
  /** Merge lanes that a rank sends of a row. */
  readonly lanes: number;
}

export function stageSteps(plan: Plan, step: StepRows): StageStep[] {
  return stageViews(plan).map((view) => {
    const rowSplit = step.role === 'prompt' ? view.rowSplit : 1;
    const indexOf = ({ lanes }: RankShare): number => laneSplit(lanes)!.index;
    const own = rowSplit > 1 ? step.ownRows(rowSplit) : undefined;
    const ways = Math.max(view.split, view.placeSplit);
    const attended = step.attended(ways);
    const kept = new Map<RankShare, number>();
    for (const places of view.dealt) {
      const counts = step.dealt(placeWeights(places));
      for (const [index, place] of places.entries()) for (const member of place) kept.set(member, counts[index]!);
    }
    const rowsOf = (share: RankShare): number => {
      if (isKvOnly(share)) return 0;
      return (view.runsOwnRows ? kept.get(share) : own?.[indexOf(share)]) ?? step.rows;
    };
    return {
      ...view,
      role: step.role,
      rowSplit,
      rows: Math.max(...view.holders.map(rowsOf)),
      rowsOf,
      mlpRowsOf: (share) => (view.runsOwnRows && view.cutsMlp ? step.rows : rowsOf(share)),
      keptOf: (share) => kept.get(share) ?? 0,
      attendedOf: (share) => {
        if (view.dealt.length === 0) return attended[indexOf(share)]!;
        return (attended[indexOf(share)]! * kept.get(share)!) / step.rows;
      },
      lanes: Math.ceil(Math.min(MERGE_LANES, step.chunks) / ways),
    };
  });
}

function stageViews({ stages }: Plan): StageView[] {
  const views = stages.map(stageView);
  // Rows stay where they are from stage to stage, or aren't split at all.
  const even = views.every(({ rowSplit }) => rowSplit === views[0]!.rowSplit);
  return even ? views : views.map((view) => ({ ...view, rowSplit: 1 }));
}

function stageView(stage: Stage): StageView {
  const { shares } = stage;
  const holders = shares.filter((share) => !isKvOnly(share));
  const [first] = holders as [RankShare];
  const groups: RankShare[][] = [];
  for (const share of holders) {
    const group = groups.find(([member]) => sameList(member!.heads, share.heads));
    if (group) group.push(share);
    else groups.push([share]);
  }
  const ownRows = stage.kind === 'adp';
  const dealt = dealtPlaces(shares);
  const split = dealt.length > 0 ? 1 : laneSplit(first.lanes)!.split;
  const replicas = holders.length / groups.length;
  const attendsForAll = groups.length > 1 && split === holders.length;
  const spreadsExperts = holders.some(({ experts }) => !sameList(experts, first.experts));
  return {
    stage,
    holders,
    dealt,
    placeSplit: Math.max(1, ...dealt.flat().map(({ length }) => length)),
    takesTurns: holders.length < shares.length,
    runsOwnRows: ownRows,
    cutsMlp: holders.some(({ mlp }) => !sameList(mlp, first.mlp)),
    groups,
    replicas,
    split,
    attendsForAll,
    spreadsExperts,
    rowSplit: ownRows || attendsForAll || spreadsExperts ? 1 : replicas,
  };
}

function dealtPlaces(shares: readonly RankShare[]): Place[][] {
  const dealing = shares.filter(({ sequences }) => sequences !== undefined);
  const firsts = dealing.filter(
    (share, at) => dealing.findIndex((other) => sameList(other.kvHeads, share.kvHeads)) === at,
  );
  return firsts.map((share) => sequencePlaces(share, shares));
}
