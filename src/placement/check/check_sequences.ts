import { sameList, showList } from '../../base/lists.js';
import { lanesOf, MERGE_LANES } from '../owner.js';
import { isKvOnly, type Stage } from '../plan.js';
import type { Refuse } from './refuse.js';
import { dataPlaces, type Place, placeWeights, sequencePlaces } from '../sequences/sequence_ranges.js';

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
    checkLanes(places, refuse);
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
function checkLanes(places: readonly Place[], refuse: Refuse): void {
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
