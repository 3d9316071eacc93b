import { range } from '../../base/lists.js';
import { VOCAB_GRANULE } from '../check/check_vocabulary.js';
import { lanesOf } from '../owner.js';
import type { ModelShape, RankShare, StageKind, VocabShare } from '../plan.js';
import { spreadEvenly, spreadSegments } from './partition.js';
import type { StageForm } from './stage_form.js';

/** A stage as a policy cuts it, over ranks 0, 1, ...: the stages of a pipeline take as many ranks each. */
export interface StageCut {
  readonly kind: StageKind;
  /** One a rank, in order. */
  readonly shares: readonly RankShare[];
  /** Rows of the embedding, should this be the first stage ... */
  readonly embedding: readonly VocabShare[];
  /** ... and of the output head, should it be the last. The first one listed samples. */
  readonly head: readonly VocabShare[];
}

/** The cut that a form describes. */
export function cutStage(form: StageForm, ranks: number, shape: ModelShape): StageCut {
  const shares = formShares(ranks, form, shape);
  const isToken = form.kind === 'token';
  if (form.cutVocabulary) {
    // Roots alone hold vocabulary rows.
    const step = isToken ? ranks / form.tensor : 1;
    const rows = cutRows(shape.vocabSize, ranks / step).map((share) => ({ ...share, rank: share.rank * step }));
    return { kind: form.kind, shares, embedding: rows, head: rows };
  }
  const whole = (holders: number): VocabShare[] =>
    range(0, holders).map((rank) => ({ rank, rows: [0, shape.vocabSize] }));
  return {
    kind: form.kind,
    shares,
    embedding: whole(isToken ? 1 : ranks),
    head: whole(form.kind === 'adp' ? ranks : 1),
  };
}

/** Roots, each followed by the ranks that keep sequences of it. */
function tokenShares(ranks: number, form: StageForm, shape: ModelShape): RankShare[] {
  const members = ranks / form.tensor;
  const { sequence: split, weights } = form;
  const roots = formShares(form.tensor, { ...form, sequence: 1, kind: 'tensor' }, shape);
  // A root that is left over keeps nothing.
  const before = members % split;
  return roots.flatMap((root, group) =>
    range(0, members).map((member): RankShare => {
      const rank = group * members + member;
      const alone = member < before;
      const sequences = weights![alone ? member : before + Math.floor((member - before) / split)]!;
      const own = { rank, sequences, lanes: alone ? root.lanes : lanesOf(split, (member - before) % split) };
      if (member === 0) return { ...root, ...own };
      return { ...root, ...own, heads: [], mlp: [], experts: [] };
    }),
  );
}

function formShares(ranks: number, form: StageForm, shape: ModelShape): RankShare[] {
  if (form.kind === 'token') return tokenShares(ranks, form, shape);
  const heads = spreadSegments(shape.segmentHeads, form.tensor)!;
  const mlpGroups = form.mlpGroups ?? form.tensor;
  const mlp = spreadSegments(shape.mlpSegments, mlpGroups)!;
  const experts = spreadEvenly(shape.numExperts, ranks);
  const replicas = ranks / form.tensor;
  return range(0, ranks).map((i) => {
    const group = Math.floor(i / replicas);
    const [first, end] = form.spreadExperts ? experts[i]! : [0, shape.numExperts];
    return {
      rank: i,
      heads: heads[group]!,
      mlp: mlp[Math.floor((i * mlpGroups) / ranks)]!,
      experts: range(first, end),
      kvHeads: form.ownHeads ? heads[group]! : range(0, shape.kvHeads),
      lanes: lanesOf(form.sequence, i % form.sequence),
      ...(form.kind === 'adp' && { sequences: 1 }),
    };
  });
}

/** Vocabulary rows over ranks, as even as the granule allows; with fewer granules than ranks, the last ranks hold none. */
export function cutRows(vocabSize: number, ranks: number): VocabShare[] {
  const granules = spreadEvenly(Math.ceil(vocabSize / VOCAB_GRANULE), ranks);
  return granules.flatMap(([first, end], i) =>
    end === first
      ? []
      : [{ rank: i, rows: [first * VOCAB_GRANULE, Math.min(end * VOCAB_GRANULE, vocabSize)] as const }],
  );
}
