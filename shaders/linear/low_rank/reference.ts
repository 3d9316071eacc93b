import { range } from '../../../src/base/lists.js';
import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { segmentRange, segmentStart } from '../segments.js';
import { type LowRankProblem, NO_PLACE } from './index.js';

/** Of a row, and of a segment, a group or a slot of it. */
interface Product {
  readonly row: number;
  /** Which entry of its adapter's; undefined: another rank's. */
  readonly expert: number | undefined;
  /** Where its x begins, its part of A's rows or of B's, and its outputs. */
  readonly x: number;
  readonly factors: number;
  readonly out: number;
  /** Of x by A. */
  readonly length: number;
  /** Elements from row to row of A, or of B^T. */
  readonly stride: number;
}

const numberOf = ({ total, first = 0, count = total - first }: LowRankProblem['segments']): number => count;

function ofSegments(problem: LowRankProblem): Product[] {
  const { rows, part, outFeatures, segments, modelInFeatures, xStride, xOffset = 0, outStride } = problem;
  const { first = 0 } = segments;
  const { start: base, end: last } = segmentRange(modelInFeatures, segments);
  return range(0, numberOf(segments)).flatMap((s) =>
    range(0, rows).map((row): Product => {
      const [start, end] = [first + s, first + s + 1].map((at) => segmentStart(at, modelInFeatures, segments) - base);
      const out = (s * rows + row) * outStride;
      return part === 'down'
        ? {
            row,
            expert: 0,
            x: row * xStride + xOffset + start!,
            factors: start!,
            out,
            length: end! - start!,
            stride: last - base,
          }
        : { row, expert: 0, x: (s * rows + row) * xStride, factors: 0, out, length: 0, stride: outFeatures };
    }),
  );
}

function ofGroups(problem: LowRankProblem, groups: NonNullable<LowRankProblem['groups']>): Product[] {
  const { rows, part, outFeatures, modelInFeatures, xStride, xOffset = 0, outStride } = problem;
  const { count, stride, shared } = groups;
  const width = part === 'down' ? modelInFeatures : outFeatures;
  return range(0, count).flatMap((group) =>
    range(0, rows).map((row): Product => {
      const piece = group * rows + row;
      const [x, out] =
        part === 'down'
          ? [row * xStride + xOffset + group * stride, piece * outStride]
          : [piece * xStride, row * outStride + group * stride];
      const own = shared ? { factors: 0, stride: width } : { factors: group * width, stride: count * width };
      return { row, expert: 0, x, out, length: modelInFeatures, ...own };
    }),
  );
}

function ofExperts(
  problem: LowRankProblem,
  { topK, first, count, xPerSlot }: NonNullable<LowRankProblem['experts']>,
  ids: ArrayLike<number>,
): Product[] {
  const { rows, part, outFeatures, modelInFeatures, xStride, xOffset = 0, outStride } = problem;
  return range(0, rows * topK).map((pair): Product => {
    const row = Math.floor(pair / topK);
    const expert = ids[pair]! - first;
    const x = (part === 'down' && !xPerSlot ? row : pair) * xStride + xOffset;
    const stride = part === 'down' ? modelInFeatures : outFeatures;
    const isHere = expert >= 0 && expert < count;
    const out = pair * outStride;
    return { row, expert: isHere ? expert : undefined, x, factors: 0, out, length: modelInFeatures, stride };
  });
}

function productsOf(problem: LowRankProblem, inputs: HostArrays): Product[] {
  const { groups, experts } = problem;
  if (groups) return ofGroups(problem, groups);
  return experts ? ofExperts(problem, experts, inputs['ids']!) : ofSegments(problem);
}

/** Float64, straight from the equations; what isn't written is left undefined. */
export function reference(problem: LowRankProblem, inputs: HostArrays): Expected {
  const { rows, part, outFeatures, segments, outStride, bias, groups, experts, lookup } = problem;
  const [x, factors, table] = [inputs['x']!, inputs['factors']!, inputs['table']!];
  const length = (groups?.count ?? numberOf(segments)) * rows * (experts?.topK ?? 1) * outStride;
  const out = part === 'add' ? [...inputs['out']!] : Array.from<number>({ length });
  for (const of of productsOf(problem, inputs)) {
    const place = inputs['places']![inputs['row_info']![2 * of.row + 1]!] ?? NO_PLACE;
    const entry = 4 * (place * (experts?.count ?? 1) + (of.expert ?? 0));
    const [a, b, width, rank] =
      of.expert === undefined ? [0, 0, 0, 0] : [0, 1, 2, 3].map((at) => table[entry + at] ?? 0);
    /** Of A's row n by x. */
    const down = (n: number): number => {
      const token = lookup && inputs['ids']![of.row]! % (lookup.mask + 1);
      if (token !== undefined) return token < of.length ? factors[a! + n * of.stride + token]! : 0;
      return range(0, of.length).reduce(
        (sum, k) => sum + factors[a! + n * of.stride + of.factors + k]! * x[of.x + k]!,
        0,
      );
    };
    /** Of B's row n by A x, with what it is added to. */
    const up = (n: number): number => {
      const from = b! + of.factors + n;
      const own = bias && of.expert !== undefined ? inputs['bias']![of.expert * outFeatures + n]! : 0;
      const base = part === 'add' ? inputs['out']![of.out + n]! : own;
      return range(0, width ? rank! : 0).reduce(
        (sum, j) => sum + factors[from + (1 + j) * of.stride]! * x[of.x + factors[from]! + j]!,
        base,
      );
    };
    for (let n = 0; n < (part === 'down' ? width! : outFeatures); n++)
      out[of.out + n] = part === 'down' ? down(n) : up(n);
  }
  return { out };
}
