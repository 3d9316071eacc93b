import { nth, range, spreadEvenly, sum } from '../../base/lists.js';
import { VOCAB_GRANULE } from '../check/check_weights.js';
import { lanesOf } from '../owner.js';
import type { ModelShape, RankShare, StageKind, VocabShare } from '../plan.js';
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

export function cutStage(form: StageForm, ranks: number, shape: ModelShape): StageCut {
  if (form.kind === 'adp') return dataCut(form, ranks, shape);
  const shares = formShares(ranks, form, shape);
  const isToken = form.kind === 'token';
  const { kind } = form;
  if (form.cutVocabulary) {
    // Roots alone hold vocabulary rows.
    const step = isToken && !shape.latent ? ranks / form.tensor : 1;
    const cut = cutRows(shape.vocabSize, isToken ? form.tensor : ranks);
    const rows = cut.map((share) => ({ ...share, rank: share.rank * step }));
    return { kind, shares, embedding: rows, head: rows };
  }
  const whole = (holders: number): VocabShare[] =>
    range(0, holders).map((rank) => ({ rank, rows: [0, shape.vocabSize] }));
  return { kind, shares, embedding: whole(isToken ? 1 : ranks), head: whole(1) };
}

/** The same cut for each group of ranks with sequences of its own; experts over all of them. */
function dataCut({ data = 1, mlpOverAll, ...form }: StageForm, ranks: number, shape: ModelShape): StageCut {
  const members = ranks / data;
  const group = cutStage({ ...form, kind: 'tensor' }, members, shape);
  const ofAll = <T extends { readonly rank: number }>(list: readonly T[]): T[] =>
    range(0, data).flatMap((at) => list.map((item) => ({ ...item, rank: at * members + item.rank })));
  const experts = spreadEvenly(shape.numExperts, ranks);
  const mlp = mlpOverAll ? spreadSegments(shape.mlpSegments, ranks) : undefined;
  const shares = ofAll(group.shares).map((share, rank) => ({
    ...share,
    ...(mlp && { mlp: nth(mlp, rank) }),
    experts: range(...nth(experts, rank)),
    sequences: 1,
  }));
  return { kind: 'adp', shares, embedding: ofAll(group.embedding), head: ofAll(group.head) };
}

/** Roots, each followed by the ranks that keep sequences of it; of a latent all roots, then the ranks that keep sequences of all. */
function tokenShares(ranks: number, form: StageForm, shape: ModelShape): RankShare[] {
  const { sequence: split, weights, tensor } = form;
  const roots = formShares(tensor, { ...form, sequence: 1, kind: 'tensor' }, shape);
  const groups = shape.latent ? [roots] : roots.map((root) => [root]);
  const members = ranks / groups.length;
  return groups.flatMap((own, group) => {
    // Roots that are left over keep nothing.
    const before = members % split === 0 ? 0 : own.length;
    return range(0, members).map((member): RankShare => {
      const alone = member < before;
      const place = alone ? member : before + Math.floor((member - before) / split);
      const share = own[member] ?? { ...nth(own, 0), heads: [], mlp: [], experts: [] };
      return {
        ...share,
        rank: group * members + member,
        sequences: nth(weights ?? [], place),
        lanes: alone ? share.lanes : lanesOf(split, (member - before) % split),
      };
    });
  });
}

function formShares(ranks: number, form: StageForm, shape: ModelShape): RankShare[] {
  if (form.kind === 'token') return tokenShares(ranks, form, shape);
  const { tensor, headGroups = tensor } = form;
  const heads = spreadSegments(shape.segmentHeads, headGroups) ?? [];
  const mlp = spreadSegments(shape.mlpSegments, tensor) ?? [];
  return spreadEvenly(shape.numExperts, ranks).map((experts, rank) => {
    const own = nth(heads, Math.floor((rank * headGroups) / ranks));
    return {
      rank,
      heads: own,
      mlp: nth(mlp, Math.floor((rank * tensor) / ranks)),
      experts: form.spreadExperts ? range(...experts) : range(0, shape.numExperts),
      kvHeads: form.ownHeads ? own : range(0, shape.kvHeads),
      lanes: lanesOf(form.sequence, rank % form.sequence),
    };
  });
}

