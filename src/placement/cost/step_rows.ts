import { nth, range, sum } from '../../base/lists.js';
import { CHUNK_TOKENS, localTokens, MERGE_LANES } from '../owner.js';
import { type Holder, holdersOf, homeOf, laneHolders } from '../sequences/copies.js';
import { sequenceRanges } from '../sequences/sequence_ranges.js';
import { isKvOnly, type ModelShape, type Plan, type RankShare } from '../plan.js';
import type { CargoWidths } from '../routes.js';
import type { ModelSizes } from '../memory.js';
import { type PlanTopology, planTopology, type StageView } from '../topology.js';

/**
 * One generated row of each of `slots` sequences that are `length` tokens long.
 * @param entries that each head has of them, [layer][kv head]; default all
 */
export function generatedRows(slots: number, length: number, entries?: readonly (readonly number[])[]): StepRows {
  const chunks = Math.ceil(length / CHUNK_TOKENS);
  return {
    role: 'generated',
    rows: slots,
    // The first sequence to come.
    ...(slots === 1 && { offsets: [0] }),
    splitRows: (split) => range(0, split).map(() => slots),
    sharded: (weights) => sequenceRanges(weights, slots).map(([first, end]) => end - first),
    attended: (split) => {
      if (slots === 1 || length === 0) return range(0, split).map((index) => localTokens(length, split, index, 0));
      // Offsets spread the sequences' chunks as even as can be.
      const even = Math.floor((slots * chunks) / split);
      const surplus = (slots * chunks) % split;
      return range(0, split).map((index) => ((even + (index < surplus ? 1 : 0)) * length) / chunks);
    },
    left: entries?.map((heads) => heads.map((own) => Math.min(1, own / Math.max(1, length)))),
    chunks,
  };
}

/** Prompt rows at positions first .. first + rows - 1 of a sequence; or of several at once, which are sharded over as many ranks. */
export function promptRows(first: number, rows: number, prompts = 1): StepRows {
  return {
    role: 'prompt',
    rows: prompts * rows,
    ...(prompts === 1 && { offsets: [0] }),
    splitRows: (split) => splitRows(first, first + rows, split),
    // Nothing else is placed: each goes to the rank that is to have the most sequences, of equals the later one (`sequenceRanges`).
    sharded: (weights) => {
      const order = [...weights.keys()].toSorted((a, b) => nth(weights, b) - nth(weights, a) || b - a);
      return weights.map((_, index) => (order.indexOf(index) < prompts ? rows : 0));
    },
    attended: (split) =>
      range(0, split).map(
        (index) =>
          prompts * sum(range(first + 1, first + rows + 1).map((length) => localTokens(length, split, index, 0))),
      ),
    chunks: Math.ceil((first + rows) / CHUNK_TOKENS),
  };
}

/** Rows at positions [first, end) that each of `split` ranks runs where it runs its own chunks' rows. */
const splitRows = (first: number, end: number, split: number): number[] =>
  range(0, split).map((index) => localTokens(end, split, index, 0) - localTokens(first, split, index, 0));

/** The steps of a prompt, or of several at once: as long as none of the ranks that split its rows gets more than `chunkRows`. */
export function promptSteps(length: number, chunkRows: number, rowSplit: number, prompts = 1): StepRows[] {
  // Split rows are whole chunks where the prompt is long enough.
  const most = rowSplit === 1 ? chunkRows : Math.max(chunkRows, CHUNK_TOKENS);
  const steps: StepRows[] = [];
  for (let first = 0; first < length;) {
    let end = Math.min(first + most, length);
    while (end < length && Math.max(...splitRows(first, end + 1, rowSplit)) <= most) end++;
    steps.push(promptRows(first, end - first, prompts));
    first = end;
  }
  return steps;
}

/** What a model asks of a machine, a row at a time. */
export interface ModelWork {
  readonly shape: ModelShape;
  readonly sizes: ModelSizes;
  /** Dispatches of a step besides its layers: embedding, head, sampling. */
  readonly stepDispatches: number;
  /** Experts that a token is routed to; 0 without experts. */
  readonly expertsPerToken: number;
  /** Of what travels between ranks. */
  readonly widths: CargoWidths;
}

export interface StepRows {
  readonly role: 'generated' | 'prompt';
  readonly rows: number;
  /** Rows of each of `split` replicas that prompt rows are split over by the owner of their chunk. */
  readonly splitRows: (split: number) => readonly number[];
  /** Rows of each of some ranks that whole sequences are sharded over, in proportion to these weights. */
  readonly sharded: (weights: readonly number[]) => readonly number[];
  /** Sum over rows of the cached tokens each attends to, of the chunks that each of `split` ranks owns. */
  readonly attended: (split: number) => readonly number[];
  /** Of those tokens, the part that a head still has, [layer][kv head]: its prompt was compressed. Default: all. */
  readonly left?: readonly (readonly number[])[] | undefined;
  readonly chunks: number;
  /** Offsets of the sequences, which say who has their first chunks; undefined where there may be any. */
  readonly offsets?: readonly number[];
}

/** Rows of a step as one stage's ranks see them. */
export interface StageStep extends StageView {
  readonly topology: PlanTopology;
  readonly plan: Plan;
  readonly role: StepRows['role'];
  readonly groupRows: readonly number[];
  readonly chunks: number;
  readonly offsets: readonly number[] | undefined;
  /** Ranks with weights and those that only attend wait for each other, and may work on other sequences meanwhile. */
  readonly takesTurns: boolean;
  /** Rows that a rank runs, the most of any. */
  readonly rows: number;
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
    const partOf = ({ rank }: RankShare) => nth(nth(topology.ranks, rank).stages, view.index);
    const rowsIn = (groups: readonly number[]): number => sum(groups.map((group) => nth(groupRows, group)));
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
        const all = nth(attended, partOf(share).sequence.index);
        return places ? (all * rowsIn(partOf(share).attends[step.role])) / step.rows : all;
      },
      attendedHeads: (share, layer) =>
        sum(share.kvHeads.map((head) => copyPart(plan, view, share, head, step) * (step.left?.[layer]?.[head] ?? 1))),
    };
  });
}

/** What of a head's attention is a rank's: its copy's part of the lanes, or of the sequences. */
function copyPart({ sharing }: Plan, { stage }: StageView, share: RankShare, head: number, step: StepRows): number {
  const copy = share.copies?.find((own) => own.head === head);
  if (!copy) return 1;
  const holders = holdersOf(stage, head);
  // A prompt comes alone.
  if (sharing === 'sequences') return sequencesPart(holders, share.rank, step.role === 'prompt' ? 1 : step.rows);
  if (step.rows > 1) return copy.share;
  const lanes = laneHolders(holders);
  const chunks = Math.max(1, Math.ceil(step.chunks * (step.left ? meanOf(step.left) : 1)));
  return range(0, chunks).filter((chunk) => lanes[chunk % MERGE_LANES] === share.rank).length / chunks;
}

/** Of so many sequences, the part whose home among a head's copies is a rank: whole ones, in proportion to the copies' shares. */
export function sequencesPart(holders: readonly Holder[], rank: number, sequences: number): number {
  if (sequences <= 1) return homeOf(holders) === rank ? 1 : 0;
  const shares = holders.map(({ share }) => share);
  const at = holders.findIndex((holder) => holder.rank === rank);
  const [first, end] = nth(sequenceRanges(shares, sequences), at);
  return (end - first) / sequences;
}

const meanOf = (left: readonly (readonly number[])[]): number => sum(left.flat()) / left.flat().length;
