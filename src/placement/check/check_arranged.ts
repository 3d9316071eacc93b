import { range, sameList, showList, sum } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import type { CopySharing } from '../../arrangement/types.js';
import { hasGap, isKvOnly, type ModelShape, type RankShare, type Stage } from '../plan.js';
import { checkExperts } from './check_weights.js';
import { checkList, type Refuse } from './refuse.js';

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
  for (const segment of shape.mlpSegments.keys()) {
    const holders = shares.filter(({ mlp }) => mlp.includes(segment)).map(({ rank }) => rank);
    if (holders.length === 1) continue;
    throw refuse(
      holders.length === 0
        ? `MLP segment ${segment} is held by no rank; add it to one rank's mlp`
        : `MLP segment ${segment} is held by ranks ${holders.join(' and ')}; with arranged heads one rank holds it`,
    );
  }
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
  if (hasGap(mlp)) throw refuse(`rank ${rank}: mlp ${showList(mlp)} have a gap; for now a rank holds neighbours`);
  if (mlp.length > 0 && sum(shape.mlpSegments) > 0 && sum(mlp.map((segment) => shape.mlpSegments[segment]!)) === 0) {
    throw refuse(`rank ${rank}: mlp ${showList(mlp)} have no columns; give it a segment that has some, or none`);
  }
  if (!sameList(kvHeads, heads)) {
    const why = hasGap(heads) ? `heads ${showList(heads)} have a gap` : 'heads are arranged freely';
    throw refuse(`rank ${rank}: ${why}, so a rank keeps the cache of its own heads: write kvHeads ${showList(heads)}`);
  }
  if (!sameList(lanes, range(0, MERGE_LANES))) {
    throw refuse(`rank ${rank}: lanes ${showList(lanes)}; with arranged heads a rank has all ${MERGE_LANES}`);
  }
  checkList(
    copies.map(({ head }) => head),
    shape.segmentHeads.length,
    `rank ${rank}: copies`,
    refuse,
  );
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
  const parts = listed.map(({ copies = [] }) => copies.find((copy) => copy.head === head)!.share);
  const bad = parts.find((part) => !(part > 0 && part < 1));
  if (bad !== undefined) throw refuse(`kv head ${head}: a copy's share is ${bad}; expected a part between 0 and 1`);
  if (Math.abs(sum(parts) - 1) > ROUNDING) {
    throw refuse(`kv head ${head}: the shares of its ${parts.length} copies add up to ${sum(parts)}; expected 1`);
  }
}
