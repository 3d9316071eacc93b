import { nth, sum } from '../../../base/lists.js';
import type { WorkList } from '../iteration.js';
import type { RankState } from '../rank_state.js';
import type { Move } from '../routing.js';
import type { Sequence } from '../sequence.js';

/**
 * Micro-batches: groups of sequences whose steps run side by side, so that a rank which waits for others in one group's step works on
 * another's. A group has slots of its own, in programs that were captured for it, so a sequence stays where it was placed unless a
 * shift is worth its pause. Everything here follows from loads alone.
 */

export interface GroupLoad {
  /** Sequences of all ranks in it: the rows that are computed where the weights are. */
  readonly rows: number;
  /** Tokens that its sequences on this rank attend to in a step. */
  readonly attended: number;
  /** On this rank. */
  readonly freeSlots: number;
}

export interface Shiftable {
  readonly rank: number;
  readonly group: number;
  readonly tokens: number;
  /** Tokens that it may still generate. */
  readonly remaining: number;
}

/** Steps that a better balance is taken to last for, at most: others come and go. */
const LASTING = 64;
/** A shift costs the time of so many steps: the sequence pauses for those in flight, and no two groups overlap while it is put back. */
const SHIFTING = 4;

/** Micro-batches that so many sequences are spread over: another one for every `rowsEach` of them. */
export const groupsWorth = (sequences: number, rowsEach: number, groups: number): number =>
  Math.min(groups, Math.max(1, Math.ceil(sequences / rowsEach)));

/**
 * Where a new sequence goes: of the micro-batches that so many sequences are worth, the one with the smallest part of the rows and of
 * the rank's attention, which count alike; where these are full another one. Undefined when the rank has no free slot.
 */
export function chooseGroup(groups: readonly GroupLoad[], tokens: number, rowsEach: number): number | undefined {
  const rows = groups.reduce((sum, group) => sum + group.rows, 1);
  const attended = groups.reduce((sum, group) => sum + group.attended, tokens);
  const inOrder = [...groups.keys()].toSorted((a, b) => nth(groups, b).rows - nth(groups, a).rows || a - b);
  const open = inOrder.slice(0, groupsWorth(rows, rowsEach, groups.length));
  const used = inOrder.filter((group) => nth(groups, group).rows > 0);
  const loadOf = (group: number): number => nth(groups, group).rows / rows + nth(groups, group).attended / attended;
  const lightest = (of: readonly number[]): number | undefined =>
    of
      .filter((group) => nth(groups, group).freeSlots > 0)
      .toSorted((a, b) => loadOf(a) - loadOf(b) || a - b)
      .at(0);
  return lightest(open) ?? lightest(used) ?? lightest(inOrder);
}

/**
 * The one shift that helps most; undefined when none does. Few sequences are brought together again: at half of those that a
 * micro-batch is opened for, so that one more or less doesn't send them to and fro. Otherwise a sequence leaves the largest
 * micro-batch where the steps that become shorter are worth its pause.
 *
 * @param loads by rank and micro-batch
 */
export function chooseShift<S extends Shiftable>(
  loads: readonly (readonly GroupLoad[])[],
  sequences: readonly S[],
  rowsEach: number,
): Move<S> | undefined {
  if (sequences.length === 0) return undefined;
  const rows = nth(loads, 0).map((group) => group.rows);
  const all = sum(rows);
  const used = rows.filter((count) => count > 0).length;
  if (used > 1 && all * 2 <= rowsEach * (used - 1)) return together(loads, sequences, rows);
  return balance(loads, sequences, rows, groupsWorth(all, rowsEach, rows.length));
}

function together<S extends Shiftable>(
  loads: readonly (readonly GroupLoad[])[],
  sequences: readonly S[],
  rows: readonly number[],
): Move<S> | undefined {
  const used = [...rows.keys()]
    .filter((group) => nth(rows, group) > 0)
    .toSorted((a, b) => nth(rows, a) - nth(rows, b) || b - a);
  const [smallest, ...others] = used;
  for (const sequence of sequences) {
    // One that ends soon leaves by itself.
    if (sequence.group !== smallest || sequence.remaining <= SHIFTING) continue;
    const to = others.findLast((group) => nth(nth(loads, sequence.rank), group).freeSlots > 0);
    if (to !== undefined) return { sequence, to };
  }
  return undefined;
}

function balance<S extends Shiftable>(
  loads: readonly (readonly GroupLoad[])[],
  sequences: readonly S[],
  rows: readonly number[],
  worth: number,
): Move<S> | undefined {
  if (rows.length === 1) return undefined;
  const inOrder = [...rows.keys()].toSorted((a, b) => nth(rows, b) - nth(rows, a) || a - b);
  const open = inOrder.filter((group, index) => nth(rows, group) > 0 || index < worth);
  const now = stepTimes(loads, rows);
  const longest = Math.max(...now);
  let best: Move<S> | undefined;
  let most = SHIFTING;
  for (const sequence of sequences) {
    const { rank, group: from, tokens, remaining } = sequence;
    if (nth(now, from) < longest) continue;
    for (const to of open) {
      if (to === from || nth(nth(loads, rank), to).freeSlots === 0) continue;
      const after = stepTimes(loads, rows, { rank, from, to, tokens });
      const saved = ((longest - Math.max(...after)) / longest) * Math.min(remaining, LASTING);
      if (saved > most) [best, most] = [{ sequence, to }, saved];
    }
  }
  return best;
}

/** What a step of each micro-batch takes: rows, and the attention of the rank that it keeps longest, each as a part of all. */
function stepTimes(
  loads: readonly (readonly GroupLoad[])[],
  rows: readonly number[],
  shift?: { readonly rank: number; readonly from: number; readonly to: number; readonly tokens: number },
): number[] {
  const all = sum(rows);
  const busiest = Math.max(1, ...loads.map((groups) => sum(groups.map(({ attended }) => attended))));
  return rows.map((count, group) => {
    const sign = shift ? Number(group === shift.to) - Number(group === shift.from) : 0;
    const attended = loads.map(
      (groups, rank) => nth(groups, group).attended + (rank === shift?.rank ? sign * shift.tokens : 0),
    );
    return (count + sign) / all + Math.max(...attended) / busiest;
  });
}

/**
 * Begins a shift between micro-batches where one helps; runs it as soon as nothing of its sequence is in flight. One at a time.
 * @param work of each rank, in which no rows are planned yet
 */
export function shiftSlots(ranks: readonly RankState[], work: readonly WorkList[], rowsEach: number): void {
  if (nth(ranks, 0).groupRows.length === 1) return;
  const shifting = ranks.flatMap((rank) => rank.running.find(({ shiftsTo }) => shiftsTo >= 0) ?? [])[0];
  const sequence = shifting ?? begin(ranks, rowsEach);
  if (!sequence || sequence.outstanding > 0) return;
  nth(ranks, sequence.rank).shift(sequence, nth(work, sequence.rank));
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
