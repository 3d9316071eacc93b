import { range, sameList, showList } from '../../base/lists.js';
import { lanesOf, MERGE_LANES } from '../owner.js';
import { type ModelShape, type RankShare, type Stage } from '../plan.js';
import { checkList, type Refuse } from './refuse.js';

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
