import { range, sum } from '../../base/lists.js';
import { holdersOf, homeOf, laneHolders } from '../sequences/copies.js';
import { sequenceRanges } from '../sequences/sequence_ranges.js';
import { MERGE_LANES } from '../owner.js';
import { isKvOnly, type Plan, type RankShare } from '../plan.js';
import { type PlanTopology, planTopology, type StageView } from '../topology.js';
import type { StepRows } from './step_rows.js';

/** Rows of a step as one stage's ranks see them. */
export interface StageStep extends StageView {
  readonly topology: PlanTopology;
  readonly plan: Plan;
  readonly role: StepRows['role'];
  /** By row group. */
  readonly groupRows: readonly number[];
  readonly chunks: number;
  /** As `StepRows.offsets`. */
  readonly offsets: readonly number[] | undefined;
  /** Ranks with weights and those that only attend wait for each other, and may work on other sequences meanwhile. */
  readonly takesTurns: boolean;
  /** Rows that a rank runs, the most of any. */
  readonly rows: number;
  /** Rows that a rank runs. */
  readonly rowsOf: (share: RankShare) => number;
  /** Rows of its MLP segments: all, where places run their own rows and compute segments for each other. */
  readonly mlpRowsOf: (share: RankShare) => number;
  /** Sum over the step's rows of the cached tokens that a rank attends to for each, of a head that has all and isn't copied. */
  readonly attendedOf: (share: RankShare) => number;
  /** Heads that a rank attends for in a layer: copied ones by its part, those with fewer entries by what they have left. */
  readonly attendedHeads: (share: RankShare, layer: number) => number;
}

export function stageSteps(plan: Plan, step: StepRows): StageStep[] {
  const topology = planTopology(plan);
  const { places, rowGroups } = topology;
  const groupRows = places
    ? step.sharded(places)
    : rowGroups[step.role] > 1
      ? step.splitRows(rowGroups[step.role])
      : [step.rows];
  return topology.stages.map((view): StageStep => {
    const attended = step.attended(view.split);
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
      offsets: step.offsets,
      takesTurns: view.stage.shares.some(isKvOnly),
      rows: Math.max(...view.holders.map(rowsOf)),
      rowsOf,
      mlpRowsOf: (share) => (view.gathersMlp ? step.rows : rowsOf(share)),
      attendedOf: (share) => {
        const all = attended[partOf(share).sequence.index]!;
        return places ? (all * rowsIn(partOf(share).attends[step.role])) / step.rows : all;
      },
      attendedHeads: (share, layer) =>
        sum(share.kvHeads.map((head) => copyPart(plan, view, share, head, step) * (step.left?.[layer]?.[head] ?? 1))),
    };
  });
}

/** What of a head's attention is a rank's: its copy's part of the lanes, or of the sequences, whole ones. */
function copyPart({ sharing }: Plan, { stage }: StageView, share: RankShare, head: number, step: StepRows): number {
  if (!share.copies?.some((copy) => copy.head === head)) return 1;
  const holders = holdersOf(stage, head);
  const at = holders.findIndex(({ rank }) => rank === share.rank);
  if (sharing === 'sequences') {
    // A prompt comes alone.
    if (step.role === 'prompt' || step.rows === 1) return homeOf(holders) === share.rank ? 1 : 0;
    const [first, end] = sequenceRanges(
      holders.map((holder) => holder.share),
      step.rows,
    )[at]!;
    return (end - first) / step.rows;
  }
  if (step.rows > 1) return holders[at]!.share;
  const lanes = laneHolders(holders);
  const chunks = Math.max(1, Math.ceil(step.chunks * (step.left ? meanOf(step.left) : 1)));
  return range(0, chunks).filter((chunk) => lanes[chunk % MERGE_LANES] === share.rank).length / chunks;
}

const meanOf = (left: readonly (readonly number[])[]): number => sum(left.flat()) / left.flat().length;
