import { MERGE_LANES } from './owner.js';
import { sameList, showList } from './lists.js';
import { keepsCacheOnly, type ModelShape, runsOwnRows, type Stage } from './plan.js';
import type { Refuse } from './refuse.js';

/** Refuses a stage that deals sequences out to ranks (token or attention data parallelism) otherwise than `RankShare.sequences` says. */
export function checkSequences(stage: Stage, { latent }: ModelShape, refuse: Refuse): void {
  const { shares } = stage;
  const silent = shares.find(({ sequences }) => sequences === undefined);
  if (silent) throw refuse(`rank ${silent.rank} has no sequences, others have: give every rank a weight, 0 for none`);
  const roots = shares.filter((share) => !keepsCacheOnly(share));
  if (roots.length === 0) throw refuse('no rank holds weights: give one heads and MLP segments');
  if (latent && roots.length > 1 && !runsOwnRows(stage)) {
    throw refuse(
      `${roots.length} ranks hold weights; a latent cache has no heads to deal out: use one root, or give every rank all heads`,
    );
  }
  for (const share of shares) {
    const { rank, lanes, mlp, experts, kvHeads } = share;
    if (lanes.length !== MERGE_LANES) {
      throw refuse(`rank ${rank}: lanes ${showList(lanes)}; a rank that keeps whole sequences has all ${MERGE_LANES}`);
    }
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
    const members = shares.filter(({ kvHeads }) => sameList(kvHeads, root.kvHeads));
    if (members.every(({ sequences }) => sequences === 0)) {
      const who = runsOwnRows(stage) ? 'the ranks' : `rank ${root.rank} and those that follow it`;
      throw refuse(`${who} keep no sequences: give one of them a weight above 0`);
    }
  }
}
