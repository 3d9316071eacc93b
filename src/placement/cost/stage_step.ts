import { sameList } from '../lists.js';
import { laneSplit, MERGE_LANES } from '../owner.js';
import type { Plan, RankShare, Stage } from '../plan.js';
import type { StepRows } from './work.js';

/** How the ranks of a checked stage work together. */
interface StageView {
  readonly stage: Stage;
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
    const attended = step.attended(view.split);
    return {
      ...view,
      role: step.role,
      rowSplit,
      rows: own ? Math.max(...own) : step.rows,
      rowsOf: (share) => own?.[indexOf(share)] ?? step.rows,
      attendedOf: (share) => attended[indexOf(share)]!,
      lanes: Math.ceil(Math.min(MERGE_LANES, step.chunks) / view.split),
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
  const groups: RankShare[][] = [];
  for (const share of shares) {
    const group = groups.find(([first]) => sameList(first!.heads, share.heads));
    if (group) group.push(share);
    else groups.push([share]);
  }
  const [first] = shares as [RankShare];
  const { split } = laneSplit(first.lanes)!;
  const replicas = shares.length / groups.length;
  const attendsForAll = groups.length > 1 && split === shares.length;
  const spreadsExperts = shares.some(({ experts }) => !sameList(experts, first.experts));
  const rowSplit = attendsForAll || spreadsExperts ? 1 : replicas;
  return { stage, groups, replicas, split, attendsForAll, spreadsExperts, rowSplit };
}
