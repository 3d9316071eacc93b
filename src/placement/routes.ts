import { holdersOf, homeOf, laneHolders } from './sequences/copies.js';
import { joinsLanes } from '../base/kv_units.js';
import { nth, range, sum } from '../base/lists.js';
import { CHUNK_TOKENS, chunkOwner, MERGE_LANES } from './owner.js';
import type { Plan, RankShare, VocabShare } from './plan.js';
import { matesOf, type PlanTopology, type RowRole, type StageTopology } from './topology.js';

/**
 * What travels between ranks in a step, as data: the runtime makes regions of buffers of it, the planner bytes and seconds. An exchange
 * exists because a route does. Everything here follows from the plan; how much a route carries in a step follows from its cargo, the
 * step's rows and the model's widths (`cargoBytes`).
 */

/** Rows of every row group. */
const ALL = -1;

/** What a route carries, for the rows of one row group or of `ALL`. */
export type Cargo = { readonly group: number } &
  /** Queries lie beside those of other weight groups, as wide as the widest. */
  (
    | { readonly kind: 'queries'; readonly heads: readonly number[]; readonly beside: readonly (readonly number[])[] }
    /** Outputs, in rows as wide as the widest of those that the sender has. */
    | { readonly kind: 'attended'; readonly heads: readonly number[]; readonly beside: readonly (readonly number[])[] }
    | { readonly kind: 'scores'; readonly heads: readonly number[] }
    /** Lane states (o, m, l) of the sender's merge lanes. */
    | { readonly kind: 'lanes'; readonly heads: readonly number[]; readonly lanes: LaneSlots }
    /** Sums of a split contraction; for norms over all heads those of squares, segment by segment. */
    | {
        readonly kind: 'segments';
        readonly of: 'heads' | 'mlp';
        readonly sums: readonly SegmentSum[];
        readonly squares?: true;
      }
    /** The residual stream; rows that were normalised, perhaps with the experts that they were routed to; expert outputs; routing. */
    | { readonly kind: 'hidden' | 'normed' | 'routed' | 'experts' | 'routing' }
    /** Rows of the embedding that the sender has, zeros for others; `part`: its number among those that have some. */
    | { readonly kind: 'embedding'; readonly part: number }
    /** Logits of a rank's rows of the head, or candidates among them; `most`: rows of the rank that has most. Sampled tokens. */
    | { readonly kind: 'logits' | 'candidates'; readonly share: VocabShare; readonly most: number }
    | { readonly kind: 'tokens' }
  );

export interface Route {
  readonly from: number;
  readonly to: number;
  readonly cargo: Cargo;
}

const route = (from: number, to: number, cargo: Cargo): Route => ({ from, to, cargo });

/** Those that lead to another rank; a rank's route to itself is a copy. */
export const crossing = (routes: readonly Route[]): Route[] => routes.filter(({ from, to }) => from !== to);

const partsOf = (topology: PlanTopology, stage: number): StageTopology[] =>
  topology.ranks.flatMap(({ stages }) => stages[stage] ?? []);

const runsOf = ({ ranks }: PlanTopology, rank: number, role: RowRole): readonly number[] => nth(ranks, rank).runs[role];

const runnersOf = (topology: PlanTopology, stage: number, role: RowRole, group: number): number[] =>
  nth(topology.stages, stage)
    .holders.map(({ rank }) => rank)
    .filter((rank) => runsOf(topology, rank, role).includes(group));

/** Weight groups for whose heads a rank attends. */
const attendedGroups = (stage: StageTopology): number[] =>
  stage.attendsForAll ? range(0, stage.groups.length) : [stage.group];

/** Their heads, by weight group. */
export const headsBeside = (stage: StageTopology): (readonly number[])[] =>
  attendedGroups(stage).map((group) => nth(stage.groups, group)[0].heads);

/**
 * Queries to the ranks that keep the chunks they attend to; new keys and values to the ranks that append them. Of a weight group the rank
 * sends them that adds segments up with the receiver, where it has the rows: that may be the receiver itself.
 */
