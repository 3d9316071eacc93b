import { count, range, sameList, showList } from '../../base/lists.js';
import { laneSplit, MERGE_LANES } from '../owner.js';
import { type ModelShape, type RankShare, type Stage } from '../plan.js';
import { checkList, type Refuse } from './refuse.js';

/** Refuses a stage whose cache isn't placed as `checkPlan` says. The stage's weights are checked already. */
export function checkCache(stage: Stage, shape: ModelShape, refuse: Refuse): void {
  const { shares } = stage;
  for (const share of shares) {
    checkList(share.kvHeads, shape.kvHeads, `rank ${share.rank}: kvHeads`, refuse);
    checkList(share.lanes, MERGE_LANES, `rank ${share.rank}: lanes`, refuse);
    if (!laneSplit(share.lanes)) {
      throw refuse(
        `rank ${share.rank}: lanes ${showList(share.lanes)} are no residue class; ` +
          'a rank holds every S-th lane, S being 1, 2, 4 or 8: [0, 2, 4, 6], say',
      );
    }
  }
  checkHeads(shares, shape, refuse);
  const [first] = shares as [RankShare];
  const uneven = shares.find(({ lanes }) => lanes.length !== first.lanes.length);
  if (uneven) {
    throw refuse(
      `rank ${first.rank} has ${count(first.lanes.length, 'lane')}, rank ${uneven.rank} ${uneven.lanes.length}; ` +
        'every rank of a stage has as many',
    );
  }
  // Sequences of their own are held by one rank each, whatever the head and the lane.
  if (stage.kind !== 'adp') checkOwners(shares, shape, refuse);
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

/** Every (kv head, lane) is held once. */
function checkOwners(shares: readonly RankShare[], { kvHeads }: ModelShape, refuse: Refuse): void {
  for (const head of range(0, kvHeads)) {
    for (const lane of range(0, MERGE_LANES)) {
      const owners = shares.filter((share) => share.kvHeads.includes(head) && share.lanes.includes(lane));
      if (owners.length === 1) continue;
      const by = owners.length === 0 ? 'no rank' : `ranks ${owners.map(({ rank }) => rank).join(' and ')}`;
      throw refuse(
        `the cache of kv head ${head}, lane ${lane} is held by ${by}; change lanes so that one rank holds it`,
      );
    }
  }
}
