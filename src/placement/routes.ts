import { holdersOf, homeOf, laneHolders } from './sequences/copies.js';
import { range, sum } from '../base/lists.js';
import { CHUNK_TOKENS, chunkOwner, MERGE_LANES } from './owner.js';
import type { Plan, RankShare, VocabShare } from './plan.js';
import { matesOf, type PlanTopology, type RowRole, type StageTopology } from './topology.js';

/**
 * What travels between ranks in a step, as data: the runtime makes regions of buffers of it, the planner bytes and seconds. An exchange
 * exists because a route does. Everything here follows from the plan; how much a route carries in a step follows from its cargo, the
 * step's rows and the model's widths (`cargoBytes`).
 */

/** Rows of every row group. */
export const ALL = -1;

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
    /** Sums of a split contraction, segment by segment; for norms of q and k the sums of their squares. */
    | {
        readonly kind: 'segments';
        readonly of: 'heads' | 'mlp';
        readonly segments: readonly number[];
        readonly squares?: true;
      }
    /** The residual stream; rows that were normalised, perhaps with the experts that they were routed to; expert outputs; routing. */
    | { readonly kind: 'hidden' | 'normed' | 'routed' | 'experts' | 'routing' }
    /** Rows of the embedding that the sender has, zeros for others; `part`: its number among those that have some. */
    | { readonly kind: 'embedding'; readonly part: number }
    /** Logits or candidates for the next tokens, and the tokens. */
    | { readonly kind: 'logits' | 'candidates' | 'tokens'; readonly share?: VocabShare; readonly most?: number }
  );

export interface Route {
  readonly from: number;
  readonly to: number;
  readonly cargo: Cargo;
}

/** Messages that travel at once, by the name that errors and traces give them. */
export interface Exchange {
  readonly label: string;
  readonly routes: readonly Route[];
}

/** Those that lead to another rank; a rank's route to itself is a copy. */
export const crossing = (routes: readonly Route[]): Route[] => routes.filter(({ from, to }) => from !== to);

/** Every rank's part in a stage, of the ranks that have one. */
const partsOf = (topology: PlanTopology, stage: number): StageTopology[] =>
  topology.ranks.flatMap(({ stages }) => stages[stage] ?? []);

// ── Attention

/** Weight groups for whose heads a rank attends. */
export const attendedGroups = (stage: StageTopology): number[] =>
  stage.attendsForAll ? range(0, stage.groups.length) : [stage.group];

/** Their heads, by weight group. */
const headsBeside = (stage: StageTopology): (readonly number[])[] =>
  attendedGroups(stage).map((group) => stage.groups[group]![0]!.heads);

/** The rank that sends a weight group's queries for a row group to `stage`'s rank; that rank itself where it has them. */
export function querySource(
  topology: PlanTopology,
  { index, peers, groups }: StageTopology,
  role: RowRole,
  weights: number,
  group: number,
): RankShare {
  const runs = ({ rank }: RankShare): boolean => topology.ranks[rank]!.stages[index]!.runs[role].includes(group);
  return runs(peers[weights]!) ? peers[weights]! : groups[weights]!.find(runs)!;
}

/** Queries to the ranks that keep the chunks they attend to; new keys and values to the ranks that append them. */
export function queryRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  return partsOf(topology, stage).flatMap((part) => {
    const routes = part.attends[role].flatMap((group) =>
      attendedGroups(part).map((weights): Route => {
        const { rank: from, heads } = querySource(topology, part, role, weights, group);
        return { from, to: part.share.rank, cargo: { kind: 'queries', heads, beside: headsBeside(part), group } };
      }),
    );
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

/** A rank that has some of a sequence's chunks. */
export interface LaneKeeper {
  readonly rank: number;
  readonly lanes: LaneSlots;
}

/** Heads of a rank whose results come from the same ranks. */
export interface HeadBundle {
  /** Attention segments. */
  readonly heads: readonly number[];
  /** Ranks that have some of a sequence's chunks. */
  readonly keepers: readonly LaneKeeper[];
  /** Where the heads' lanes are merged: the rank itself, or another with copies. */
  readonly home: number;
}

/** A place that says how lanes come home: all are alike, but for those of roots that keep no sequence. */
export function usualPlace({ places, group, place, split }: StageTopology): number {
  const own = places[group]!;
  return own[place]!.length === split ? place : own.findIndex(({ length }) => length === split);
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
  const own = places[stage.group]!;
  const place = own.length === 1 ? own[0]! : own[group]!;
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
        .flatMap(({ heads, keepers, home: to }) => {
          if (keepers.length > 1) {
            return keepers.map(({ rank: from, lanes }): Route => ({
              from,
              to,
              cargo: { kind: 'lanes', heads, lanes, group },
            }));
          }
          const beside = headsBeside(part);
          const route: Route = { from: keepers[0]!.rank, to, cargo: { kind: 'attended', heads, beside, group } };
          // Outputs of several groups' heads don't lie where one of them goes on.
          return part.attendsForAll ? [route] : crossing([route]);
        }),
    ),
  );
}

