import { laneRoom } from '../routes.js';
import { sum } from '../../base/lists.js';
import { laneSplit, MERGE_LANES } from '../owner.js';
import { isKvOnly, type Plan, type RankShare } from '../plan.js';
import { type PlanTopology, planTopology, type StageView } from '../topology.js';
import type { StepRows } from './work.js';

/** Rows of a step as one stage's ranks see them. */
export interface StageStep extends StageView {
  readonly topology: PlanTopology;
  readonly plan: Plan;
  readonly role: StepRows['role'];
  /** By row group. */
  readonly groupRows: readonly number[];
  readonly chunks: number;
  /** Ranks with weights and those that only attend wait for each other, and may work on other sequences meanwhile. */
  readonly takesTurns: boolean;
  /** Every rank runs the rows of its own sequences, and MLP segments or experts of all rows. */
  readonly runsOwnRows: boolean;
  /** Rows that a rank runs, the most of any. */
  readonly rows: number;
  /** Rows that a rank runs. */
  readonly rowsOf: (share: RankShare) => number;
  /** Rows of its MLP segments: all, where ranks run their own rows and compute segments for each other. */
  readonly mlpRowsOf: (share: RankShare) => number;
  /** Sum over the step's rows of the cached tokens that a rank attends to for each. */
  readonly attendedOf: (share: RankShare) => number;
  /** Merge lanes that a rank sends of a row. */
  readonly lanes: number;
}

export function stageSteps(plan: Plan, step: StepRows): StageStep[] {
  const topology = planTopology(plan);
  const { places, rowGroups } = topology;
  const groupRows = places
    ? step.sharded(places)
    : rowGroups[step.role] > 1
      ? step.ownRows(rowGroups[step.role])
      : [step.rows];
  return topology.stages.map((view): StageStep => {
    const indexOf = ({ lanes }: RankShare): number => laneSplit(lanes)!.index;
    const attended = step.attended(view.split);
    const runsOwnRows = view.kind === 'adp';
    const partOf = ({ rank }: RankShare) => topology.ranks[rank]!.stages[view.index]!;
    const rowsIn = (groups: readonly number[]): number => sum(groups.map((group) => groupRows[group]!));
    const rowsOf = (share: RankShare): number => rowsIn(partOf(share).runs[step.role]);
    return {
      ...view,
      topology,
      plan,
      role: step.role,
      groupRows,
      chunks: step.chunks,
      takesTurns: view.stage.shares.some(isKvOnly),
      runsOwnRows,
      rows: Math.max(...view.holders.map(rowsOf)),
      rowsOf,
      mlpRowsOf: (share) => (runsOwnRows && view.cutsMlp ? step.rows : rowsOf(share)),
      attendedOf: (share) => {
        const all = attended[view.kind === 'arranged' ? 0 : indexOf(share)]!;
        return places ? (all * rowsIn(partOf(share).attends[step.role])) / step.rows : all;
      },
      lanes: laneRoom(view.places[0]!.at(-1)![0]!.lanes, Math.min(MERGE_LANES, step.chunks)),
    };
  });
}