/**
 * Vocabulary rows over ranks, as even as the granule allows, or as `speeds` say; with fewer granules than ranks, the last ranks hold
 * none.
 */
export function cutRows(vocabSize: number, ranks: number, speeds?: readonly number[]): VocabShare[] {
  const count = Math.ceil(vocabSize / VOCAB_GRANULE);
  const granules = speeds ? spreadBy(speeds, count) : spreadEvenly(count, ranks);
  return granules.flatMap(([first, end], i) =>
    end === first
      ? []
      : [{ rank: i, rows: [first * VOCAB_GRANULE, Math.min(end * VOCAB_GRANULE, vocabSize)] as const }],
  );
}

/** Items 0 .. n - 1 in contiguous parts, in proportion to these numbers; each has one where there are enough. */
export function spreadBy(speeds: readonly number[], n: number): [first: number, end: number][] {
  const { length } = speeds;
  const upTo = (part: number): number => {
    const exact = Math.round((n * sum(speeds.slice(0, part))) / sum(speeds));
    return n < length ? exact : Math.min(Math.max(exact, part), n - length + part);
  };
  return speeds.map((_, part) => [upTo(part), upTo(part + 1)]);
}

/**
 * Cuts items 0 .. n - 1 into `parts` contiguous parts whose largest cost is as small as can be; among those, as even as can be
 * (the least sum of squares).
 *
 * @param cost of part number `part`, which is [first, end); Infinity for a part that isn't allowed
 * @returns the parts in order, or undefined where no allowed cut exists
 */
export function partition(n: number, parts: number, cost: PartCost): [first: number, end: number][] | undefined {
  const largest = cut(n, parts, cost, Math.max);
  if (!largest) return undefined;
  const most = Math.max(...largest.map(([first, end], part) => cost(first, end, part)));
  return cut(
    n,
    parts,
    (first, end, part) => {
      const value = cost(first, end, part);
      return value <= most ? value * value : Infinity;
    },
    (a, b) => a + b,
  );
}

type PartCost = (first: number, end: number, part: number) => number;

/** The cut whose costs, joined, are least. */
function cut(
  n: number,
  parts: number,
  cost: PartCost,
  join: (a: number, b: number) => number,
): [first: number, end: number][] | undefined {
  interface Cut {
    readonly cost: number;
    readonly parts: [first: number, end: number][];
  }
  const none: Cut = { cost: Infinity, parts: [] };
  /** By end: the best cut of 0 .. end - 1 into so many parts; at first into one. */
  let best = range(0, n + 1).map((end): Cut => (end === 0 ? none : { cost: cost(0, end, 0), parts: [[0, end]] }));
  for (let p = 2; p <= parts; p++) {
    best = best.map((_, end) =>
      best.slice(0, end).reduce((least, before, first) => {
        const value = first < p - 1 ? Infinity : join(before.cost, cost(first, end, p - 1));
        return value < least.cost ? { cost: value, parts: [...before.parts, [first, end]] } : least;
      }, none),
    );
  }
  const { cost: found, parts: cuts } = nth(best, n);
  return found < Infinity ? cuts : undefined;
}

/**
 * Segments of these sizes in `parts` contiguous lists, as even as whole segments allow, each with something in it; with `speeds`, so
 * that each takes as long. Where all sizes are 0 the segments themselves are spread.
 */
export function spreadSegments(
  sizes: readonly number[],
  parts: number,
  speeds: readonly number[] = [],
): number[][] | undefined {
  const weights = sum(sizes) > 0 ? sizes : sizes.map(() => 1);
  const cuts = partition(
    weights.length,
    parts,
    (first, end, part) => sum(weights.slice(first, end)) / (speeds[part] ?? 1) || Infinity,
  );
  return cuts?.map(([first, end]) => range(first, end));
}
