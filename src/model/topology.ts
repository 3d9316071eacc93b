import { SplitkvError } from '../base/errors.js';
import {
  isKvOnly,
  type Place,
  placeWeights,
  type Plan,
  type RankShare,
  type RowRange,
  sequencePlaces,
  sequenceRanges,
  type Stage,
} from '../placement/index.js';

/** Merge lanes of attention; sequence indices divide them. */
const LANES = 8;

/** What a rank of a stage knows of the others: who works with it on what. Derived from the plan alone, alike on every rank. */
export interface StageTopology {
  readonly stage: Stage;
  readonly share: RankShare;
  /** Token parallelism: who keeps the sequences. */
  readonly dealt: DealtSequences | undefined;
  /** Attention data parallelism: who has rows of its own, this rank among them. */
  readonly ownRows: OwnRows | undefined;
  /** Ranks of each weight group (equal heads and MLP segments), groups in the order of their heads. */
  readonly groups: readonly (readonly RankShare[])[];
  readonly group: number;
  /** The rank of each weight group that this one adds segments up with. */
  readonly peers: readonly RankShare[];
  /** A sequence's chunks are split over `ranks` ranks, of which this is `index`. */
  readonly sequence: { readonly ranks: number; readonly index: number };
  /** Ranks that hold the same kv heads' cache, by sequence index. */
  readonly owners: readonly number[];
  /** This rank attends for the heads of every weight group, not only its own. */
  readonly attendsForAll: boolean;
  /** MLP segments are cut over the stage's ranks. */
  readonly splitsMlp: boolean;
  /** Routed experts are spread over the stage's ranks. */
  readonly spreadsExperts: boolean;
  /** Blocks that prompt rows may be split into, one a replica of the weights; 1: every rank runs every row. */
  readonly rowBlocks: number;
  readonly rowBlock: number;
}

/** Sequences dealt out to ranks, or to groups of ranks that split each by the lanes of its chunks. */
export interface DealtSequences {
  /** Holds the weights, and projects for all. */
  readonly root: RankShare;
  /** Ranks that keep the same sequences; the root's place comes first, and the root in it. */
  readonly places: readonly Place[];
  /** By place. */
  readonly weights: readonly number[];
  /** This rank's. */
  readonly place: number;
  /** Ranks that split a sequence; 1: each is whole on one. Only a root that keeps none is a place of another size. */
  readonly split: number;
}

/** Ranks that run the rows of their own sequences, in the order of their shares (`StepShape.blocks`: rows by rank). */
export interface OwnRows {
  readonly ranks: readonly RankShare[];
  /** This rank among them. */
  readonly index: number;
}

/** What the whole plan says to one rank. */
export interface RankTopology {
  readonly plan: Plan;
  readonly rank: number;
  /** By stage of the plan; undefined where the rank holds nothing. */
  readonly stages: readonly (StageTopology | undefined)[];
  /** Prompt rows are split over this many ranks at each stage, by the owner of their chunk; this rank's block. */
  readonly rowBlocks: number;
  readonly rowBlock: number;
  /** Ranks of every stage by row block. */
  readonly blockRanks: readonly (readonly number[])[];
  /** The rank that samples: this one, where every rank runs rows of its own. */
  readonly root: number;
  readonly ownRows: OwnRows | undefined;
}

const sameList = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((value, index) => value === b[index]);

/** The sequence index of a rank that holds these merge lanes. */
export const sequenceOf = (lanes: readonly number[]): { readonly ranks: number; readonly index: number } => ({
  ranks: LANES / lanes.length,
  index: lanes[0]!,
});

function stageTopology(stage: Stage, rank: number): StageTopology | undefined {
  const share = stage.shares.find((candidate) => candidate.rank === rank);
  if (!share) return undefined;
  if (stage.kind === 'arranged') return arrangedTopology(stage, share);
  const groups: RankShare[][] = [];
  const withWeights = stage.shares.filter((candidate) => !isKvOnly(candidate));
  for (const candidate of [...withWeights].toSorted((a, b) => (a.heads[0] ?? 0) - (b.heads[0] ?? 0))) {
    const group = groups.find(([first]) => sameList(first!.heads, candidate.heads));
    if (group) group.push(candidate);
    else groups.push([candidate]);
  }
  const sharing = stage.shares.filter(({ kvHeads }) => sameList(kvHeads, share.kvHeads));
  const ownRows = stage.kind === 'adp' ? { ranks: stage.shares, index: stage.shares.indexOf(share) } : undefined;
  const dealt = share.sequences === undefined || ownRows ? undefined : dealtSequences(stage, share);
  const holder = dealt?.root ?? share;
  const group = groups.findIndex((ranks) => ranks.includes(holder));
  const own = groups[group]!;
  // Replicas in the order of their sequence indices, so that a prompt row's home is the owner of its chunk.
  for (const ranks of groups) ranks.sort((a, b) => a.lanes[0]! - b.lanes[0]! || a.rank - b.rank);
  const replica = own.indexOf(holder);
  const attendsForAll = !dealt && groups.length > 1 && sharing.length > own.length;
  const spreadsExperts = withWeights.some(({ experts }) => !sameList(experts, holder.experts));
  const splitsRows = !dealt && !ownRows && own.length > 1 && sharing.length === own.length && !spreadsExperts;
  return {
    stage,
    share,
    dealt,
    ownRows,
    groups,
    group,
    peers: groups.map((ranks) => ranks[replica]!),
    sequence: sequenceOf(share.lanes),
    owners:
      dealt || ownRows ? [rank] : [...sharing].toSorted((a, b) => a.lanes[0]! - b.lanes[0]!).map((owner) => owner.rank),
    attendsForAll,
    splitsMlp: withWeights.some(({ mlp }) => !sameList(mlp, holder.mlp)),
    spreadsExperts,
    rowBlocks: splitsRows ? own.length : 1,
    rowBlock: splitsRows ? replica : 0,
  };
}

