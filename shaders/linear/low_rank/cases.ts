import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { segmentRange } from '../segments.js';
import { lowRank, type LowRankProblem, NO_PLACE } from './index.js';
import { reference } from './reference.js';

/** Adapters of two parts each (as q and k) of these ranks, and one that leaves the matrix as it is. */
const RANKS = [4, 0, 16];
const WIDEST = 2 * Math.max(...RANKS);
const ONE: LowRankProblem['segments'] = { total: 1, align: 32 };

function lowRankCase(
  name: string,
  part: LowRankProblem['part'],
  rows: number,
  modelInFeatures: number,
  outFeatures: number,
  rest: Partial<LowRankProblem> = {},
  races = false,
): KernelCase<LowRankProblem> {
  const { segments = ONE, groups } = rest;
  const { start, end } = segmentRange(modelInFeatures, segments);
  const down = part === 'down';
  const outs = down ? WIDEST : outFeatures;
  const { count = segments.total } = segments;
  return {
    name,
    problem: {
      rows,
      part,
      outFeatures: outs,
      segments,
      modelInFeatures,
      xStride: down ? alignUp(groups ? groups.count * groups.stride : end - start, 32) : WIDEST,
      outStride: alignUp(groups && !down ? groups.count * groups.stride : outs, 32),
      ...rest,
    },
    seed: 5,
    flops: 2 * rows * outs * (down ? end - start : WIDEST / 2),
    bytes: 4 * (down ? end - start : WIDEST / 2) * outs,
    step: { rows, chunks: 1 },
    races,
    ...((count > 1 || modelInFeatures > 1000) && { tolerance: { absolute: 1e-4, relative: 1e-5 } }),
  };
}

const SOME = { topK: 3, first: 2, count: 3 };
const CUT = { total: 8, align: 32, first: 2, count: 3 };

function inputs(problem: LowRankProblem, random: Random): HostArrays {
  const { rows, part, outFeatures: outs, segments, modelInFeatures, xStride, outStride, bias, groups } = problem;
  const { start, end } = segmentRange(modelInFeatures, segments);
  const { total, first = 0 } = segments;
  const count = groups?.count ?? segments.count ?? total - first;
  const own = groups && !groups.shared ? groups.count : 1;
  const outFeatures = own * outs;
  const table: number[] = [];
  const factors: number[] = [];
  // Experts of an adapter differ in their ranks.
  const { topK = 1, count: each = 1, xPerSlot = true } = problem.experts ?? {};
  for (const rank of RANKS.flatMap((of, place) =>
    Array.from({ length: each }, (_, e) => RANKS[(place + e) % 3] ?? of),
  )) {
    const a = factors.length;
    const values = random.normals(part === 'down' ? 2 * rank * own * (end - start) : rank * outFeatures);
    if (part === 'down') table.push(a, 0, 2 * rank, rank);
    else {
      table.push(0, a, 2 * rank, rank);
      // The first part of the outputs reads the first half of A x.
      for (let n = 0; n < outFeatures; n++) factors.push(n % outs < outs / 3 ? 0 : rank);
    }
    for (const value of values) factors.push(value);
  }
  return {
    x: random.normals((part === 'down' ? rows * (xPerSlot ? topK : 1) : count * rows * topK) * xStride),
    factors: Float32Array.from(factors),
    table: Uint32Array.from(table),
    // A row beyond the slots is none.
    row_info: Uint32Array.from({ length: 2 * rows }, (_, at) => (at === 2 * rows - 1 && rows > 4 ? NO_PLACE : at >> 1)),
    places: Uint32Array.from({ length: rows }, (_, slot) => [2, NO_PLACE, 0, 1][slot % 4]!),
    // Some are before those here, some behind.
    ...(problem.experts && {
      ids: Uint32Array.from({ length: rows * topK }, (_, at) => (at * 5 + Math.floor(at / topK)) % (each + 4)),
    }),
    // Bits that don't count, then an id beyond the table.
    ...(problem.lookup && {
      ids: Uint32Array.from(
        { length: rows },
        (_, at) => (at << 24) + ((at * 37) % modelInFeatures) + (at === 2 ? modelInFeatures : 0),
      ),
    }),
    ...(bias ? { bias: random.normals(each * outFeatures) } : {}),
    ...(part === 'add' ? { out: random.normals((groups ? 1 : count) * rows * outStride) } : {}),
  };
}

export const suite: KernelSuite<typeof lowRank.bindings, typeof lowRank.params, LowRankProblem> = {
  kernel: lowRank,
  cases: [
    lowRankCase('down, one row of 33', 'down', 1, 33, 0, {}, true),
    lowRankCase('down, segments of 520, from within a row', 'down', 6, 520, 0, {
      segments: CUT,
      xOffset: 8,
      xStride: 256,
    }),
    lowRankCase('down, 5 rows of 576', 'down', 5, 576, 0),
    lowRankCase('bias, none', 'bias', 6, 64, 70, {}, true),
    lowRankCase('bias', 'bias', 9, 64, 200, { bias: true }),
    lowRankCase('added to segments', 'add', 7, 520, 130, { segments: CUT }),
    lowRankCase('down, 3 groups of their own A', 'down', 6, 24, 0, { groups: { count: 3, stride: 40, shared: false } }),
    lowRankCase('down, 3 groups of one A', 'down', 4, 96, 0, { groups: { count: 3, stride: 96, shared: true } }, true),
    lowRankCase('added to 3 groups by one B', 'add', 6, 24, 96, { groups: { count: 3, stride: 112, shared: true } }),
    lowRankCase('added to 5 groups of their own B', 'add', 5, 96, 70, {
      groups: { count: 5, stride: 70, shared: false },
    }),
    lowRankCase('down, experts 2 to 4', 'down', 6, 40, 0, { experts: { ...SOME, xPerSlot: false } }),
    lowRankCase('down, experts 2 to 4, each of its own x', 'down', 5, 96, 0, { experts: { ...SOME, xPerSlot: true } }),
    lowRankCase(
      'bias of experts 2 to 4',
      'bias',
      6,
      64,
      70,
      { experts: { ...SOME, xPerSlot: true }, bias: true },
      true,
    ),
    lowRankCase('bias, none, of experts 2 to 4', 'bias', 5, 64, 70, { experts: { ...SOME, xPerSlot: true } }),
    lowRankCase('lookup of 3 rows among 33', 'down', 3, 33, 0, { lookup: { mask: 0xffffff } }, true),
    lowRankCase('lookup of 256 rows among 5000', 'down', 256, 5000, 0, { lookup: { mask: 0xffffff } }),
    lowRankCase('down, 256 x 4096', 'down', 256, 4096, 0),
    lowRankCase('bias, 256 x 6144', 'bias', 256, 4096, 6144),
  ],
  inputs,
  outputs: ({
    rows,
    part,
    segments: { total, first = 0, count = total - first },
    outStride,
    groups,
    experts,
  }): Record<string, { type: 'f32'; length: number }> =>
    part === 'add'
      ? {}
      : { out: { type: 'f32', length: (groups?.count ?? count) * rows * (experts?.topK ?? 1) * outStride } },
  reference,
};
