import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { packedLayout, WEIGHT_TYPES } from '../pack.js';
import { linearInputs, outLength } from '../reference.js';
import { linearTiled, type LinearTiledProblem } from './index.js';
import { reference } from './reference.js';
import { someKept } from '../testing/kept_tiles.js';

/** A problem with the strides of a lone layer, changed by `rest`. */
export function tiledProblem(
  rows: number,
  inFeatures: number,
  outFeatures: number,
  rest: Partial<LinearTiledProblem> = {},
): LinearTiledProblem {
  return {
    rows,
    inFeatures,
    outFeatures,
    type: 'f16',
    segments: { total: 1, align: 32 },
    bias: false,
    epilogue: 'none',
    xStride: alignUp(inFeatures, 32),
    outStride: alignUp(outFeatures, 32),
    ...rest,
  };
}

function tiledCase(name: string, problem: LinearTiledProblem, extra: Partial<KernelCase<LinearTiledProblem>> = {}) {
  const { rows, inFeatures, outFeatures, type, epilogue } = problem;
  const columns = outFeatures * (epilogue === 'swiglu' ? 2 : 1);
  const layout = packedLayout(type, columns, inFeatures);
  return {
    name,
    problem,
    seed: 2,
    // f32 accumulation, one product after the other, against float64.
    tolerance: { absolute: 4e-5, relative: 1e-5 },
    flops: 2 * rows * inFeatures * columns,
    bytes: layout.weightBytes + layout.scaleBytes + 4 * rows * (inFeatures + outFeatures),
    step: { rows, chunks: 1 },
    ...extra,
  };
}

const TYPES = [...WEIGHT_TYPES, 'mxfp4'] as const;

export const suite: KernelSuite<typeof linearTiled.bindings, typeof linearTiled.params, LinearTiledProblem> = {
  kernel: linearTiled,
  cases: [
    ...TYPES.flatMap((type) => [
      tiledCase(`${type}, one output, one row`, tiledProblem(1, 40, 1, { type })),
      tiledCase(`${type}, odd sizes`, tiledProblem(33, 100, 33, { type })),
      tiledCase(`${type}, large tiles`, tiledProblem(200, 72, 2112, { type })),
      tiledCase(`${type}, segments of 24`, tiledProblem(17, 72, 40, { type, segments: { total: 3, align: 8 } })),
      tiledCase(`${type}, segments of 80`, tiledProblem(8, 400, 96, { type, segments: { total: 5, align: 8 } })),
      tiledCase(
        `${type}, 8 segments, some empty`,
        tiledProblem(3, 100, 33, { type, segments: { total: 8, align: 32 } }),
      ),
    ]),
    tiledCase('race', tiledProblem(2, 8, 3, { bias: true }), { races: true }),
    tiledCase('bias', tiledProblem(17, 576, 33, { bias: true })),
    tiledCase('bias of each row', tiledProblem(5, 72, 33, { bias: true, biasStride: 64, biasOffset: 5 })),
    tiledCase('bias that begins later', tiledProblem(5, 72, 33, { bias: true, biasStride: 0, biasOffset: 5 })),
    tiledCase(
      'residual and segments',
      tiledProblem(17, 1536, 96, { epilogue: 'residual', bias: true, segments: { total: 8, align: 32 } }),
    ),
    tiledCase('gelu and bias', tiledProblem(9, 576, 33, { epilogue: 'gelu', bias: true })),
    tiledCase('gelu by erf', tiledProblem(9, 576, 33, { epilogue: 'gelu', activation: 'gelu', bias: true })),
    tiledCase('swiglu by gelu by erf', tiledProblem(9, 72, 70, { epilogue: 'swiglu', activation: 'gelu' })),
    tiledCase('gelu, large tiles', tiledProblem(70, 72, 200, { epilogue: 'gelu', type: 'q4' })),
    ...TYPES.flatMap((type) => [
      tiledCase(`${type}, swiglu`, tiledProblem(33, 100, 33, { type, epilogue: 'swiglu' })),
      tiledCase(`${type}, swiglu, large tiles`, tiledProblem(200, 72, 1060, { type, epilogue: 'swiglu' })),
    ]),
    ...someKept('linear_tiled').flatMap((type) => [
      tiledCase(`${type}, odd sizes`, tiledProblem(33, 768, 33, { type })),
      tiledCase(`${type}, large tiles`, tiledProblem(200, 256, 2112, { type })),
      tiledCase(`${type}, segments of 152`, tiledProblem(8, 768, 96, { type, segments: { total: 5, align: 8 } })),
      tiledCase(
        `${type}, a slice that starts within a block`,
        tiledProblem(9, 320, 33, {
          type,
          output: 'segments',
          modelInFeatures: 768,
          segments: { total: 12, align: 8, first: 2, count: 5 },
        }),
      ),
      tiledCase(`${type}, swiglu`, tiledProblem(33, 512, 70, { type, epilogue: 'swiglu' })),
    ]),
    tiledCase('swiglu of little', tiledProblem(2, 8, 3, { epilogue: 'swiglu' }), { races: true }),
    tiledCase('swiglu and bias', tiledProblem(9, 576, 100, { epilogue: 'swiglu', bias: true })),
    tiledCase('swiglu by gelu', tiledProblem(9, 72, 70, { epilogue: 'swiglu', activation: 'gelu_tanh', bias: true })),
    tiledCase('a shard of the outputs', tiledProblem(8, 64, 40, { outOffset: 24, outStride: 96 })),
    tiledCase('segments as output', tiledProblem(9, 100, 33, { output: 'segments', segments: { total: 8, align: 8 } })),
    tiledCase(
      'a slice that starts within a block of q4',
      tiledProblem(9, 48, 33, {
        type: 'q4',
        output: 'segments',
        modelInFeatures: 72,
        segments: { total: 3, align: 8, first: 1, count: 2 },
      }),
    ),
    tiledCase('128 rows, 576 x 1536, q4', tiledProblem(128, 576, 1536, { type: 'q4' })),
  ],
  inputs: linearInputs,
  outputs: (problem): Record<string, { type: 'f32'; length: number }> =>
    problem.epilogue === 'residual' ? {} : { out: { type: 'f32', length: outLength(problem) } },
  reference,
};
