import { count, range, sameList, showList, sum } from '../../base/lists.js';
import { hasGap, type ModelShape, type RankShare, type Stage } from '../plan.js';
import { dataPlaces, type Place } from '../sequences/sequence_ranges.js';
import { checkList, type Refuse } from './refuse.js';

/** Refuses a stage whose attention segments, MLP segments or experts aren't placed as `checkPlan` says. */
export function checkWeights(stage: Stage, shape: ModelShape, refuse: Refuse): void {
  const { shares } = stage;
  checkSegments(shares, { ...attention, sizes: shape.segmentHeads }, refuse);
  checkSegments(shares, { ...feedForward, sizes: shape.mlpSegments }, refuse);
  checkPairs(shares, refuse);
  checkExperts(shares, shape.numExperts, refuse);
}

const attention = { key: 'heads', what: 'attention segment', holds: 'query heads' } as const;
const feedForward = { key: 'mlp', what: 'MLP segment', holds: 'columns' } as const;

/**
 * The same of a stage of attention data parallelism, whose groups are alike in their heads: each cuts MLP segments over its own ranks, or
 * those of all groups do; likewise experts.
 */
export function checkDataWeights({ shares }: Stage, shape: ModelShape, refuse: Refuse): void {
  const places = dataPlaces(shares);
  const [first] = places as [Place];
  checkSegments(first, { ...attention, sizes: shape.segmentHeads }, refuse);
  const wholePlaces = places.filter(
    (place) => new Set(place.flatMap(({ mlp }) => mlp)).size === shape.mlpSegments.length,
  );
  const mlp = { ...feedForward, sizes: shape.mlpSegments };
  if (wholePlaces.length === places.length) {
    for (const place of places) {
      checkSegments(place, mlp, refuse);
      checkPairs(place, refuse);
      const other = place.find((share, at) => !sameList(share.mlp, first[at]!.mlp));
      if (other)
        throw refuse(`rank ${other.rank} holds mlp ${showList(other.mlp)}: cut MLP segments alike in each group`);
    }
  } else {
    checkSegments(shares, mlp, refuse);
    checkOneHolder(shares, refuse);
  }
  const wholeExperts = places.every(
    (place) => new Set(place.flatMap(({ experts }) => experts)).size === shape.numExperts,
  );
  for (const group of wholeExperts ? places : [shares]) checkExperts(group, shape.numExperts, refuse);
}

interface SegmentKind {
  readonly key: 'heads' | 'mlp';
  readonly what: string;
  /** What a segment has some of, or none. */
  readonly holds: string;
  readonly sizes: readonly number[];
}

function checkSegments(shares: readonly RankShare[], kind: SegmentKind, refuse: Refuse): void {
  const { key, what, holds, sizes } = kind;
  for (const share of shares) {
    const list = share[key];
    checkList(list, sizes.length, `rank ${share.rank}: ${key}`, refuse);
    checkRun(list, `rank ${share.rank}: ${key}`, refuse);
  }
  const groups = distinct(shares, key);
  for (const segment of sizes.keys()) {
    const holders = groups.filter((group) => group[0]![key].includes(segment));
    if (holders.length === 0) throw refuse(`${what} ${segment} is held by no rank; add it to one rank's ${key}`);
    if (holders.length > 1) {
      const [a, b] = holders.map((group) => group[0]!);
      throw refuse(
        `ranks ${a!.rank} and ${b!.rank} share ${what} ${segment}, but their ${key} differ (${showList(a![key])}; ` +
          `${showList(b![key])}): ranks hold the same ${key} or none in common`,
      );
    }
  }
  const filled = sizes.filter((size) => size > 0).length;
  if (filled > 0 && groups.length > filled) {
    throw refuse(
      `${count(groups.length, 'group')} of ranks with different ${key}; this model has ${count(filled, what)} with ` +
        `${holds}, so at most ${count(filled, 'rank')} can hold different ones`,
    );
  }
  for (const group of groups) {
    const [first] = group as [RankShare];
    if (filled > 0 && sum(first[key].map((segment) => sizes[segment]!)) === 0) {
      throw refuse(
        `rank ${first.rank}: ${key} ${showList(first[key])} have no ${holds}; give it a segment that has some`,
      );
    }
    if (group.length !== groups[0]!.length) {
      throw refuse(
        `${key} ${showList(groups[0]![0]![key])} are held by ${count(groups[0]!.length, 'rank')}, ` +
          `${showList(first[key])} by ${group.length}; every group needs as many`,
      );
    }
  }
}

function checkPairs(shares: readonly RankShare[], refuse: Refuse): void {
  for (const [i, a] of shares.entries()) {
    for (const b of shares.slice(i + 1)) {
      const equal = { heads: sameList(a.heads, b.heads), mlp: sameList(a.mlp, b.mlp) };
      if (equal.heads !== equal.mlp) {
        const [same, differing] = equal.heads ? ['heads', 'mlp'] : ['mlp', 'heads'];
        throw refuse(
          `ranks ${a.rank} and ${b.rank} hold the same ${same} but different ${differing}; replicas share both`,
        );
      }
    }
  }
}

/** Where ranks run their own rows, one rank computes a segment for all of them, or each has all segments. */
function checkOneHolder(shares: readonly RankShare[], refuse: Refuse): void {
  const groups = distinct(shares, 'mlp');
  const [a, b] = groups.find((group) => group.length > 1) ?? [];
  if (groups.length === 1 || !a || !b) return;
  throw refuse(
    `ranks ${a.rank} and ${b.rank} both hold mlp ${showList(a.mlp)}; where every rank runs its own rows, give each ` +
      'MLP segment to one rank, or all segments to every rank',
  );
}

/** Experts are held by one rank each, a rank's contiguous, or all by every rank. */
export function checkExperts(shares: readonly RankShare[], numExperts: number, refuse: Refuse): void {
  for (const { rank, experts } of shares) {
    checkList(experts, numExperts, `rank ${rank}: experts`, refuse);
    checkRun(experts, `rank ${rank}: experts`, refuse);
  }
  if (shares.every(({ experts }) => experts.length === numExperts)) return;
  for (const expert of range(0, numExperts)) {
    const holders = shares.filter(({ experts }) => experts.includes(expert)).map(({ rank }) => rank);
    if (holders.length !== 1) {
      throw refuse(
        `expert ${expert} is held by ${holders.length === 0 ? 'no rank' : `ranks ${holders.join(' and ')}`}; ` +
          'give each expert to one rank, or all experts to every rank',
      );
    }
  }
}

function checkRun(list: readonly number[], name: string, refuse: Refuse): void {
  if (hasGap(list)) throw refuse(`${name} ${showList(list)} have a gap; for now a rank holds neighbours`);
}

/** Groups of ranks with the same list, in order of appearance. */
function distinct(shares: readonly RankShare[], key: 'heads' | 'mlp'): RankShare[][] {
  const groups = new Map<string, RankShare[]>();
  for (const share of shares) {
    const name = share[key].join();
    groups.set(name, [...(groups.get(name) ?? []), share]);
  }
  return [...groups.values()];
}
