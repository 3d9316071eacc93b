import { count, range, showList } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import type { ModelShape, StageKind } from '../plan.js';
import { sequenceWeights } from '../sequences/sequence_weights.js';

/** How the ranks of a stage share it, in a few numbers: what the policies of the table have in common. */
export interface StageForm {
  readonly kind: Exclude<StageKind, 'arranged'>;
  /** Groups of ranks with different weights; each has ranks / tensor replicas. */
  readonly tensor: number;
  /** Ways the cache is split along the sequence. */
  readonly sequence: number;
  /** A rank keeps the cache of its own heads only, rather than of all. */
  readonly ownHeads: boolean;
  /** Embedding and head rows are cut over the ranks, rather than whole on every rank and on the first. */
  readonly cutVocabulary: boolean;
  /** Each expert is on one rank, rather than on every rank. */
  readonly spreadExperts: boolean;
  /** Of a token plan: shares of the sequences by place, a root's first. Of those that split sequences, only a root keeps none. */
  readonly weights?: readonly number[];
  /** Groups of ranks with different MLP segments, where the heads are on every rank; default `tensor`. */
  readonly mlpGroups?: number;
}

/** What the options of a plan ask of a stage. */
export interface Degrees {
  readonly tensor?: number | undefined;
  readonly sequence?: number | undefined;
  readonly sequenceWeights?: readonly number[] | undefined;
}

/** Ranks that can hold different heads and MLP segments. */
export function maxTensor({ segmentHeads, mlpSegments }: ModelShape): number {
  const filled = (sizes: readonly number[]): number => sizes.filter((size) => size > 0).length;
  return Math.min(filled(segmentHeads), filled(mlpSegments) || Infinity);
}

const divisors = (n: number): number[] => range(1, n + 1).filter((d) => n % d === 0);

/** The form that a policy takes on `ranks` ranks, or why it doesn't fit them. */
export type FormMaker = (ranks: number, shape: ModelShape, wanted: Degrees) => StageForm | string;

const replicated = (ranks: number) =>
  ({
    kind: 'tensor',
    tensor: 1,
    sequence: ranks,
    ownHeads: false,
    cutVocabulary: false,
    spreadExperts: false,
  }) as const;

export const single: FormMaker = (ranks, _shape, wanted) =>
  ranks === 1 ? asWanted(replicated(ranks), wanted, ranks) : 'it runs on one';

export const sequence: FormMaker = (ranks, _shape, wanted) =>
  sequenceMisfit(ranks) ?? asWanted(replicated(ranks), wanted, ranks);

export const experts: FormMaker = (ranks, _shape, wanted) =>
  sequenceMisfit(ranks) ?? asWanted({ ...replicated(ranks), spreadExperts: true }, wanted, ranks);

/** MLA's one latent can't be cut by head. */
export const tensor: FormMaker = (ranks, shape, wanted) => {
  if (shape.latent) return hybrid(ranks, shape, wanted);
  return tensorMisfit(ranks, shape) ?? asWanted({ tensor: ranks, sequence: 1, ownHeads: true, ...cut }, wanted, ranks);
};

/** Token plans of one root, or as many as `tensor` asks for. */
export const oneRoot =
  (splits: boolean): FormMaker =>
  (ranks, shape, wanted) =>
    token(ranks, shape, { ...wanted, tensor: wanted.tensor ?? 1 }, splits);

export const severalRoots =
  (splits: boolean): FormMaker =>
  (ranks, shape, wanted) =>
    token(ranks, shape, wanted, splits);

/**
 * As many roots as can be cut and keep a rank each that follows them. `splits`: each sequence's chunks are split over as many ranks as
 * possible, or as wanted; the root is one of them, or beside them and keeps no sequence.
 */
function token(ranks: number, shape: ModelShape, wanted: Degrees, splits: boolean): StageForm | string {
  const most = maxTensor(shape);
  const roots = divisors(ranks).filter((roots) => roots <= most && ranks / roots > 1);
  const tensor = wanted.tensor ?? roots.at(-1);
  if (tensor === undefined || !roots.includes(tensor) || (wanted.tensor === undefined && tensor === 1)) {
    return ranks < 2
      ? 'a root needs a rank that keeps sequences'
      : `they make no ${wanted.tensor ?? 'several'} roots with ranks that follow them`;
  }
  const cuts = tensor > 1;
  const members = ranks / tensor;
  const sequence = splits ? splitOver(members, wanted.sequence) : 1;
  if (sequence === undefined) {
    return `${wanted.sequence ?? 2} ranks that split a sequence, ${SPLITS.join(', ')} of them, make no ${count(members, 'rank')}, with or without the root`;
  }
  const rootAlone = sequence > 1 && members % sequence === 1;
  const places = Math.ceil(members / sequence);
  const rooms = range(0, places).map((place) => ({
    root: place === 0,
    ...(rootAlone && place === 0 && { bytes: 0 }),
  }));
  const weights = wanted.sequenceWeights ?? sequenceWeights(rooms, 1);
  if (weights.length !== places || weights.every((weight) => weight === 0)) {
    return `sequenceWeights ${showList(weights)}: expected ${places}, a root's first, and one of them above 0`;
  }
  if (rootAlone && weights[0] !== 0) {
    return `sequenceWeights ${showList(weights)}: a root beside ranks that split sequences keeps none; begin with 0`;
  }
  const form = {
    kind: 'token',
    tensor,
    sequence,
    ownHeads: !shape.latent,
    cutVocabulary: cuts,
    spreadExperts: cuts,
    weights,
  } as const;
  return asWanted(form, { sequence: wanted.sequence }, ranks);
}

