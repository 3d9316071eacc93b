import { range, sameList, showList } from '../../base/lists.js';
import { MERGE_LANES, lanesOf } from '../owner.js';
import { type ModelShape, type RankShare, type Stage, isKvOnly } from '../plan.js';
import { type Refuse, checkList } from './refuse.js';
import { type Place, dataPlaces, placeWeights, sequencePlaces } from '../sequences/sequence_ranges.js';

/** Refuses a stage whose cache isn't placed as `checkPlan` says. The stage's weights are checked already. */
export function checkCache(stage: Stage, shape: ModelShape, refuse: Refuse): void {
  const { shares } = stage;
  for (const share of shares) {
    checkList(share.kvHeads, shape.kvHeads, `rank ${share.rank}: kvHeads`, refuse);
    checkList(share.lanes, Math.max(MERGE_LANES, shares.length), `rank ${share.rank}: lanes`, refuse);
  }
  checkHeads(shares, shape, refuse);
  // Each sequence of a latent that several roots share is held by one rank, whatever the head.
  const alone = stage.kind === 'token' && shape.latent;
  for (const share of shares) checkLanes(alone ? [share] : holdersOf(shares, share), refuse);
}

/** Ranks that keep the same heads' cache, and split every sequence. */
const holdersOf = (shares: readonly RankShare[], { kvHeads }: RankShare): RankShare[] =>
  shares.filter((other) => sameList(other.kvHeads, kvHeads)).toSorted((a, b) => (a.lanes[0] ?? 0) - (b.lanes[0] ?? 0));

/** Every lane is held once, in turns. */
function checkLanes(holders: readonly RankShare[], refuse: Refuse): void {
  const split = holders.length;
  for (const [index, { rank, lanes }] of holders.entries()) {
    const wanted = lanesOf(split, index);
    if (sameList(lanes, wanted)) continue;
    const who = split === 1 ? 'alone' : `with ranks ${showList(holders.map((holder) => holder.rank))}`;
    throw refuse(
      `rank ${rank}: lanes ${showList(lanes)}; it keeps the cache of its heads ${who}, and ${split === 1 ? 'has all lanes' : `each has every ${split}th lane`}: ` +
        `write ${showList(wanted)}`,
    );
  }
}

/** Every rank keeps its own heads' cache, or every rank keeps all. */
function checkHeads(shares: readonly RankShare[], { latent, kvHeads }: ModelShape, refuse: Refuse): void {
  const all = range(0, kvHeads);
  const wanted = latent ? 'the latent has no heads: write [0]' : "keep the rank's own heads, or all";
  const isOwn = (share: RankShare): boolean => !latent && sameList(share.kvHeads, share.heads);
  const isAll = (share: RankShare): boolean => sameList(share.kvHeads, all);
  for (const share of shares) {
    if (!isOwn(share) && !isAll(share)) {
      throw refuse(`rank ${share.rank}: kvHeads ${showList(share.kvHeads)}: ${wanted}`);
    }
  }
  if (!shares.every(isOwn) && !shares.every(isAll)) {
    const partial = shares.find((share) => !isAll(share))!;
    const whole = shares.find((share) => !isOwn(share))!;
    throw refuse(
      `rank ${partial.rank} keeps the cache of its own heads, rank ${whole.rank} of all heads; choose one for the stage`,
    );
  }
}

function checkWeighed(shares: Stage['shares'], refuse: Refuse): void {
  const silent = shares.find(({ sequences }) => sequences === undefined);
  if (silent) throw refuse(`rank ${silent.rank} has no sequences, others have: give every rank a weight, 0 for none`);
}

/** Refuses a stage of attention data parallelism whose weights of sequences aren't those of groups. */
export function checkOwnSequences({ shares }: Stage, refuse: Refuse): void {
  checkWeighed(shares, refuse);
  const places = dataPlaces(shares);
  for (const place of places) checkOneWeight(place, 'run', refuse);
  if (placeWeights(places).every((weight) => weight === 0)) {
    throw refuse('the ranks keep no sequences: give one of them a weight above 0');
  }
}

/** Refuses a stage that shards sequences over a root and KV-only ranks otherwise than `RankShare.sequences` says. */
export function checkSequences({ shares }: Stage, refuse: Refuse): void {
  checkWeighed(shares, refuse);
  const roots = shares.filter((share) => !isKvOnly(share));
  if (roots.length === 0) throw refuse('no rank holds weights: give one heads and MLP segments');
  for (const share of shares) {
    const { rank, mlp, experts, kvHeads } = share;
    if (share.heads.length > 0) continue;
    if (mlp.length + experts.length > 0) {
      throw refuse(
        `rank ${rank} has no heads, but MLP segments or experts: a rank that keeps sequences holds no weights`,
      );
    }
    if (!roots.some((root) => sameList(root.kvHeads, kvHeads))) {
      throw refuse(`rank ${rank}: kvHeads ${showList(kvHeads)} are those of no rank with weights; write its root's`);
    }
  }
  for (const root of roots) {
    const places = sequencePlaces(root, shares);
    checkPlaces(places, refuse);
    if (placeWeights(places).every((weight) => weight === 0)) {
      throw refuse(`rank ${root.rank} and those that follow it keep no sequences: give one of them a weight above 0`);
    }
  }
}

function checkOneWeight(place: Place, what: 'run' | 'split', refuse: Refuse): void {
  const [first] = place;
  const other = place.find(({ sequences }) => sequences !== first!.sequences);
  if (!other) return;
  throw refuse(
    `ranks ${first!.rank} and ${other.rank} ${what} the same sequences, but their weights are ${first!.sequences} and ${other.sequences}; ` +
      'give them one',
  );
}

/** Every rank keeps all lanes, or ranks side by side split them: as many everywhere, but a root that keeps no sequence. */
function checkPlaces(places: readonly Place[], refuse: Refuse): void {
  const split = Math.max(...places.map(({ length }) => length));
  for (const place of places) {
    for (const [index, { rank, lanes }] of place.entries()) {
      const wanted = place.length === split ? lanesOf(split, index) : lanesOf(1, 0);
      if (!sameList(lanes, wanted)) {
        throw refuse(
          `rank ${rank}: lanes ${showList(lanes)}; ` +
            (split === 1
              ? `a rank that keeps whole sequences has all ${MERGE_LANES}`
              : `write ${showList(wanted)}: ranks side by side split all ${MERGE_LANES}, and as many split those of every sequence`),
        );
      }
    }
    checkOneWeight(place, 'split', refuse);
    const [first] = place;
    if (place.length < split && (isKvOnly(first!) || first!.sequences !== 0)) {
      throw refuse(
        `rank ${first!.rank} keeps whole sequences, others split theirs over ${split}: split all alike, and give a root beside them weight 0`,
      );
    }
  }
}
