import { MERGE_LANES } from '../../base/kv_units.js';
import { count, range, showList } from '../../base/lists.js';
import type { ModelShape, StageKind } from '../plan.js';
import { sequenceWeights } from '../sequences/sequence_weights.js';
import type { Degrees } from './degrees.js';

/** How the ranks of a stage share it, in a few numbers: what the policies of the table have in common. */
export interface StageForm {
  readonly kind: Exclude<StageKind, 'arranged'>;
  /** Of 'adp': groups of ranks with sequences of their own; what follows is of one such group. */
  readonly data?: number;
  /** Groups of ranks with different weights; each has ranks / tensor replicas. */
  readonly tensor: number;
  /** Of those, groups with different heads, where there are fewer: MLP segments are cut further than heads. Default `tensor`. */
  readonly headGroups?: number;
  /** Ways the cache is split along the sequence. */
  readonly sequence: number;
  readonly ownHeads: boolean;
  /** Embedding and head rows are cut over the ranks, rather than whole on every rank and on the first. */
  readonly cutVocabulary: boolean;
  /** Each expert is on one rank (of all groups with sequences of their own), rather than on every rank. */
  readonly spreadExperts: boolean;
  /** Of a token plan: shares of the sequences by place, the roots' first. Of those that split sequences, only roots keep none. */
  readonly weights?: readonly number[];
  /** Of 'adp': MLP segments are cut over the ranks of all groups, rather than over those of each. */
  readonly mlpOverAll?: boolean;
}

export interface WantedForm extends Pick<Degrees, 'tensor' | 'token' | 'sequence'> {
  readonly data?: number | undefined;
  readonly sequenceWeights?: readonly number[] | undefined;
}

const filled = (sizes: readonly number[]): number => sizes.filter((size) => size > 0).length;

/** Ranks that can hold different MLP segments. */
const maxColumns = ({ mlpSegments }: ModelShape): number => filled(mlpSegments) || mlpSegments.length;

export const maxTensor = (shape: ModelShape): number => Math.min(filled(shape.segmentHeads), maxColumns(shape));

const divisors = (n: number): number[] => range(1, n + 1).filter((d) => n % d === 0);

/** The form that a policy takes on `ranks` ranks, or why it doesn't fit them. */
export type FormMaker = (ranks: number, shape: ModelShape, wanted: WantedForm) => StageForm | string;

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

export const sequence: FormMaker = (ranks, _shape, wanted) => asWanted(replicated(ranks), wanted, ranks);

export const experts: FormMaker = (ranks, _shape, wanted) =>
  asWanted({ ...replicated(ranks), spreadExperts: true }, wanted, ranks);

/**
 * Heads and MLP segments cut over all ranks. With more ranks than heads, the ranks of each group of heads split its sequences, and only
 * their attention is alike. MLA's one latent can't be cut by head: all ranks split its sequences.
 */
export const tensor: FormMaker = (ranks, shape, wanted) => {
  const { latent, bothWays = false } = shape;
  const most = bothWays ? maxTensor(shape) : maxColumns(shape);
  const headGroups = divisors(ranks).findLast((groups) => groups <= maxTensor(shape))!;
  const { tensor: wantedTensor = ranks, sequence: beside = 1 } = wanted;
  const isUsual = headGroups === ranks || ranks > most || wantedTensor < ranks || beside > 1;
  if (latent && isUsual) return hybrid(ranks, shape, wanted);
  if (ranks > most) return tensorMisfit(most);
  const sequence = latent ? ranks : ranks / headGroups;
  const form = { tensor: ranks, headGroups, sequence, ownHeads: !latent, ...cut };
  // Ranks that split sequences are counted once, as those that cut weights.
  return asWanted(form, { ...wanted, sequence: beside > 1 ? beside : undefined }, ranks);
};

/**
 * Token plans of `usual` roots, or as many as `tensor` asks for; without either as many as can be cut and keep a rank each that follows
 * them. `splits`: each sequence's chunks are split over as many ranks as possible, or as wanted; roots are among them, or beside them and
 * keep no sequence.
 *
 * A root's kv heads are kept by itself and by ranks of its own. A latent has no heads: each rank that keeps some of it attends for all
 * roots, so that they share all ranks, and need not have as many each.
 */
