import { SplitkvError } from '../../src/base/errors.js';
import { range } from '../../src/base/lists.js';
import { alignUp } from '../../src/base/math.js';
import { BLOCK } from './pack.js';

/**
 * How a contraction over K elements is cut: segment s starts at floor(floor(s K / total) / align) align, each is summed by
 * itself, and the sums are added in a binary tree (lib/tree_sum.wgsl). A rank of a split contraction holds the segments
 * first .. first + count.
 */
export interface Segments {
  readonly total: number;
  /** A multiple of 8 (of anything where total is 1). */
  readonly align: number;
  readonly first?: number;
  /** Defaults to all from `first` on. */
  readonly count?: number;
}

/** Levels that lib/tree_sum.wgsl has room for. */
const MOST_LEVELS = 7;

/** TREE_LEVELS of so many sums. @throws SplitkvError `internal` */
export function treeLevels(kernel: string, count: number): number {
  const levels = Math.ceil(Math.log2(count));
  if (levels <= MOST_LEVELS) return levels;
  throw new SplitkvError(
    'internal',
    `${kernel}: ${count} sums; the tree that adds them up has room for ${2 ** MOST_LEVELS}`,
  );
}

export function segmentStart(segment: number, modelInFeatures: number, segments: Segments): number {
  if (segment >= segments.total) return modelInFeatures;
  return Math.floor(Math.floor((segment * modelInFeatures) / segments.total) / segments.align) * segments.align;
}

/** Whether no segment of the model cuts a block, or a unit of so many elements. */
export const inBlocks = (segments: Segments, modelInFeatures: number, block = BLOCK): boolean =>
  range(0, segments.total).every((segment) => segmentStart(segment, modelInFeatures, segments) % block === 0);

/** The elements [start, end) of the contraction that these segments cover: what a rank's activations hold. */
export function segmentRange(
  modelInFeatures: number,
  segments: Segments,
): { readonly start: number; readonly end: number } {
  const first = segments.first ?? 0;
  const count = segments.count ?? segments.total - first;
  return {
    start: segmentStart(first, modelInFeatures, segments),
    end: segmentStart(first + count, modelInFeatures, segments),
  };
}

/**
 * The columns [start, end) of the model's weight matrix that a rank with these segments packs: their range, widened to whole
 * quantisation blocks (`blockElements` of the type) so that every rank has the same values of a shared block.
 */
export function weightColumns(
  modelInFeatures: number,
  segments: Segments,
  block = BLOCK,
): { readonly start: number; readonly end: number } {
  const { start, end } = segmentRange(modelInFeatures, segments);
  return { start: start - (start % block), end: Math.min(alignUp(end, block), modelInFeatures) };
}

export interface ResolvedSegments {
  readonly total: number;
  readonly align: number;
  readonly first: number;
  readonly count: number;
  readonly start: number;
  readonly end: number;
  /** First and padded last column of the packed weight. */
  readonly weightStart: number;
  readonly weightEnd: number;
  /** No boundary cuts a unit of `unitElements`. */
  readonly aligned: boolean;
}

/** @throws SplitkvError `internal` for segments that don't describe `inFeatures` activations. */
export function resolveSegments(
  kernel: string,
  segments: Segments,
  inFeatures: number,
  modelInFeatures: number,
  unitElements: number,
  block = BLOCK,
): ResolvedSegments {
  const { total, align, first = 0 } = segments;
  const count = segments.count ?? total - first;
  const bad = (what: string): SplitkvError => new SplitkvError('internal', `${kernel}: ${what}`);
  if (!(total >= 1) || !Number.isInteger(total)) throw bad(`segments.total is ${total}, expected an integer from 1 on`);
  if (!(align >= 1) || (total > 1 && align % 8 !== 0))
    throw bad(`segments.align is ${align}, expected a multiple of 8`);
  if (first < 0 || count < 1 || first + count > total) {
    throw bad(`segments ${first} .. ${first + count} (exclusive) are not among the ${total} of the model`);
  }
  const { start, end } = segmentRange(modelInFeatures, segments);
  if (end - start !== inFeatures) {
    throw bad(
      `inFeatures is ${inFeatures}, but segments ${first} .. ${first + count} (exclusive) of ${total} over ${modelInFeatures} ` +
        `cover ${end - start} elements; give modelInFeatures when a rank holds a slice`,
    );
  }
  let aligned = true;
  for (let s = first; s <= first + count; s++) {
    const boundary = segmentStart(s, modelInFeatures, segments);
    if (boundary !== modelInFeatures && boundary % unitElements !== 0) aligned = false;
  }
  const weightStart = start - (start % block);
  return { total, align, first, count, start, end, weightStart, weightEnd: alignUp(end, block), aligned };
}