const SPLITS: readonly number[] = [8, 4, 2];

/** Ranks that may split a sequence, the most first, where so many members are groups of them, but perhaps the root. */
const splitOver = (members: number, wanted: number | undefined): number | undefined =>
  SPLITS.find((split) => (wanted ?? split) === split && members >= split && members % split <= 1);

/** Experts are spread; without any, MLP segments are. */
export const attentionData: FormMaker = (ranks, { numExperts, mlpSegments }, wanted) => {
  const columns = mlpSegments.filter((size) => size > 0).length;
  if (numExperts === 0 && ranks > columns) {
    return `this model's MLP segments can be cut over ${count(columns, 'rank')} at most`;
  }
  const form = {
    kind: 'tensor',
    tensor: 1,
    sequence: 1,
    ownHeads: false,
    cutVocabulary: false,
    spreadExperts: true,
  } as const;
  if (ranks === 1) return asWanted(form, wanted, ranks);
  return asWanted({ ...form, kind: 'adp', mlpGroups: numExperts === 0 ? ranks : 1 }, wanted, ranks);
};

const cut = { kind: 'tensor', cutVocabulary: true, spreadExperts: true } as const;

/**
 * Heads and sequence both. The grid gives each of T weight groups its own kv heads' cache, split over the group's S = ranks / T
 * replicas. Where no such T uses both axes (2 ranks; MLA, whose latent has no heads), heads are cut and every rank keeps all
 * heads' cache for its S = ranks share of the lanes.
 */
export const hybrid: FormMaker = (ranks, shape, wanted) => {
  const most = maxTensor(shape);
  const grids = shape.latent ? [] : divisors(ranks).filter((t) => t <= most && MERGE_LANES % (ranks / t) === 0);
  const across = MERGE_LANES % ranks === 0 ? divisors(ranks).filter((t) => t <= most) : [];
  const forms = [
    ...grids
      .filter((t) => t > 1 && t < ranks)
      .reverse()
      .map((t) => ({ tensor: t, sequence: ranks / t, ownHeads: true })),
    ...across.toReversed().map((t) => ({ tensor: t, sequence: ranks, ownHeads: false })),
    ...(grids.includes(ranks) ? [{ tensor: ranks, sequence: 1, ownHeads: true }] : []),
  ];
  // Without both axes it isn't this policy, unless those degrees were asked for.
  const usual = forms.filter((form) => form.sequence > 1 || ranks === 1);
  const asked = wanted.tensor !== undefined || wanted.sequence !== undefined;
  const form = (asked ? forms : usual).find(
    (candidate) =>
      candidate.tensor === (wanted.tensor ?? candidate.tensor) &&
      candidate.sequence === (wanted.sequence ?? candidate.sequence),
  );
  if (form) return { ...form, ...cut };
  if (!asked && shape.latent) return sequenceMisfit(ranks)!;
  if (!asked) return `they make no ${most === 1 ? 'group' : `1 to ${most} groups`} of 2, 4 or 8 that share a sequence`;
  const { tensor: t = 'any', sequence: s = 'any' } = wanted;
  const options = forms.map((candidate) => `${candidate.tensor} x ${candidate.sequence}`);
  return (
    `tensor ${t} x sequence ${s} doesn't fit ${count(ranks, 'rank')}` +
    (options.length > 0 ? `, which can be cut ${options.join(', ')}` : '')
  );
};

function asWanted(form: StageForm, wanted: Degrees, ranks: number): StageForm | string {
  for (const key of ['tensor', 'sequence'] as const) {
    if (wanted[key] !== undefined && wanted[key] !== form[key]) {
      return `${key} ${wanted[key]}: on ${count(ranks, 'rank')} a stage of this policy has ${key} ${form[key]}`;
    }
  }
  return form;
}

function tensorMisfit(ranks: number, shape: ModelShape): string | undefined {
  const most = maxTensor(shape);
  return ranks <= most
    ? undefined
    : `this model's attention and MLP segments can be cut over ${count(most, 'rank')} at most`;
}

const sequenceMisfit = (ranks: number): string | undefined =>
  MERGE_LANES % ranks === 0 ? undefined : `${ranks} ranks can't share ${MERGE_LANES} merge lanes evenly`;