export const token =
  (splits: boolean, usual?: number): FormMaker =>
  (ranks, shape, wanted) => {
    const { latent } = shape;
    const { token: followed, sequence: split = splits ? undefined : 1 } = wanted;
    const tensor = rootsOf(ranks, shape, { ...wanted, tensor: wanted.tensor ?? usual }, split);
    if (typeof tensor === 'string') return tensor;
    const cuts = tensor > 1;
    const over = split ?? (followed && ranks / (tensor * followed));
    if (followed !== undefined && over !== undefined && tensor * followed * over !== ranks) {
      return `tensor ${tensor} x token ${followed}${over > 1 ? ` x sequence ${over}` : ''} are ${tensor * followed * over}`;
    }
    // That keep the same heads' sequences, and the roots among them.
    const [members, heads] = latent ? [ranks, tensor] : [ranks / tensor, 1];
    const sequence = splits ? splitOver(members, heads, over) : 1;
    if (sequence === undefined) {
      const root = heads === 1 ? 'the root' : `the ${heads} roots`;
      return `${over ?? 2} ranks that split a sequence, 2 to ${MERGE_LANES} of them, make no ${count(members, 'rank')}, with or without ${root}`;
    }
    const alone = members % sequence === 0 ? 0 : heads;
    const places = alone + (members - alone) / sequence;
    const rooms = range(0, places).map((place) => ({
      root: place < alone || (alone === 0 && place * sequence < heads),
      ...(place < alone && { bytes: 0 }),
    }));
    const weights = wanted.sequenceWeights ?? sequenceWeights(rooms, 1);
    const wrong = weightsMisfit(weights, places, alone, heads);
    if (wrong !== undefined) return wrong;
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
  };

/** How many roots, or why there can't be so many. */
function rootsOf(ranks: number, shape: ModelShape, wanted: WantedForm, split: number | undefined): number | string {
  const most = Math.min(maxTensor(shape), ranks - 1);
  const roots = shape.latent ? range(1, most + 1) : divisors(ranks).filter((roots) => roots <= most);
  // Of the degrees, the one that is left open follows from the others.
  const following = wanted.token === undefined || split === undefined ? undefined : ranks / (wanted.token * split);
  const tensor = wanted.tensor ?? following ?? roots.findLast((roots) => 2 * roots <= Math.max(ranks, 4));
  const shared = maxTensor(shape);
  if (tensor !== undefined && Number.isInteger(tensor) && tensor > shared) return tensorMisfit(shared);
  if (tensor !== undefined && roots.includes(tensor) && (wanted.tensor !== undefined || tensor > 1)) return tensor;
  return ranks < 2
    ? 'a root needs a rank that keeps sequences'
    : `they make no ${wanted.tensor ?? 'several'} roots with ranks that follow them`;
}

/** Why places can't have these weights. The first `alone` places are roots that keep no sequence. */
function weightsMisfit(weights: readonly number[], places: number, alone: number, roots: number): string | undefined {
  const told = `sequenceWeights ${showList(weights)}`;
  if (weights.length !== places || weights.every((weight) => weight === 0)) {
    return `${told}: expected ${places}, ${roots === 1 ? "a root's" : "the roots'"} first, and one of them above 0`;
  }
  if (weights.slice(0, alone).every((weight) => weight === 0)) return undefined;
  const zeros = range(0, alone).map(() => 0);
  return `${told}: a root beside ranks that split sequences keeps none; begin with ${zeros.join(', ')}`;
}

/** Numbers of ranks that share 8 lanes evenly: with others, single sequences are no faster than on the next lower one. */
const SPLITS: readonly number[] = [8, 4, 2];

/** Ranks that may split a sequence: as wanted, or the most evenly, where so many members are groups of them, but perhaps the roots. */
const splitOver = (members: number, roots: number, wanted: number | undefined): number | undefined =>
  (wanted === undefined ? SPLITS : range(2, MERGE_LANES + 1).filter((split) => split === wanted)).find(
    (split) => members >= split && (members % split === 0 || (members - roots) % split === 0),
  );