export function queryRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  return partsOf(topology, stage).flatMap((part) => {
    const beside = headsBeside(part);
    const routes = part.attends[role].flatMap((group) => {
      const runners = runnersOf(topology, stage, role, group);
      return attendedGroups(part).map((weights) => {
        const members = [nth(part.peers, weights), ...nth(part.groups, weights)];
        const { rank, heads } = members.find((member) => runners.includes(member.rank))!;
        return route(rank, part.share.rank, { kind: 'queries', heads, beside, group });
      });
    });
    return part.apart ? routes : crossing(routes);
  });
}

/**
 * Merge lanes that a rank has, before a sequence's offset rotates them: lane l is in slot (l + offset) mod `of`. Ranks that split every
 * sequence have a slot each; copies of a head some of the 8 lanes each.
 */
export interface LaneSlots {
  readonly slots: readonly number[];
  readonly of: number;
}

/** Heads of a rank whose results come from the same ranks. */
export interface HeadBundle {
  readonly heads: readonly number[];
  /** Ranks that have some of a sequence's chunks. */
  readonly keepers: readonly { readonly rank: number; readonly lanes: LaneSlots }[];
  /** Where the heads' lanes are merged: the rank itself, or another with copies. */
  readonly home: number;
}

/** A place that says how lanes come home: all are alike, but for those of roots that keep no sequence. */
export function usualPlace({ places, group, place, split }: StageTopology): number {
  const own = nth(places, group);
  return nth(own, place).length === split ? place : own.findIndex(({ length }) => length === split);
}

/** The bundles of a rank's own heads, for the rows of a row group. `whole`: copies of heads have whole sequences for now. */
export function bundlesOf({ sharing }: Plan, stage: StageTopology, group: number, whole = false): HeadBundle[] {
  const { share, places } = stage;
  const { heads, rank } = share;
  if (stage.sharers === undefined && sharing === 'lanes' && share.copies && !whole) {
    return heads.map((head) => {
      const holders = holdersOf(stage.stage, head);
      const lanes = holders.length === 1 ? range(0, MERGE_LANES).map(() => rank) : laneHolders(holders);
      const slotsOf = (of: number): number[] => range(0, MERGE_LANES).filter((slot) => lanes[slot] === of);
      return {
        heads: [head],
        keepers: holders.map((holder) => ({
          rank: holder.rank,
          lanes: { slots: slotsOf(holder.rank), of: MERGE_LANES },
        })),
        home: homeOf(holders),
      };
    });
  }
  const own = nth(places, stage.group);
  const place = nth(own, own.length === 1 ? 0 : group);
  const keepers = place.map((keeper, index) => ({ rank: keeper.rank, lanes: { slots: [index], of: place.length } }));
  return heads.length === 0 ? [] : [{ heads, keepers, home: rank }];
}

/** Attention's results to the ranks that project them: lane states where several ranks have chunks of a sequence, otherwise outputs. */
export function attentionRoutes(
  topology: PlanTopology,
  plan: Plan,
  stage: number,
  role: RowRole,
  whole = false,
): Route[] {
  return partsOf(topology, stage).flatMap((part) =>
    part.runs[role].flatMap((group) =>
      bundlesOf(plan, part, group, whole)
        .filter(({ home }) => home === part.share.rank)
        .flatMap(({ heads, keepers, home }) => {
          if (keepers.length > 1) {
            return keepers.map(({ rank, lanes }) => route(rank, home, { kind: 'lanes', heads, lanes, group }));
          }
          const beside = headsBeside(part);
          const routes = keepers.map(({ rank }) => route(rank, home, { kind: 'attended', heads, beside, group }));
          // Outputs of several groups' heads don't lie where one of them goes on.
          return part.attendsForAll ? routes : crossing(routes);
        }),
    ),
  );
}

/** Scores of a prompt's tokens, which decide what compression keeps: from every weight group to the ranks that keep the same sequences. */
export function scoreRoutes(topology: PlanTopology, stage: number): Route[] {
  const parts = partsOf(topology, stage).filter(({ groups }) => groups.length > 1);
  const scores = (part: StageTopology): boolean => part.holder.heads.length > 0;
  return crossing(
    parts
      .filter(scores)
      .flatMap((part) =>
        parts
          .filter((other) => scores(other) && other.group !== part.group && other.place === part.place)
          .map((other) =>
            route(part.share.rank, other.share.rank, { kind: 'scores', heads: part.holder.heads, group: part.place }),
          ),
      ),
  );
}

