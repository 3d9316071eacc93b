import { usageError } from '../../base/errors.js';
import type { ArrangementFile } from '../../arrangement/index.js';
import { misfit, modelFeatures } from '../check/capabilities.js';
import { nth, range, sameList, spreadEvenly, sum } from '../../base/lists.js';
import { cutRows, spreadSegments } from './stage_cut.js';
import { MERGE_LANES } from '../owner.js';
import { kindOf } from '../plan/stage_kind.js';
import type { CopySharing } from '../../arrangement/types.js';
import type { HeadCopy, ModelShape, Plan, RankShare, Stage } from '../plan.js';

/**
 * The plan that runs an arrangement: every rank holds its heads, copies included; MLP segments, experts and vocabulary rows are cut as
 * `tp` cuts them, MLP segments over as many ranks as there are. With a pipeline each stage's ranks do so for its layers.
 *
 * @param sharing how copies share a head, where there are any
 * @throws SplitkvError `usage` for an arrangement of another model, or one that leaves a rank without anything
 */
export function arrangedPlan(file: ArrangementFile, shape: ModelShape, sharing: CopySharing): Plan {
  const { placement, ranks } = file;
  const bad = (what: string): Error => usageError(`arrangement of '${file.model}': ${what}`);
  const why = misfit(['arranged', ...modelFeatures(shape)]);
  if (why !== undefined) throw bad(why);
  const { length: heads } = nth(placement, 0);
  if (placement.length !== shape.numLayers || heads !== shape.kvHeads) {
    throw bad(
      `${placement.length} layers of ${heads} kv heads; this model has ${shape.numLayers} of ` +
        `${shape.kvHeads}: arrange a profile of this model`,
    );
  }
  const stageRanks = ranks / (file.pipeline ?? 1);
  const cut = cutMlp(stageRanks, shape);
  const stages: Stage[] = [];
  for (const [layer, own] of placement.entries()) {
    const first = Math.floor(nth(nth(own, 0), 0).rank / stageRanks) * stageRanks;
    const shares = layerShares(own, first, cut);
    const loads = file.loads?.[layer];
    const before = stages.at(-1);
    if (before && sameShares(before.shares, shares) && sameList(before.loads ?? [], loads ?? [])) {
      stages[stages.length - 1] = { ...before, layers: [before.layers[0], layer + 1] };
    } else {
      stages.push({ layers: [layer, layer + 1], kind: kindOf(shares), shares, ...(loads && { loads }) });
    }
  }
  const idle = range(0, ranks).find(
    (rank) => !stages.some(({ shares }) => shares.some((share) => share.rank === rank)),
  );
  if (idle !== undefined) throw bad(`rank ${idle} of ${ranks} has no head in any layer: arrange for fewer ranks`);
  const copied = stages.some(({ shares }) => shares.some(({ copies }) => copies !== undefined));
  const rows = cutRows(shape.vocabSize, cut.filter(({ mlp, experts }) => mlp.length + experts.length > 0).length);
  const lastStage = ranks - stageRanks;
  return {
    version: 1,
    policy: stageRanks < ranks ? 'pp x arranged' : 'arranged',
    worldSize: ranks,
    ...(copied && { sharing, ...(file.speeds && { speeds: file.speeds }) }),
    ...(file.utilisation !== undefined && { utilisation: file.utilisation }),
    stages,
    embedding: rows,
    head: rows.map((share) => ({ ...share, rank: share.rank + lastStage })),
  };
}

type MlpCut = Pick<RankShare, 'mlp' | 'experts'>;

/** What each rank of a stage holds beside heads: MLP segments over as many ranks as there are, and experts. */
function cutMlp(ranks: number, { mlpSegments, numExperts }: ModelShape, speeds?: readonly number[]): MlpCut[] {
  const filled = mlpSegments.filter((columns) => columns > 0).length || mlpSegments.length;
  const mlp = spreadSegments(mlpSegments, Math.min(ranks, filled), speeds) ?? [];
  return spreadEvenly(numExperts, ranks).map(([first, end], rank) => ({
    mlp: mlp[rank] ?? [],
    experts: range(first, end),
  }));
}

function layerShares(heads: ArrangementFile['placement'][number], first: number, cut: readonly MlpCut[]): RankShare[] {
  return cut.flatMap(({ mlp, experts }, at) => {
    const rank = first + at;
    const held = heads.flatMap((of, head) =>
      of.filter((copy) => copy.rank === rank).map(({ share }) => ({ head, share, isCopy: of.length > 1 })),
    );
    const own = held.map(({ head }) => head);
    if (own.length + mlp.length + experts.length === 0) return [];
    const copies = held.flatMap(({ head, share, isCopy }): HeadCopy[] => (isCopy ? [{ head, share }] : []));
    const lanes = range(0, MERGE_LANES);
    return [{ rank, heads: own, ...(copies.length > 0 && { copies }), mlp, experts, kvHeads: own, lanes }];
  });
}

/** MLP segments and experts are those of the rank in every layer. */
function sameShares(a: readonly RankShare[], b: readonly RankShare[]): boolean {
  const form = (shares: readonly RankShare[]): string =>
    JSON.stringify(shares.map(({ rank, heads, copies = [] }) => [rank, heads, copies]));
  return form(a) === form(b);
}

/** Chunks of a sequence lie on several ranks that all project the heads, or could. */
const splitsChunks = ({ kind, shares }: Stage): boolean =>
  kind === 'tensor' && shares.some(({ lanes }) => lanes.length < MERGE_LANES);

/**
 * A plan whose ranks split chunks of sequences (sp, tp+sp, ep), for prompts that are compressed: which entries are left, and so whose
 * they are, is known at a prompt's end only. Every rank that keeps a part of a head's cache becomes a copy of the head, and copies share
 * its lanes as the ranks did: each has a prompt whole until it ends, compresses it alike, and keeps its own lanes of what is left. MLP
 * segments and experts are cut over the stage's ranks. Other plans stay as they are.
 * @param speeds by rank; the faster ones have more lanes and more segments
 */
export function chunksAsCopies(plan: Plan, shape: ModelShape, speeds?: readonly number[]): Plan {
  if (!plan.stages.some(splitsChunks)) return plan;
  return {
    ...plan,
    sharing: 'lanes',
    ...(speeds && { speeds }),
    stages: plan.stages.map((stage) => (splitsChunks(stage) ? copied(stage, shape, speeds) : stage)),
  };
}

function copied({ layers, shares }: Stage, shape: ModelShape, speeds: readonly number[] = []): Stage {
  const speedOf = ({ rank }: RankShare): number => speeds[rank] ?? 1;
  const cut = cutMlp(shares.length, shape, shares.map(speedOf));
  const all = (head: number): number => sum(shares.filter(({ kvHeads }) => kvHeads.includes(head)).map(speedOf));
  return {
    layers,
    kind: 'arranged',
    shares: shares.map((share, at) => ({
      rank: share.rank,
      heads: share.kvHeads,
      copies: share.kvHeads.map((head) => ({ head, share: speedOf(share) / all(head) })),
      ...nth(cut, at),
      kvHeads: share.kvHeads,
      lanes: range(0, MERGE_LANES),
    })),
  };
}