/** Scores of a prompt's tokens, which decide what compression keeps: from every weight group to the ranks that keep the same sequences. */
export function scoreRoutes(topology: PlanTopology, stage: number): Route[] {
  const parts = partsOf(topology, stage).filter(({ groups }) => groups.length > 1);
  const scores = (part: StageTopology): boolean => part.holder.heads.length > 0;
  return crossing(
    parts.filter(scores).flatMap((part) =>
      parts
        .filter((other) => scores(other) && other.group !== part.group && other.place === part.place)
        .map((other): Route => ({
          from: part.share.rank,
          to: other.share.rank,
          cargo: { kind: 'scores', heads: part.holder.heads, group: part.place },
        })),
    ),
  );
}

// ── Contractions that are cut over ranks

/** Every weight group's segments to the rank of each other group that works on the same rows. */
export function segmentRoutes(topology: PlanTopology, stage: number, role: RowRole, of: 'heads' | 'mlp'): Route[] {
  const cut = (part: StageTopology): boolean => part.groups.length > 1 && part.holder === part.share;
  return crossing(
    partsOf(topology, stage)
      .filter(cut)
      .flatMap((part) =>
        part.runs[role].flatMap((group) =>
          part.peers
            .filter((peer) => peer[of].length > 0)
            .map((peer): Route => ({
              from: peer.rank,
              to: part.share.rank,
              cargo: { kind: 'segments', of, segments: peer[of], group },
            })),
        ),
      ),
  );
}

/**
 * Where places run rows of their own: every place's normalised rows to the ranks that compute MLP segments or experts for it. All ranks of
 * a place have them, so each rank gets them from the rank in its own position there.
 */
export function gatherRoutes(topology: PlanTopology, stage: number, routed: boolean): Route[] {
  const { placeRanks, kind } = topology.stages[stage]!;
  if (kind !== 'adp') return [];
  return placeRanks.flatMap((ranks, group) =>
    placeRanks.flatMap((others) =>
      others.map(({ rank: to }, at): Route => {
        const { rank: from } = ranks[at % ranks.length]!;
        return { from, to, cargo: { kind: routed ? 'routed' : 'normed', group } };
      }),
    ),
  );
}

/** Where places run rows of their own: MLP segments of all rows, to the ranks that run the row. */
export function gatheredSegmentRoutes(topology: PlanTopology, stage: number): Route[] {
  const { holders, placeRanks, gathersMlp } = topology.stages[stage]!;
  if (!gathersMlp) return [];
  return holders.flatMap(({ rank: from, mlp }) =>
    mlp.length === 0
      ? []
      : placeRanks.flatMap((ranks, group) =>
          ranks.map(({ rank: to }): Route => ({
            from,
            to,
            cargo: { kind: 'segments', of: 'mlp', segments: mlp, group },
          })),
        ),
  );
}

/** Outputs of routed experts to every rank that runs the rows. */
export function expertRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  const view = topology.stages[stage]!;
  const { holders, spreadsExperts, gathersExperts } = view;
  if (!spreadsExperts) return [];
  return holders
    .filter(({ experts }) => experts.length > 0)
    .flatMap((own) =>
      (gathersExperts ? holders : matesOf(view, own)).flatMap(({ rank: to }) =>
        topology.ranks[to]!.runs[role].map((group): Route => ({
          from: own.rank,
          to,
          cargo: { kind: 'experts', group },
        })),
      ),
    );
}

/** Where different adapters might break a near tie differently: the first rank's routing to all others that run the rows. */
export function routingRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  const { placeRanks, spreadsExperts } = topology.stages[stage]!;
  if (!spreadsExperts) return [];
  return placeRanks.flatMap(([router, ...rest]) =>
    rest.flatMap(({ rank: to }) =>
      topology.ranks[to]!.runs[role].map((group): Route => ({
        from: router!.rank,
        to,
        cargo: { kind: 'routing', group },
      })),
    ),
  );
}