/** Ranks among which a stage's segments are cut; one: they aren't. */
export const segmentPeers = ({ peers, mlpPeers }: StageTopology, of: 'heads' | 'mlp'): readonly RankShare[] =>
  of === 'mlp' ? mlpPeers : peers;

/** Neighbouring segments [first, end) that are added up where they are computed: what travels, and is added up in turn. */
export type SegmentSum = readonly [first: number, end: number];

/**
 * The fewest sums that `segments` (ascending) of `total` come to: segments are added up in a binary tree (shaders/lib/tree_sum.wgsl), so
 * those of a whole subtree make one. A rank of 2, 4 or 8 with an even share of 8 has one.
 */
export function subtrees(segments: readonly number[], total: number): SegmentSum[] {
  const held = new Set(segments);
  const within = (first: number, size: number): SegmentSum[] => {
    const all = range(first, Math.min(first + size, total));
    if (!all.some((segment) => held.has(segment))) return [];
    if (all.every((segment) => held.has(segment))) return [[first, first + all.length]];
    return [...within(first, size / 2), ...within(first + size / 2, size / 2)];
  };
  return within(0, 2 ** Math.ceil(Math.log2(Math.max(1, total))));
}

/** The sums of a stage's contraction, ascending, and of them those of a rank. */
export interface StageSums {
  readonly all: readonly SegmentSum[];
  readonly of: (share: RankShare) => SegmentSum[];
}

/** @param apart each segment by itself */
export function stageSums(stage: StageTopology, of: 'heads' | 'mlp', apart = false): StageSums {
  const peers = of === 'mlp' && stage.gathersMlp ? stage.holders : segmentPeers(stage, of);
  const total = new Set(peers.flatMap((peer) => peer[of])).size;
  const sumsOf = (share: RankShare): SegmentSum[] =>
    apart ? share[of].map((segment) => [segment, segment + 1]) : subtrees(share[of], total);
  const byFirst = new Map(peers.flatMap(sumsOf).map((each) => [each[0], each]));
  return { all: [...byFirst.values()].toSorted(([a], [b]) => a - b), of: sumsOf };
}

/** Of copied heads, the sums of each one come from another rank from row to row. */
export const sumsApart = ({ sharing }: Plan, of: 'heads' | 'mlp'): boolean => of === 'heads' && sharing !== undefined;

/** Every weight group's sums to the rank of each other group that works on the same rows. @param apart of each segment by itself */
export function segmentRoutes(
  topology: PlanTopology,
  stage: number,
  role: RowRole,
  of: 'heads' | 'mlp',
  apart = sumsApart(nth(topology.ranks, 0).plan, of),
): Route[] {
  const cut = (part: StageTopology): boolean => segmentPeers(part, of).length > 1 && part.holder === part.share;
  return crossing(
    partsOf(topology, stage)
      .filter(cut)
      .flatMap((part) => {
        const peers = segmentPeers(part, of).filter((peer) => peer[of].length > 0);
        const { of: sumsOf } = stageSums(part, of, apart);
        const sent = peers.map((peer) => ({ from: peer.rank, sums: sumsOf(peer) }));
        return part.runs[role].flatMap((group) =>
          sent.map(({ from, sums }) => route(from, part.share.rank, { kind: 'segments', of, sums, group })),
        );
      }),
  );
}

/**
 * Where places run rows of their own: every place's normalised rows to the ranks that compute MLP segments or experts for it. All ranks of
 * a place have them, so each rank gets them from the rank in its own position there.
 */
export function gatherRoutes(topology: PlanTopology, stage: number, routed: boolean): Route[] {
  const { placeRanks, kind } = nth(topology.stages, stage);
  if (kind !== 'adp') return [];
  const cargo = routed ? 'routed' : 'normed';
  return placeRanks.flatMap((ranks, group) =>
    placeRanks.flatMap((others) =>
      others.map(({ rank }, at) => route(nth(ranks, at % ranks.length).rank, rank, { kind: cargo, group })),
    ),
  );
}

