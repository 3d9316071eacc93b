import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { rowInfoArray } from '../../attention/fixture.js';
import { packedLayout, WEIGHT_TYPES } from '../pack.js';
import { linearInputs, outLength } from '../reference.js';
import { linearMerge, type MergedChunks } from './index.js';
import { linearMergeReference, linearProblem, type MergedCase } from './reference.js';
import { someKept } from '../testing/kept_tiles.js';

/** A head's partials that the row at a position sees, as attention leaves them; the others are NaN. */
export function partialInputs(
  {
    heads,
    headDim,
    partials,
    position,
    slidingWindow = Infinity,
  }: MergedChunks & { readonly heads: number; readonly headDim: number; readonly position: number },
  random: Random,
): HostArrays {
  const chunks = Math.floor(position / 256) + 1;
  const first = Math.floor(Math.max(0, position + 1 - slidingWindow) / 256);
  const o = new Float32Array(heads * partials * headDim).fill(Number.NaN);
  const ml = new Float32Array(heads * partials * 2).fill(Number.NaN);
  for (let head = 0; head < heads; head++) {
    for (let chunk = first; chunk < chunks; chunk++) {
      const at = head * partials + chunk;
      const l = 1 + 100 * random.next();
      ml.set([3 * random.normal(), l], at * 2);
      o.set(random.normals(headDim, l), at * headDim);
    }
  }
  return { partial_o: o, partial_ml: ml, row_info: rowInfoArray([[position, 0]]) };
}

function mergedCase(
  name: string,
  [heads, headDim, outFeatures]: readonly [number, number, number],
  position: number,
  rest: Partial<MergedCase> = {},
  extra: Partial<KernelCase<MergedCase>> = {},
): KernelCase<MergedCase> {
  const inFeatures = heads * headDim;
  const problem = {
    inFeatures,
    outFeatures,
    type: 'f16' as const,
    segments: { total: heads, align: 8 },
    bias: false,
    epilogue: 'none' as const,
    outStride: alignUp(outFeatures, 32),
    headDim,
    partials: Math.floor(position / 256) + 2,
    position,
    ...rest,
  };
  const layout = packedLayout(problem.type, outFeatures, inFeatures);
  return {
    name,
    problem,
    seed: 11,
    tolerance: { absolute: 4e-5, relative: 2e-5 },
    flops: 2 * inFeatures * outFeatures,
    bytes: layout.weightBytes + layout.scaleBytes + 4 * outFeatures,
    step: { rows: 1, chunks: Math.floor(position / 256) + 1 },
    ...extra,
  };
}

const small = { races: true };

const cases = [
  mergedCase('tiny', [2, 8, 33], 300, {}, small),
  mergedCase('one chunk', [6, 24, 72], 255, { epilogue: 'residual' }),
  ...someKept('linear_merge').map((type) => mergedCase(`${type}, 4 heads of 192`, [4, 192, 33], 600, { type })),
  mergedCase('four chunks, bias and residual', [5, 40, 96], 1023, { bias: true, epilogue: 'residual' }),
  mergedCase('one partial only', [3, 64, 40], 17, { partials: 1 }),
  mergedCase('a window', [2, 8, 33], 700, { slidingWindow: 300 }, small),
  mergedCase('a window not yet full', [2, 8, 33], 700, { slidingWindow: 900 }),
  // Chunk 8 is of the first lane.
  mergedCase('a window of chunks 5 to 8', [3, 40, 72], 2100, { slidingWindow: 700, epilogue: 'residual' }),
  mergedCase('a window of chunks 7 to 9', [3, 40, 72], 2400, { slidingWindow: 513 }),
  mergedCase('a window of chunks 8 and 9', [2, 256, 40], 2500, { slidingWindow: 300, type: 'q4' }),
  mergedCase('a window of one entry', [2, 8, 33], 300, { slidingWindow: 1 }),
  mergedCase('gated', [2, 8, 33], 300, { gateOffset: 40 }, small),
  mergedCase('gated, 8 heads of 256', [8, 256, 96], 900, { gateOffset: 0, type: 'q8', epilogue: 'residual' }),
  ...WEIGHT_TYPES.map((type) => mergedCase(`${type}, 14 heads of 64`, [14, 64, 896], 700, { type })),
  mergedCase('q4, heads that cut blocks', [10, 24, 72], 600, { type: 'q4', segments: { total: 5, align: 8 } }),
  mergedCase('segments of one of three ranks', [4, 24, 33], 600, {
    type: 'q4',
    output: 'segments',
    modelInFeatures: 240,
    segments: { total: 5, align: 8, first: 1, count: 2 },
  }),
  mergedCase('40 segments', [40, 16, 64], 300, { segments: { total: 40, align: 8 } }),
  mergedCase('a shard, scaled', [2, 128, 40], 512, { outOffset: 24, outStride: 96, epilogue: 'residual' }),
];

const large = WEIGHT_TYPES.map((type) =>
  mergedCase(`${type}, large`, [32, 64, 2048], 1000, { type, segments: { total: 8, align: 8 } }, { large: true }),
);

export const suite: KernelSuite<typeof linearMerge.bindings, typeof linearMerge.params, MergedCase> = {
  kernel: linearMerge,
  cases: [...cases, ...large],
  inputs: (problem, random) => {
    const { x: _x, ...matrix } = linearInputs(linearProblem(problem), random);
    const { inFeatures, headDim, gateOffset } = problem;
    return {
      ...matrix,
      ...partialInputs({ ...problem, heads: inFeatures / headDim }, random),
      ...(gateOffset !== undefined && { gate: random.normals(gateOffset + inFeatures, 3) }),
    };
  },
  outputs: (problem): Record<string, { type: 'f32'; length: number }> =>
    problem.epilogue === 'residual' ? {} : { out: { type: 'f32', length: outLength(linearProblem(problem)) } },
  reference: linearMergeReference,
};
