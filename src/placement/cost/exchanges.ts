import { range, sum } from '../lists.js';
import type { Plan, RankShare } from '../plan.js';
import type { MachineMeasure } from './measure.js';
import type { StageStep } from './stage_step.js';
import type { ModelWork } from './work.js';

/** Bytes from one rank to another. */
export interface Message {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** Messages that travel at once; every rank waits for its own. */
export interface Hop {
  readonly label: string;
  readonly messages: readonly Message[];
}

/**
 * A hop ends when the last rank has all that it waits for: the longest latency, with as many ranks as meet, and its bytes one message
 * after another.
 */
export function hopSeconds({ hops, crowding }: MachineMeasure, { messages }: Hop): number {
  const arrivals = new Map<number, { latency: number; transfer: number }>();
  const ranks = new Set<number>();
  for (const { from, to, bytes } of messages) {
    const { latencySeconds, bytesPerSecond } = hops[to]![from]!;
    const { latency, transfer } = arrivals.get(to) ?? { latency: 0, transfer: 0 };
    arrivals.set(to, { latency: Math.max(latency, latencySeconds), transfer: transfer + bytes / bytesPerSecond });
    ranks.add(from).add(to);
  }
  const crowd = ranks.size > 1 ? crowding[ranks.size - 1]! : 1;
  return Math.max(0, ...[...arrivals.values()].map(({ latency, transfer }) => latency * crowd + transfer));
}

/** The hops of one layer of a stage. `routed`: the layer has routed experts. */
export function layerHops(stage: StageStep, work: ModelWork, routed: boolean): Hop[] {
  const { groups, rows, lanes, holders: shares } = stage;
  const { segmentHeads, mlpSegments, hiddenSize } = work.shape;
  const rowBytes = rows * hiddenSize * 4;
  const headsOf = (share: RankShare): number => sum(share.heads.map((segment) => segmentHeads[segment]!));
  const filled = (list: readonly number[], sizes: readonly number[]): number =>
    list.filter((segment) => sizes[segment]! > 0).length;
  const groupOf = (share: RankShare): readonly RankShare[] => groups.find((group) => group.includes(share))!;
  // The rank of each weight group with the same place in it.
  const peersOf = (share: RankShare): RankShare[] => {
    const place = groupOf(share).indexOf(share);
    return groups.map((group) => group[place]!);
  };
  const hop = (
    label: string,
    sources: (to: RankShare) => readonly RankShare[],
    bytes: (from: RankShare, to: RankShare) => number,
  ): Hop => ({
    label,
    messages: shares
      .flatMap((to) => sources(to).map((from) => ({ from: from.rank, to: to.rank, bytes: bytes(from, to) })))
      .filter(isSent),
  });
  const queries = (from: RankShare): number =>
    rows * (headsOf(from) * work.queryBytes + from.heads.length * work.newKvBytes);
  const parts = (label: string, key: 'heads' | 'mlp', sizes: readonly number[]): Hop =>
    hop(label, peersOf, (from) => filled(from[key], sizes) * rowBytes);

  if (stage.runsOwnRows) return ownRowsHops(stage, work, routed);
  const hops: Hop[] = [];
  if (stage.dealt.length > 0) {
    const split = stage.placeSplit > 1;
    // Of sequences that several ranks split lanes travel, else outputs.
    const bytes = split ? lanes * work.stateBytes : work.stateBytes - STATE_SUMS;
    // A row's own latent is as wide as an absorbed query.
    const latentBytes = work.shape.latent ? work.queryBytes : 0;
    hops.push(
      dealtHop('queries', stage, (root, kept) => ({ out: (kept * queries(root)) / rows + kept * latentBytes })),
      dealtHop(split ? 'partials' : 'attended', stage, (root, kept) => ({ back: kept * headsOf(root) * bytes })),
    );
  }
  if (stage.rowSplit > 1) hops.push(hop('queries', groupOf, queries));
  else if (stage.attendsForAll) hops.push(hop('queries', peersOf, queries));
  if (stage.split > 1) {
    const owners = stage.attendsForAll ? () => shares : groupOf;
    hops.push(hop('partials', owners, (_, to) => rows * headsOf(to) * lanes * work.stateBytes));
  }
  const split = groups.length > 1;
  if (split) hops.push(parts('o_proj', 'heads', segmentHeads));
  const down = split ? parts('down_proj', 'mlp', mlpSegments) : undefined;
  if (routed && stage.spreadsExperts) {
    const holders = shares.filter(({ experts }) => experts.length > 0);
    const outputs = hop(
      'experts',
      () => holders,
      () => work.expertsPerToken * rowBytes,
    );
    // They travel with the shared experts' segments.
    hops.push({ label: 'experts', messages: [...(down?.messages ?? []), ...outputs.messages] });
  } else if (down) {
    hops.push(down);
  }
  return hops.filter(({ messages }) => messages.length > 0);
}

/** Of a merge lane, its maximum and its sum: outputs that are merged travel without. */
const STATE_SUMS = 2 * 4;

/** Between the roots and the ranks that keep sequences for them; `bytes`: of a member that keeps so many of the step's rows. */
const dealtHop = (
  label: string,
  stage: StageStep,
  bytes: (root: RankShare, kept: number) => { readonly out?: number; readonly back?: number },
): Hop => ({
  label,
  messages: stage.dealt
    .map((places) => places.flat())
    .flatMap(([root, ...members]) =>
      members.flatMap((member) => {
        const { out = 0, back = 0 } = bytes(root!, stage.keptOf(member));
        return [
          { from: root!.rank, to: member.rank, bytes: out },
          { from: member.rank, to: root!.rank, bytes: back },
        ];
      }),
    )
    .filter(isSent),
});

/** Where ranks run rows of their own: all rows to everyone for what is cut or spread, and the results home. */
function ownRowsHops(stage: StageStep, work: ModelWork, routed: boolean): Hop[] {
  const { holders, rowsOf } = stage;
  const spread = routed && stage.spreadsExperts;
  if (!spread && !stage.cutsMlp) return [];
  const rowBytes = work.shape.hiddenSize * 4;
  const computed = (share: RankShare): number =>
    (stage.cutsMlp ? share.mlp.filter((segment) => work.shape.mlpSegments[segment]! > 0).length : 0) +
    (spread && share.experts.length > 0 ? work.expertsPerToken : 0);
  const hop = (label: string, bytes: (holder: RankShare, to: RankShare) => number): Hop => ({
    label,
    messages: holders
      .flatMap((to) => holders.map((holder) => ({ from: holder.rank, to: to.rank, bytes: bytes(holder, to) })))
      .filter(isSent),
  });
  return [
    hop('rows', (holder) => rowsOf(holder) * rowBytes),
    hop(spread ? 'experts' : 'down_proj', (holder, to) => rowsOf(to) * computed(holder) * rowBytes),
  ].filter(({ messages }) => messages.length > 0);
}

const isSent = ({ from, to, bytes }: Message): boolean => from !== to && bytes > 0;

/**
 * The hops of a step outside its layers, by the stage that waits for them: embedding, from stage to stage, and logits and ids where
 * `samples` rows' tokens are sampled.
 */
export function stepHops(plan: Plan, stages: readonly StageStep[], work: ModelWork, samples: number): Hop[][] {
  const { vocabSize, hiddenSize } = work.shape;
  const [first] = stages as [StageStep];
  const rowBytes = hiddenSize * 4;
  const ranksOf = ({ holders }: StageStep): number[] => holders.map(({ rank }) => rank);
  const cut = plan.embedding.some(({ rows: [start, end] }) => end - start < vocabSize);
  const missing = plan.embedding.length < ranksOf(first).length;
  const hops: Hop[][] = stages.map(() => []);
  if (cut || missing) {
    const owners = plan.embedding.map(({ rank }) => rank);
    hops[0]!.push({ label: 'embedding', messages: pairs(owners, ranksOf(first), first.rows * rowBytes) });
  }
  for (const [i, stage] of stages.slice(1).entries()) {
    const before = ranksOf(stages[i]!);
    const messages = ranksOf(stage).map((to, at) => {
      const from = before.includes(to) ? to : before[at % before.length]!;
      return { from, to, bytes: stage.rows * rowBytes };
    });
    hops[i + 1]!.push({ label: 'stage', messages: messages.filter(isSent) });
  }
  const last = stages.at(-1)!;
  // Where ranks run rows of their own, each samples and keeps its tokens.
  if (samples > 0 && !last.runsOwnRows) {
    const lastHops = hops.at(-1)!;
    const holders = plan.head.map(({ rank }) => rank);
    if (last.rowSplit > 1) {
      // The last row may have run on any replica; mostly on another one than the head's.
      const from = ranksOf(last).find((rank) => !holders.includes(rank)) ?? ranksOf(last).at(-1)!;
      lastHops.push({ label: 'last row', messages: pairs([from], holders, samples * rowBytes) });
    }
    const root = holders[0]!;
    const logits = plan.head.map(({ rank, rows }) => ({
      from: rank,
      to: root,
      bytes: samples * (rows[1] - rows[0]) * 4,
    }));
    lastHops.push({ label: 'logits', messages: logits.filter(isSent) });
    lastHops.push({ label: 'tokens', messages: pairs([root], range(0, plan.worldSize), samples * 4) });
  }
  return hops.map((own) => own.filter(({ messages }) => messages.length > 0));
}

/** Everyone of `from` to everyone else of `to`. */
const pairs = (from: readonly number[], to: readonly number[], bytes: number): Message[] =>
  to.flatMap((receiver) => from.map((sender) => ({ from: sender, to: receiver, bytes })).filter(isSent));