/** Where places run rows of their own: MLP segments of all rows, to the ranks that run the row. */
export function gatheredSegmentRoutes(topology: PlanTopology, stage: number): Route[] {
  const { placeRanks, gathersMlp } = nth(topology.stages, stage);
  if (!gathersMlp) return [];
  return partsOf(topology, stage)
    .filter(({ share }) => share.mlp.length > 0)
    .flatMap((part) => {
      const sums = stageSums(part, 'mlp').of(part.share);
      return placeRanks.flatMap((ranks, group) =>
        ranks.map(({ rank: to }) => route(part.share.rank, to, { kind: 'segments', of: 'mlp', sums, group })),
      );
    });
}

/** Outputs of routed experts to every rank that runs the rows. */
export function expertRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  const view = nth(topology.stages, stage);
  const { holders, spreadsExperts, gathersExperts } = view;
  if (!spreadsExperts) return [];
  return holders
    .filter(({ experts }) => experts.length > 0)
    .flatMap((own) =>
      (gathersExperts ? holders : matesOf(view, own)).flatMap(({ rank: to }) =>
        runsOf(topology, to, role).map((group) => route(own.rank, to, { kind: 'experts', group })),
      ),
    );
}

/** Where different adapters might break a near tie differently: the first rank's routing to all others that run the rows. */
export function routingRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  const { placeRanks, spreadsExperts } = nth(topology.stages, stage);
  if (!spreadsExperts) return [];
  return placeRanks.flatMap(([router, ...rest]) =>
    rest.flatMap(({ rank }) =>
      runsOf(topology, rank, role).map((group) => route(router!.rank, rank, { kind: 'routing', group })),
    ),
  );
}

/** What carries sampled rows: all, or where places run rows of their own, those of one. */
const sampledRows = ({ ranks }: PlanTopology, rank: number): number => nth(ranks, rank).ownPlace ?? ALL;

/** Ranks that have rows of the embedding, or of the head, for the rows that a rank runs, in order. */
export const vocabHolders = (topology: PlanTopology, shares: readonly VocabShare[], rank: number): VocabShare[] =>
  shares.filter(
    ({ rank: other, rows: [first, end] }) =>
      end > first && sampledRows(topology, other) === sampledRows(topology, rank),
  );

/**
 * Embedding rows of every rank that has some, where they are cut over ranks (or one has all), to every rank of the first stage that runs
 * rows.
 */
export function embeddingRoutes(topology: PlanTopology, plan: Plan, vocabSize: number, role: RowRole): Route[] {
  const { holders } = nth(topology.stages, 0);
  return holders.flatMap(({ rank: to }) => {
    const owners = vocabHolders(topology, plan.embedding, to);
    const alike = holders.filter(({ rank }) => sampledRows(topology, rank) === sampledRows(topology, to));
    const whole = owners.every(({ rows: [first, end] }) => end - first === vocabSize);
    if (whole && owners.length === alike.length) return [];
    return runsOf(topology, to, role).flatMap((group) =>
      owners.map(({ rank }, part) => route(rank, to, { kind: 'embedding', part, group })),
    );
  });
}

/** The residual stream from the stage before: from the rank itself where it had the rows, otherwise from one with the same. */
export function stageRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  if (stage === 0) return [];
  return range(0, topology.rowGroups[role]).flatMap((group) => {
    const [sources, receivers] = [runnersOf(topology, stage - 1, role, group), runnersOf(topology, stage, role, group)];
    return receivers
      .filter((rank) => !sources.includes(rank))
      .map((to) => route(nth(sources, receivers.indexOf(to) % sources.length), to, { kind: 'hidden', group }));
  });
}

/** Final rows of a row group to the ranks that have rows of the head. */
export function headRoutes(topology: PlanTopology, plan: Plan, role: RowRole, group: number): Route[] {
  const last = topology.stages.length - 1;
  const senders = runnersOf(topology, last, role, group);
  const all = nth(topology.stages, last).holders.map(({ rank }) => rank);
  return crossing(
    plan.head
      .filter(({ rank, rows: [first, end] }) => end > first && (!topology.ownRows || senders.includes(rank)))
      .map(({ rank }) => {
        const from = senders.includes(rank) ? rank : nth(senders, all.indexOf(rank) % senders.length);
        return route(from, rank, { kind: 'hidden', group });
      }),
  );
}

