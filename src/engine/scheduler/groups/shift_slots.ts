import { chooseShift } from './micro_batches.js';
import type { RankState, WorkList } from '../rank_state.js';
import type { Sequence } from '../sequence.js';

/**
 * Begins a shift between micro-batches where one helps; runs it as soon as nothing of its sequence is in flight. One at a time.
 * @param work of each rank, in which no rows are planned yet
 */
export function shiftSlots(ranks: readonly RankState[], work: readonly WorkList[], rowsEach: number): void {
  if (ranks[0]!.groupRows.length === 1) return;
  const shifting = ranks.flatMap((rank) => rank.running.find(({ shiftsTo }) => shiftsTo >= 0) ?? [])[0];
  const sequence = shifting ?? begin(ranks, rowsEach);
  if (!sequence || sequence.outstanding > 0) return;
  ranks[sequence.rank]!.shift(sequence, work[sequence.rank]!);
}

function begin(ranks: readonly RankState[], rowsEach: number): Sequence | undefined {
  const shiftable = ranks.flatMap((rank) =>
    rank.running.flatMap((sequence) => {
      const remaining = sequence.maxTokens - sequence.sampled;
      if (sequence.status !== 'decode' || remaining <= 0 || sequence.leavingFor >= 0) return [];
      return { sequence, rank: rank.index, group: rank.groupOf(sequence), tokens: sequence.computed, remaining };
    }),
  );
  const loads = ranks.map((rank) => rank.groupLoads);
  const shift = chooseShift(loads, shiftable, rowsEach);
  if (!shift) return undefined;
  const { sequence } = shift.sequence;
  sequence.shiftsTo = shift.to;
  return sequence;
}