// ── Between layers

/** Ranks that have rows of the embedding, or of the head, for the rows that a rank runs, in order. */
export const vocabHolders = (topology: PlanTopology, shares: readonly VocabShare[], rank: number): VocabShare[] =>
  shares.filter(
    ({ rank: other, rows: [first, end] }) =>
      end > first && topology.ranks[other]!.ownPlace === topology.ranks[rank]!.ownPlace,
  );

/** What carries sampled rows: all, or where places run rows of their own, those of one. */
const sampledRows = (topology: PlanTopology, rank: number): number => topology.ranks[rank]!.ownPlace ?? ALL;

/** Embedding rows of every rank that has some, where they are cut over ranks, to every rank of the first stage that runs rows. */
export function embeddingRoutes(topology: PlanTopology, plan: Plan, vocabSize: number, role: RowRole): Route[] {
  return topology.stages[0]!.holders.flatMap(({ rank: to }) => {
    const owners = vocabHolders(topology, plan.embedding, to);
    if (owners.every(({ rows: [first, end] }) => end - first === vocabSize)) return [];
    return topology.ranks[to]!.runs[role].flatMap((group) =>
      owners.map(({ rank: from }, part): Route => ({ from, to, cargo: { kind: 'embedding', part, group } })),
    );
  });
}

/** The residual stream from the stage before: from the rank itself where it had the rows, otherwise from one with the same. */
export function stageRoutes(topology: PlanTopology, stage: number, role: RowRole): Route[] {
  if (stage === 0) return [];
  const ranksOf = (at: number, group: number): number[] =>
    topology.stages[at]!.holders.map(({ rank }) => rank).filter((rank) =>
      topology.ranks[rank]!.runs[role].includes(group),
    );
  return range(0, topology.rowGroups[role]).flatMap((group) => {
    const [sources, receivers] = [ranksOf(stage - 1, group), ranksOf(stage, group)];
    return receivers
      .filter((rank) => !sources.includes(rank))
      .map((to): Route => ({
        from: sources[receivers.indexOf(to) % sources.length]!,
        to,
        cargo: { kind: 'hidden', group },
      }));
  });
}

/** Final rows of a row group to the ranks that have rows of the head. */
export function headRoutes(topology: PlanTopology, plan: Plan, role: RowRole, group: number): Route[] {
  const last = topology.stages.at(-1)!.holders.map(({ rank }) => rank);
  const senders = last.filter((rank) => topology.ranks[rank]!.runs[role].includes(group));
  return crossing(
    plan.head
      .filter(
        ({ rank, rows: [first, end] }) =>
          end > first && (topology.ranks[rank]!.ownPlace === undefined || senders.includes(rank)),
      )
      .map(({ rank: to }): Route => ({
        from: senders.includes(to) ? to : senders[last.indexOf(to) % senders.length]!,
        to,
        cargo: { kind: 'hidden', group },
      })),
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
      return [{ from, to: topology.ranks[from]!.root, cargo: { kind, share, most, group } }];
    }),
  );
}

/** Sampled tokens and their positions, from the rank that samples to all others that run the rows, or attend for them. */
export function tokenRoutes(topology: PlanTopology): Route[] {
  return crossing(
    topology.ranks.map(({ rank: to, root: from }): Route => ({
      from,
      to,
      cargo: { kind: 'tokens', group: sampledRows(topology, to) },
    })),
  );
}

// ── How much

/** The most of a sequence's first `lanes` lanes that a rank has, with any of some offsets; all of them where left out. */
export function laneRoom({ slots, of }: LaneSlots, lanes: number, offsets: readonly number[] = range(0, of)): number {
  const held = (offset: number): number =>
    range(0, Math.min(lanes, MERGE_LANES)).filter((lane) => slots.includes(chunkOwner(lane, of, offset))).length;
  return Math.max(0, ...offsets.map(held));
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
  /** Its sums of squares of q and k, where these are normalised over all heads at once. */
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
  const count = cargo.group === ALL ? sum(rows) : rows[cargo.group]!;
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
      return count * cargo.segments.length * (cargo.squares ? widths.squares! : widths.segment);
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
      return count * (cargo.share!.rows[1] - cargo.share!.rows[0]) * 4;
    case 'candidates':
      return count * widths.candidates(cargo.most!);
    case 'tokens':
      return count * TOKEN_BYTES;
  }
}

/** A token id, its position and its slot. */
const TOKEN_BYTES = 12;