/** Experts are spread over all ranks; without any, MLP segments are. */
export const attentionData: FormMaker = (ranks, { numExperts, mlpSegments }, wanted) => {
  const columns = mlpSegments.filter((size) => size > 0).length;
  if (numExperts === 0 && ranks > columns) {
    return `this model's MLP segments can be cut over ${count(columns, 'rank')} at most`;
  }
  const form = { ...replicated(1), spreadExperts: true };
  if (ranks === 1) return asWanted(form, wanted, ranks);
  return asWanted({ ...form, kind: 'adp', data: ranks, mlpOverAll: numExperts === 0 }, wanted, ranks);
};

/**
 * Groups with sequences of their own, each of which shares a stage as another form says: as many groups as ranks in each, or nearly, more
 * ranks in a group first. Experts are spread over all ranks, MLP segments over those of each group.
 */
export const dataGroups =
  (within: FormMaker): FormMaker =>
  (ranks, shape, wanted) => {
    const { data, ...inner } = wanted;
    const imbalance = (groups: number): number => Math.abs(groups - ranks / groups);
    const counts = divisors(ranks)
      .filter((groups) => groups > 1 && groups < ranks && (data ?? groups) === groups)
      .toSorted((a, b) => imbalance(a) - imbalance(b) || a - b);
    // Groups are told apart by all lanes together (`dataPlaces`).
    const splits = ({ sequence: of }: StageForm): boolean => of > MERGE_LANES;
    let why = `they make no ${data ?? 2} groups of 2 ranks or more`;
    for (const groups of counts) {
      const form = within(ranks / groups, shape, inner);
      if (typeof form !== 'string' && splits(form))
        why = `${ranks / groups} ranks of a group can't share ${MERGE_LANES} merge lanes`;
      else if (typeof form !== 'string') return { ...form, kind: 'adp', data: groups, spreadExperts: true };
      else if (groups === counts[0]) why = `${count(groups, 'group')} of ${ranks / groups}: ${form}`;
    }
    return why;
  };

const cut = { kind: 'tensor', cutVocabulary: true, spreadExperts: true } as const;

/**
 * Heads and sequence both. The grid gives each of T weight groups its own kv heads' cache, split over the group's S = ranks / T
 * replicas. Where no such T uses both axes (2 ranks; MLA, whose latent has no heads), heads are cut and every rank keeps all
 * heads' cache for its S = ranks share of the lanes.
 */
export const hybrid: FormMaker = (ranks, shape, wanted) => {
  const most = maxTensor(shape);
  const across = divisors(ranks).filter((t) => t <= most);
  const grids = shape.latent ? [] : across;
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
  const form =
    (asked ? forms : usual).find(
      ({ tensor: t, sequence: s }) => t === (wanted.tensor ?? t) && s === (wanted.sequence ?? s),
    ) ??
    // Where weight groups share all of the cache, what they split it into is their number times the ranks of each.
    forms.find(
      ({ tensor: t, sequence: s, ownHeads }) =>
        !ownHeads && t === (wanted.tensor ?? t) && s === t * (wanted.sequence ?? Number.NaN),
    );
  if (form) return { ...form, ...cut };
  const { tensor: t = 'any', sequence: s = 'any' } = wanted;
  const options = forms.map((candidate) => `${candidate.tensor} x ${candidate.sequence}`);
  return (
    `tensor ${t} x sequence ${s} doesn't fit ${count(ranks, 'rank')}` +
    (options.length > 0 ? `, which can be cut ${options.join(', ')}` : '')
  );
};

function asWanted(form: StageForm, wanted: WantedForm, ranks: number): StageForm | string {
  for (const key of ['data', 'tensor', 'sequence'] as const) {
    const { [key]: has = 1 } = form;
    if (wanted[key] !== undefined && wanted[key] !== has) {
      return `${key} ${wanted[key]}: on ${count(ranks, 'rank')} a stage of this policy has ${key} ${has}`;
    }
  }
  return form;
}

const tensorMisfit = (most: number): string =>
  `this model's attention and MLP segments can be cut over ${count(most, 'rank')} at most`;
