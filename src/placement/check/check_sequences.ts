import { sameList, showList } from '../../base/lists.js';
import { lanesOf, MERGE_LANES } from '../owner.js';
import { isKvOnly, type Stage } from '../plan.js';
import type { Refuse } from './refuse.js';
import { type Place, placeWeights, sequencePlaces } from '../sequences/sequence_ranges.js';

/** Refuses a stage that shards sequences over ranks (token or attention data parallelism) otherwise than `RankShare.sequences` says. */
export function checkSequences({ kind, shares }: Stage, refuse: Refuse): void {
  const silent = shares.find(({ sequences }) => sequences === undefined);
  if (silent) throw refuse(`rank ${silent.rank} has no sequences, others have: give every rank a weight, 0 for none`);
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
    checkLanes(places, kind === 'adp', refuse);
    if (placeWeights(places).every((weight) => weight === 0)) {
      const who = kind === 'adp' ? 'the ranks' : `rank ${root.rank} and those that follow it`;
      throw refuse(`${who} keep no sequences: give one of them a weight above 0`);
    }
  }
}

/** Every rank keeps all lanes, or ranks side by side split them: as many everywhere, but a root that keeps no sequence. */
function checkLanes(places: readonly Place[], ownRows: boolean, refuse: Refuse): void {
  const split = ownRows ? 1 : Math.max(...places.map(({ length }) => length));
  for (const place of places) {
    for (const [index, { rank, lanes, sequences }] of place.entries()) {
      const wanted = place.length === split ? lanesOf(split, index) : lanesOf(1, 0);
      if (!sameList(lanes, wanted)) {
        throw refuse(
          `rank ${rank}: lanes ${showList(lanes)}; ` +
            (split === 1
              ? `a rank that keeps whole sequences has all ${MERGE_LANES}`
              : `write ${showList(wanted)}: 1, 2, 4 or 8 ranks side by side split all ${MERGE_LANES}, and as many split those of every sequence`),
        );
      }
      if (sequences !== place[0]!.sequences) {
        throw refuse(
          `ranks ${place[0]!.rank} and ${rank} split the same sequences, but their weights are ${place[0]!.sequences} and ${sequences}; ` +
            'give them one',
        );
      }
    }
    const [first] = place;
    if (place.length < split && (isKvOnly(first!) || first!.sequences !== 0)) {
      throw refuse(
        `rank ${first!.rank} keeps whole sequences, others split theirs over ${split}: split all alike, and give a root beside them weight 0`,
      );
    }
  }
}