/** Logits, or candidates for the next token, to the rank that samples. */
export function samplingRoutes(topology: PlanTopology, plan: Plan, kind: 'logits' | 'candidates'): Route[] {
  return crossing(
    plan.head.flatMap((share): Route[] => {
      const { rank: from } = share;
      const shares = vocabHolders(topology, plan.head, from);
      if (!shares.includes(share)) return [];
      const most = Math.max(...shares.map(({ rows: [first, end] }) => end - first));
      const group = sampledRows(topology, from);
      return [route(from, nth(topology.ranks, from).root, { kind, share, most, group })];
    }),
  );
}

/** Sampled tokens and their positions, from the rank that samples to all others that run the rows, or attend for them. */
export function tokenRoutes(topology: PlanTopology): Route[] {
  return crossing(
    topology.ranks.map(({ rank, root }) => route(root, rank, { kind: 'tokens', group: sampledRows(topology, rank) })),
  );
}

/** The most states of a sequence's first `lanes` lanes that a rank sends, with any of some offsets; all of them where left out. */
export function laneRoom({ slots, of }: LaneSlots, lanes: number, offsets: readonly number[] = range(0, of)): number {
  const held = (offset: number): number =>
    range(0, Math.min(lanes, MERGE_LANES)).filter((lane) => slots.includes(chunkOwner(lane, of, offset))).length;
  const most = Math.max(0, ...offsets.map(held));
  return joinsLanes(of) ? Math.min(1, most) : most;
}

/** Bytes of a row, for a model's weight type. Rows are padded, so the widths of ranks' parts don't add up to the whole. */
export interface CargoWidths {
  /** Query heads of attention segments. */
  readonly heads: (segments: readonly number[]) => number;
  /** Queries of a weight group's segments beside those of others, with the row's latent where that travels. */
  readonly queries: (groups: readonly (readonly number[])[], withTokens: boolean) => number;
  /** A query head's lane state. */
  readonly state: number;
  /** Outputs of some segments' heads. */
  readonly attended: (segments: readonly number[]) => number;
  /** A segment's sum. */
  readonly segment: number;
  /** Its sums of squares, where q and k, or a mixer's output, are normalised over all heads at once. */
  readonly squares?: number;
  readonly hidden: number;
  /** Expert ids of a row, and all its experts' outputs. */
  readonly expertIds: number;
  readonly experts: number;
  /** Of the next token's candidates in so many rows of the vocabulary. */
  readonly candidates: (rows: number) => number;
}

/** Rows of a step by row group, the chunks that its longest sequence has, and the offsets of its sequences where they are known. */
export interface CargoStep {
  readonly rows: readonly number[];
  readonly chunks: number;
  readonly offsets?: readonly number[] | undefined;
}

/** Bytes of a route in a step. `tokensTravel`: the stage's queries bring what is appended, too. */
export function cargoBytes(
  cargo: Cargo,
  widths: CargoWidths,
  { rows, chunks, offsets }: CargoStep,
  tokensTravel: boolean,
): number {
  const count = cargo.group === ALL ? sum(rows) : nth(rows, cargo.group);
  switch (cargo.kind) {
    case 'queries':
      return count * widths.queries(cargo.beside, tokensTravel);
    case 'scores':
      return cargo.heads.length * chunks * CHUNK_TOKENS * 4;
    case 'lanes':
      return count * widths.heads(cargo.heads) * laneRoom(cargo.lanes, chunks, offsets) * widths.state;
    case 'attended':
      return count * Math.max(...cargo.beside.map((heads) => widths.attended(heads)));
    case 'segments':
      return count * cargo.sums.length * (cargo.squares ? widths.squares! : widths.segment);
    case 'hidden':
    case 'normed':
      return count * widths.hidden;
    case 'embedding':
      return count * widths.segment;
    case 'routed':
      return count * (widths.hidden + widths.expertIds);
    case 'routing':
      return count * 2 * widths.expertIds;
    case 'experts':
      return count * widths.experts;
    case 'logits':
      return count * (cargo.share.rows[1] - cargo.share.rows[0]) * 4;
    case 'candidates':
      return count * widths.candidates(cargo.most);
    case 'tokens':
      return count * TOKEN_BYTES;
  }
}

/** A token id, its position and its slot. */
const TOKEN_BYTES = 12;
