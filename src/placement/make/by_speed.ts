import { nth, range, sameList, sum } from '../../base/lists.js';
import { misfit, modelFeatures } from '../check/capabilities.js';
import { groupsAlike, type ModelShape, type Plan, type RankShare, type Stage, type VocabShare } from '../plan.js';
import { dataPlaces } from '../sequences/sequence_ranges.js';
import { chunksAsCopies } from './arranged_plan.js';
import { cutRows, spreadBy, spreadSegments } from './stage_cut.js';

/** Ranks this much faster than the slowest are worth a larger share. */
const UNLIKE = 1.15;

/**
 * Plans like one that a policy made, in which the faster ranks have more: of what is cut, that is heads, MLP segments, experts and
 * vocabulary rows; of the sequences that ranks run by themselves; and of the merge lanes of those that they share, as copies of heads
 * that share lanes. None where ranks are about as fast as each other, or all have everything. Which rank computes what changes no bit.
 * @param speeds by rank, in any unit that all share
 */
export function bySpeed(plan: Plan, shape: ModelShape, speeds: readonly number[]): Plan[] {
  const used = speeds.slice(0, plan.worldSize);
  if (Math.max(...used) < UNLIKE * Math.min(...used)) return [];
  const places = plan.stages.map(({ kind, shares }) => (kind === 'adp' ? dataPlaces(shares) : []));
  // A sequence has its place in every stage.
  const slowest = nth(places, 0).map((_, place) =>
    Math.min(...places.flatMap((own) => nth(own, place).map(({ rank }) => nth(used, rank)))),
  );
  const recut: Plan = {
    ...plan,
    stages: plan.stages.map((stage, at) => ({
      ...stage,
      shares: recutShares(stage, shape, used).map((share, rank) => {
        const place = nth(places, at).findIndex((members) => members.includes(nth(stage.shares, rank)));
        return place < 0 ? share : { ...share, sequences: rounded(nth(slowest, place) / Math.max(...slowest)) };
      }),
    })),
    embedding: recutRows(plan.embedding, shape, used),
    head: recutRows(plan.head, shape, used),
  };
  const mayCopy = misfit(['arranged', ...modelFeatures(shape)]) === undefined;
  const copied = mayCopy ? chunksAsCopies(recut, shape, used) : recut;
  const forms = new Set([JSON.stringify(plan)]);
  return [recut, copied].filter((own) => forms.size < forms.add(JSON.stringify(own)).size);
}

function recutShares({ kind, shares }: Stage, shape: ModelShape, speeds: readonly number[]): readonly RankShare[] {
  if (kind === 'token') return shares;
  const speedOf = ({ rank }: RankShare): number => nth(speeds, rank);
  const slowest = (group: readonly RankShare[]): number => Math.min(...group.map(speedOf));
  /** By rank: its new list, where groups of ranks have different ones. */
  const lists = (key: 'heads' | 'mlp', sizes: readonly number[]): Map<number, readonly number[]> => {
    const groups = groupsAlike(shares, key).filter(([{ [key]: own }]) => own.length > 0);
    const cut = groups.length > 1 ? spreadSegments(sizes, groups.length, groups.map(slowest)) : undefined;
    const places = cut ? groups.flatMap((group, at) => group.map(({ rank }) => [rank, nth(cut, at)] as const)) : [];
    return new Map(places);
  };
  const heads = kind === 'arranged' ? new Map<number, readonly number[]>() : lists('heads', shape.segmentHeads);
  const mlp = lists('mlp', shape.mlpSegments);
  const held = sum(shares.map(({ experts }) => experts.length));
  const experts = held === shape.numExperts ? spreadBy(shares.map(speedOf), held) : undefined;
  return shares.map((share, at) => {
    const own = heads.get(share.rank);
    return {
      ...share,
      ...(own && { heads: own, ...(!shape.latent && sameList(share.kvHeads, share.heads) && { kvHeads: own }) }),
      mlp: mlp.get(share.rank) ?? share.mlp,
      ...(experts && { experts: range(...nth(experts, at)) }),
    };
  });
}

/** Read by people. */
const rounded = (value: number): number => Math.max(0.01, Math.round(value * 100) / 100);

function recutRows(
  rows: readonly VocabShare[],
  { vocabSize }: ModelShape,
  speeds: readonly number[],
): readonly VocabShare[] {
  const held = sum(rows.map(({ rows: [first, end] }) => end - first));
  if (rows.length < 2 || held !== vocabSize) return rows;
  const cut = cutRows(
    vocabSize,
    rows.length,
    rows.map(({ rank }) => nth(speeds, rank)),
  );
  return cut.map((share) => ({ ...share, rank: nth(rows, share.rank).rank }));
}
