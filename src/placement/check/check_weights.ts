import type { SplitkvError } from '../../base/errors.js';
import { count, nth, range, sameList, showList, sum } from '../../base/lists.js';
import {
  type ModelShape,
  type Plan,
  type RankShare,
  type Stage,
  type VocabShare,
  cutsColumns,
  groupsAlike,
  hasGap,
  isKvOnly,
} from '../plan.js';
import { dataPlaces } from '../sequences/sequence_ranges.js';
import { MERGE_LANES } from '../owner.js';
import type { CopySharing } from '../../arrangement/types.js';

/** Makes the error for a fault found, saying where it is. */
export type Refuse = (what: string) => SplitkvError;

/** Refuses a list that isn't ascending, or has entries that aren't whole numbers below `limit`. */
export function checkList(list: readonly number[], limit: number, name: string, refuse: Refuse): void {
  for (const [i, value] of list.entries()) {
    if (!Number.isInteger(value) || value < 0 || value >= limit) {
      throw refuse(`${name} has ${value}; ${limit === 0 ? 'this model has none' : `expected 0 to ${limit - 1}`}`);
    }
    if (i > 0 && value <= list[i - 1]!) {
      throw refuse(`${name} has ${value} after ${list[i - 1]}; list each once, in ascending order`);
    }
  }
}

const attention = { key: 'heads', what: 'attention segment', holds: 'query heads' } as const;
const feedForward = { key: 'mlp', what: 'MLP segment', holds: 'columns' } as const;

/**
 * Refuses a stage whose attention segments, MLP segments or experts aren't placed as `checkPlan` says. Groups of ranks that run rows of
 * their own are alike in their heads: each cuts MLP segments over its own ranks, or those of all groups do; likewise experts.
 */