/** Every rank is a weight group of its own, and attends for its own heads. */
function arrangedTopology(stage: Stage, share: RankShare): StageTopology {
  const peers = stage.shares.toSorted((a, b) => a.rank - b.rank);
  return {
    stage,
    share,
    dealt: undefined,
    ownRows: undefined,
    groups: peers.map((peer) => [peer]),
    group: peers.indexOf(share),
    peers,
    sequence: { ranks: 1, index: 0 },
    owners: [share.rank],
    attendsForAll: false,
    splitsMlp: stage.shares.some(({ mlp }) => !sameList(mlp, share.mlp)),
    spreadsExperts: false,
    rowBlocks: 1,
    rowBlock: 0,
  };
}

function dealtSequences({ shares }: Stage, share: RankShare): DealtSequences {
  const places = sequencePlaces(share, shares);
  return {
    root: places[0]![0]!,
    places,
    weights: placeWeights(places),
    place: places.findIndex((place) => place.includes(share)),
    split: Math.max(...places.map(({ length }) => length)),
  };
}

/** @throws SplitkvError `usage` for a rank that the plan gives nothing to do. */
export function rankTopology(plan: Plan, rank: number): RankTopology {
  const everyRank = Array.from({ length: plan.worldSize }, (_, other) =>
    plan.stages.map((stage) => stageTopology(stage, other)),
  );
  const stages = everyRank[rank];
  if (!stages?.some(Boolean)) {
    throw new SplitkvError('usage', `the plan '${plan.policy}' gives rank ${rank} no layers: leave the rank out`);
  }
  const all = everyRank.flat().filter((stage) => stage !== undefined);
  const ownRows = stages.find(Boolean)!.ownRows;
  const blocks = all[0]!.rowBlocks;
  // Rows stay where they are from stage to stage, or aren't split at all.
  const rowBlocks = all.every((stage) => stage.rowBlocks === blocks) ? blocks : 1;
  const blockOf = (other: readonly (StageTopology | undefined)[]): number =>
    rowBlocks === 1 ? 0 : other.find(Boolean)!.rowBlock;
  return {
    plan,
    rank,
    stages: stages.map((stage) => stage && (rowBlocks === 1 ? { ...stage, rowBlocks: 1, rowBlock: 0 } : stage)),
    rowBlocks,
    rowBlock: blockOf(stages),
    blockRanks: Array.from({ length: rowBlocks }, (_, block) =>
      everyRank.flatMap((other, index) => (other.some(Boolean) && blockOf(other) === block ? [index] : [])),
    ),
    root: ownRows ? rank : plan.head[0]!.rank,
    ownRows,
  };
}

/**
 * Slots of a batch whose sequences each KV pool keeps: of all ranks together, or of each place that they are dealt out to. Batches take
 * turns at who is first, so that those of one slot spread over ranks that run their own rows.
 */
export function slotRanges(plan: Plan, slots: number, batch = 0): readonly RowRange[] {
  const { ownRows } = rankTopology(plan, 0);
  const weights = ownRows?.ranks.map(({ sequences }) => sequences!) ?? dealtWeights(plan);
  if (!weights) return [[0, slots]];
  const turn = ownRows ? batch % weights.length : 0;
  const ranges = sequenceRanges([...weights.slice(turn), ...weights.slice(0, turn)], slots);
  return [...ranges.slice(weights.length - turn), ...ranges.slice(0, weights.length - turn)];
}

/** Shares of the sequences by place, the same in every stage that deals them out. */
function dealtWeights({ stages }: Plan): readonly number[] | undefined {
  const stage = stages.find(({ kind }) => kind === 'token');
  const root = stage?.shares.find((share) => !isKvOnly(share));
  return root && placeWeights(sequencePlaces(root, stage!.shares));
}

/** By batch: the slots whose sequences a rank keeps, or a part of each; undefined where sequences aren't dealt out to ranks. */
export function keptSlots(plan: Plan, rank: number, slots: number, batches: number): readonly RowRange[] | undefined {
  const { ownRows, stages } = rankTopology(plan, rank);
  const place = ownRows?.index ?? stages.find((stage) => stage?.dealt)?.dealt?.place;
  if (place === undefined) return undefined;
  return Array.from({ length: batches }, (_, batch) => slotRanges(plan, slots, batch)[place]!);
}

/**
 * The rank that gives `rank` its rows when a stage begins: itself where it had them, else one of the stage before with the same
 * rows.
 */
export function rowSource(plan: Plan, stage: number, rank: number): number {
  const before = { shares: plan.stages[stage - 1]!.shares.filter((share) => !isKvOnly(share)) };
  const blockOf = (other: number): number => rankTopology(plan, other).rowBlock;
  const sources = before.shares.map((share) => share.rank).filter((other) => blockOf(other) === blockOf(rank));
  if (sources.includes(rank)) return rank;
  const receivers = plan.stages[stage]!.shares.map((share) => share.rank).filter(
    (other) => blockOf(other) === blockOf(rank),
  );
  return sources[receivers.indexOf(rank) % sources.length]!;
}

/** The rank that gives `rank`, one of the last stage's, the final rows of a block: itself where it ran them. */
export function rowSender({ plan, blockRanks }: RankTopology, block: number, rank: number): number {
  const last = plan.stages
    .at(-1)!
    .shares.filter((share) => !isKvOnly(share))
    .map((share) => share.rank);
  const senders = last.filter((other) => blockRanks[block]!.includes(other));
  return senders.includes(rank) ? rank : senders[last.indexOf(rank) % senders.length]!;
}