export function checkWeights({ kind, shares }: Stage, shape: ModelShape, refuse: Refuse): void {
  const places = kind === 'adp' ? dataPlaces(shares) : [shares];
  const first = nth(places, 0);
  checkSegments(first, { ...attention, sizes: shape.segmentHeads }, refuse);
  /** Each place has all of them. */
  const areWhole = (key: 'mlp' | 'experts', n: number): boolean =>
    places.every((place) => new Set(place.flatMap((share) => share[key])).size === n);
  const mlp = { ...feedForward, sizes: shape.mlpSegments };
  if (areWhole('mlp', shape.mlpSegments.length)) {
    for (const place of places) {
      checkSegments(place, mlp, refuse);
      if (kind === 'token' || !cutsColumns(place)) checkPairs(place, refuse);
      const other = place.find((share, at) => !sameList(share.mlp, nth(first, at).mlp));
      if (other)
        throw refuse(`rank ${other.rank} holds mlp ${showList(other.mlp)}: cut MLP segments alike in each group`);
    }
  } else {
    checkSegments(shares, mlp, refuse);
    checkOneMlp(shares, refuse);
  }
  const among = areWhole('experts', shape.numExperts) ? places : [shares];
  for (const group of among) checkExperts(group, shape.numExperts, refuse);
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
  const groups = groupsAlike(shares, key);
  for (const segment of sizes.keys()) {
    const [a, b] = groups.flatMap(([first]) => (first[key].includes(segment) ? [first] : []));
    if (!a) throw refuse(`${what} ${segment} is held by no rank; add it to one rank's ${key}`);
    if (b) {
      throw refuse(
        `ranks ${a.rank} and ${b.rank} share ${what} ${segment}, but their ${key} differ (${showList(a[key])}; ` +
          `${showList(b[key])}): ranks hold the same ${key} or none in common`,
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
  const usual = nth(groups, 0);
  for (const group of groups) {
    const [first] = group;
    if (filled > 0 && sum(first[key].map((segment) => nth(sizes, segment))) === 0) {
      throw refuse(
        `rank ${first.rank}: ${key} ${showList(first[key])} have no ${holds}; give it a segment that has some`,
      );
    }
    if (group.length !== usual.length) {
      throw refuse(
        `${key} ${showList(usual[0][key])} are held by ${count(usual.length, 'rank')}, ` +
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
function checkOneMlp(shares: readonly RankShare[], refuse: Refuse): void {
  const groups = groupsAlike(shares, 'mlp');
  const [a, b] = groups.find((group) => group.length > 1) ?? [];
  if (groups.length === 1 || !a || !b) return;
  throw refuse(
    `ranks ${a.rank} and ${b.rank} both hold mlp ${showList(a.mlp)}; where every rank runs its own rows, give each ` +
      'MLP segment to one rank, or all segments to every rank',
  );
}

/** Experts are held by one rank each, a rank's contiguous, or all by every rank. */
function checkExperts(shares: readonly RankShare[], numExperts: number, refuse: Refuse): void {
  for (const { rank, experts } of shares) {
    checkList(experts, numExperts, `rank ${rank}: experts`, refuse);
    checkRun(experts, `rank ${rank}: experts`, refuse);
  }
  if (shares.every(({ experts }) => experts.length === numExperts)) return;
  checkOneHolder(shares, 'experts', numExperts, 'give each expert to one rank, or all experts to every rank', refuse);
}

/** Each of `n` experts, or MLP segments, is on one rank. */
function checkOneHolder(
  shares: readonly RankShare[],
  key: 'experts' | 'mlp',
  n: number,
  advice: string,
  refuse: Refuse,
): void {
  for (const item of range(0, n)) {
    const holders = shares.filter((share) => share[key].includes(item)).map(({ rank }) => rank);
    if (holders.length === 1) continue;
    const where = holders.length === 0 ? 'no rank' : `ranks ${holders.join(' and ')}`;
    throw refuse(`${key === 'mlp' ? 'MLP segment' : 'expert'} ${item} is held by ${where}; ${advice}`);
  }
}

function checkRun(list: readonly number[], name: string, refuse: Refuse): void {
  if (hasGap(list)) throw refuse(`${name} ${showList(list)} have a gap; for now a rank holds neighbours`);
}

/** Shares of a head's copies add up to 1 within rounding. */
const ROUNDING = 1e-6;

/** Refuses a stage of kind 'arranged' that isn't as `checkPlan` says. `sharing`: the plan's. */
export function checkArranged(
  { shares, loads }: Stage,
  sharing: CopySharing | undefined,
  shape: ModelShape,
  refuse: Refuse,
): void {
  for (const share of shares) checkShare(share, shape, refuse);
  for (const head of shape.segmentHeads.keys()) checkHolders(head, shares, refuse);
  checkExperts(shares, shape.numExperts, refuse);
  const advice = 'with arranged heads one rank holds each: list it in one mlp';
  checkOneHolder(shares, 'mlp', shape.mlpSegments.length, advice, refuse);
  if (loads && loads.length !== shape.segmentHeads.length) {
    throw refuse(
      `loads has ${loads.length} numbers for ${shape.segmentHeads.length} kv heads; give one each, or leave it out`,
    );
  }
  if (sharing === 'lanes') {
    const crowded = [...shape.segmentHeads.keys()].find(
      (head) => shares.filter(({ heads }) => heads.includes(head)).length > MERGE_LANES,
    );
    if (crowded !== undefined) {
      throw refuse(
        `kv head ${crowded} has more copies than the ${MERGE_LANES} merge lanes that they share; write "sharing": "sequences"`,
      );
    }
  }
  if (sharing === undefined && shares.some(({ copies = [] }) => copies.length > 0)) {
    throw refuse(
      'heads are copied, and nothing says how copies share them: write "sharing": "sequences" or "lanes" in the plan',
    );
  }
}

function checkShare(share: RankShare, shape: ModelShape, refuse: Refuse): void {
  const { rank, heads, mlp, kvHeads, lanes, copies = [] } = share;
  checkList(heads, shape.segmentHeads.length, `rank ${rank}: heads`, refuse);
  checkList(mlp, shape.mlpSegments.length, `rank ${rank}: mlp`, refuse);
  if (isKvOnly(share)) throw refuse(`rank ${rank} holds nothing of these layers; leave it out of them`);
  checkRun(mlp, `rank ${rank}: mlp`, refuse);
  if (
    mlp.length > 0 &&
    sum(shape.mlpSegments) > 0 &&
    sum(mlp.map((segment) => nth(shape.mlpSegments, segment))) === 0
  ) {
    throw refuse(`rank ${rank}: mlp ${showList(mlp)} have no columns; give it a segment that has some, or none`);
  }
  if (!sameList(kvHeads, heads)) {
    const why = hasGap(heads) ? `heads ${showList(heads)} have a gap` : 'heads are arranged freely';
    throw refuse(`rank ${rank}: ${why}, so a rank keeps the cache of its own heads: write kvHeads ${showList(heads)}`);
  }
  if (!sameList(lanes, range(0, MERGE_LANES))) {
    throw refuse(`rank ${rank}: lanes ${showList(lanes)}; with arranged heads a rank has all ${MERGE_LANES}`);
  }
  const copied = copies.map(({ head }) => head);
  checkList(copied, shape.segmentHeads.length, `rank ${rank}: copies`, refuse);
}

/** A head is on one rank, or on several that all list their copy. */
function checkHolders(head: number, shares: readonly RankShare[], refuse: Refuse): void {
  const holders = shares.filter(({ heads }) => heads.includes(head));
  const names = holders.map(({ rank }) => rank).join(' and ');
  if (holders.length === 0) throw refuse(`attention segment ${head} is held by no rank; add it to one rank's heads`);
  const listed = shares.filter(({ copies = [] }) => copies.some((copy) => copy.head === head));
  const stray = listed.find((share) => !holders.includes(share));
  if (stray) throw refuse(`rank ${stray.rank}: copies list kv head ${head}, which isn't among its heads; add it there`);
  if (holders.length === 1) {
    if (listed.length === 0) return;
    throw refuse(`rank ${names}: copies list kv head ${head}, which no other rank holds; leave it out of copies`);
  }
  if (listed.length < holders.length) {
    throw refuse(
      `kv head ${head} is held by ranks ${names}: list it in the copies of each, with shares that add up to 1`,
    );
  }
  const parts = listed.flatMap(({ copies = [] }) => copies.find((copy) => copy.head === head)?.share ?? []);
  const bad = parts.find((part) => !(part > 0 && part < 1));
  if (bad !== undefined) throw refuse(`kv head ${head}: a copy's share is ${bad}; expected a part between 0 and 1`);
  if (Math.abs(sum(parts) - 1) > ROUNDING) {
    throw refuse(`kv head ${head}: the shares of its ${parts.length} copies add up to ${sum(parts)}; expected 1`);
  }
}

/** Cuts of the vocabulary lie at multiples of this many rows, so that a rank's part packs like any matrix. */
export const VOCAB_GRANULE = 64;

/** Refuses an embedding table or head whose rows aren't placed as `Plan` says. */
export function checkVocabulary({ stages, embedding, head }: Plan, { vocabSize }: ModelShape, refuse: Refuse): void {
  const ends = [
    { what: 'embedding', shares: embedding, stage: nth(stages, 0), where: 'first' },
    { what: 'head', shares: head, stage: nth(stages, stages.length - 1), where: 'last' },
  ];
  for (const { what, shares, stage, where } of ends) {
    const all = ranksOf(stage);
    checkRanks(shares, all, what, where, refuse);
    for (const ranks of placesOf(stage, all)) {
      const own = shares.filter(({ rank }) => ranks.has(rank));
      const name = nameOf(what, ranks, all);
      const isWhole = own.length > 1 && own.every(({ rows: [a, b] }) => a === 0 && b === vocabSize);
      if (what === 'head' || !isWhole) checkRows(own, vocabSize, name, refuse);
      else if (own.length !== ranks.size) {
        throw refuse(
          `${name}: ${own.length} of ${ranks === all ? "the first stage's" : 'these'} ${ranks.size} ranks hold all rows; ` +
            'every rank of it must, or cut the rows between ranks',
        );
      }
    }
  }
}

/** Ranks that embed and sample the same rows: all, or each place where places run rows of their own. */
const placesOf = ({ kind, shares }: Stage, all: Set<number>): Set<number>[] =>
  kind === 'adp' ? dataPlaces(shares).map((place) => new Set(place.map(({ rank }) => rank))) : [all];

const nameOf = (what: string, ranks: Set<number>, all: Set<number>): string =>
  ranks === all
    ? what
    : `${what} of ${count(ranks.size, 'rank')} that ${ranks.size === 1 ? 'runs rows of its' : 'run rows of their'} own (${[...ranks].join(', ')})`;

const ranksOf = (stage: Stage): Set<number> =>
  new Set(stage.shares.filter((share) => !isKvOnly(share)).map(({ rank }) => rank));

function checkRanks(
  shares: readonly VocabShare[],
  allowed: ReadonlySet<number>,
  name: string,
  stage: string,
  refuse: Refuse,
): void {
  const seen = new Set<number>();
  for (const { rank } of shares) {
    if (!allowed.has(rank)) {
      throw refuse(
        `${name}: rank ${rank} is not in the ${stage} stage; its rows belong on rank ${[...allowed].join(', ')}`,
      );
    }
    if (seen.has(rank)) throw refuse(`${name}: rank ${rank} is listed twice; give it one range of rows`);
    seen.add(rank);
  }
}

function checkRows(shares: readonly VocabShare[], vocabSize: number, name: string, refuse: Refuse): void {
  let next = 0;
  for (const { rank, rows } of shares) {
    const [first, end] = rows;
    const bad = (why: string): Error => refuse(`${name}: rank ${rank} has rows [${first}, ${end}]: ${why}`);
    if (first !== next) throw bad(`expected them to start at ${next}, without gap or overlap and in order`);
    if (!Number.isInteger(end) || end <= first || end > vocabSize) {
      throw bad(`expected their end above ${first} and at most ${vocabSize}, the vocabulary's size`);
    }
    if (end !== vocabSize && end % VOCAB_GRANULE !== 0) throw bad(`cut at multiples of ${VOCAB_GRANULE}`);
    next = end;
  }
  if (next !== vocabSize) throw refuse(`${name}: rows ${next} to ${vocabSize - 1} are held by no rank`);
}
