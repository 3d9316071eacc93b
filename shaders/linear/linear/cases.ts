import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { KEPT_TYPES, packedLayout, WEIGHT_TYPES } from '../pack.js';
import { linearInputs, outLength } from '../reference.js';
import { linear, type LinearRowsProblem } from './index.js';
import { reference } from './reference.js';

const ONE = { total: 1, align: 32 };

/** A problem with the strides of a lone layer, changed by `rest`. */
export function rowsProblem(
  rows: number,
  inFeatures: number,
  outFeatures: number,
  rest: Partial<LinearRowsProblem> = {},
): LinearRowsProblem {
  return {
    rows,
    inFeatures,
    outFeatures,
    type: 'f16',
    segments: ONE,
    tileRows: rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1,
    bias: false,
    norm: false,
    epilogue: 'none',
    xStride: alignUp(inFeatures, 32),
    outStride: alignUp(outFeatures, 32),
    ...rest,
  };
}

function linearCase(name: string, problem: LinearRowsProblem, extra: Partial<KernelCase<LinearRowsProblem>> = {}) {
  const { rows, inFeatures, outFeatures, type, epilogue } = problem;
  const outputs = outFeatures * (epilogue === 'swiglu' ? 2 : 1);
  const layout = packedLayout(type, outputs, inFeatures);
  return {
    name,
    problem,
    seed: 1,
    // f32 accumulation of up to 1536 products of unit size against float64.
    tolerance: { absolute: 2e-5, relative: 1e-5 },
    flops: 2 * rows * inFeatures * outputs,
    bytes: layout.weightBytes + layout.scaleBytes + 4 * rows * (inFeatures + outputs),
    step: { rows, chunks: 1 },
    ...extra,
  };
}

const small = { races: true };

const TYPES = [...WEIGHT_TYPES, 'mxfp4'] as const;

export const suite: KernelSuite<typeof linear.bindings, typeof linear.params, LinearRowsProblem> = {
  kernel: linear,
  cases: [
    ...TYPES.flatMap((type) => [
      linearCase(`${type}, one output`, rowsProblem(1, 40, 1, { type }), type === 'f16' ? small : {}),
      linearCase(`${type}, odd sizes`, rowsProblem(3, 100, 33, { type })),
      // Tiles of 8 rows in one type only: their long shaders take software adapters seconds to compile.
      linearCase(`${type}, 8 rows`, rowsProblem(8, 576, 96, { type, tileRows: type === 'f16' ? 8 : 2 })),
      linearCase(`${type}, a tail of rows`, rowsProblem(17, 72, 33, { type, tileRows: type === 'f32' ? 4 : 2 })),
      linearCase(`${type}, long contraction`, rowsProblem(1, 1536, 576, { type })),
      // 3 heads of 8, 24 and 80: boundaries that cut units of 16 and 32.
      linearCase(`${type}, segments of 8`, rowsProblem(2, 24, 40, { type, segments: { total: 3, align: 8 } })),
      linearCase(`${type}, segments of 24`, rowsProblem(1, 72, 33, { type, segments: { total: 3, align: 8 } })),
      linearCase(`${type}, segments of 80`, rowsProblem(3, 400, 96, { type, segments: { total: 5, align: 8 } })),
      linearCase(
        `${type}, 8 segments, some empty`,
        rowsProblem(2, 100, 33, { type, segments: { total: 8, align: 32 } }),
      ),
      linearCase(`${type}, 12 segments`, rowsProblem(2, 768, 33, { type, segments: { total: 12, align: 8 } })),
      linearCase(`${type}, norm`, rowsProblem(1, 576, 96, { type, norm: true, eps: 1e-5 })),
      linearCase(
        `${type}, swiglu`,
        rowsProblem(3, 100, 33, { type, epilogue: 'swiglu' }),
        // Both factors carry the contraction's error.
        { tolerance: { absolute: 5e-5, relative: 5e-5 } },
      ),
    ]),
    ...drawn(KEPT_TYPES, 12, 'kept of linear').flatMap((type) => [
      linearCase(`${type}, one output`, rowsProblem(1, 256, 1, { type }), small),
      linearCase(`${type}, 8 rows`, rowsProblem(8, 768, 96, { type, tileRows: 2 })),
      linearCase(`${type}, a tail of rows`, rowsProblem(17, 512, 33, { type, tileRows: 4 })),
      linearCase(`${type}, long contraction`, rowsProblem(1, 1536, 576, { type })),
      // Boundaries cut blocks of 256, and units.
      linearCase(`${type}, segments of 96`, rowsProblem(2, 768, 40, { type, segments: { total: 8, align: 8 } })),
      linearCase(`${type}, segments of 152`, rowsProblem(1, 768, 33, { type, segments: { total: 5, align: 8 } })),
      linearCase(
        `${type}, a slice that starts within a block`,
        rowsProblem(3, 320, 33, {
          type,
          output: 'segments',
          modelInFeatures: 768,
          segments: { total: 12, align: 8, first: 2, count: 5 },
        }),
      ),
      linearCase(`${type}, norm`, rowsProblem(1, 768, 96, { type, norm: true, eps: 1e-5 })),
      linearCase(`${type}, swiglu`, rowsProblem(3, 512, 33, { type, epilogue: 'swiglu' }), {
        tolerance: { absolute: 5e-5, relative: 5e-5 },
      }),
    ]),
    linearCase('q4, two rows', rowsProblem(2, 72, 33, { type: 'q4', segments: { total: 3, align: 8 } }), small),
    linearCase('bias', rowsProblem(3, 72, 33, { bias: true })),
    linearCase('bias of each row', rowsProblem(3, 72, 33, { bias: true, biasStride: 64, biasOffset: 5 })),
    linearCase('bias that begins later', rowsProblem(3, 72, 33, { bias: true, biasStride: 0, biasOffset: 5 })),
    linearCase('residual', rowsProblem(3, 72, 33, { epilogue: 'residual' })),
    linearCase(
      'bias, residual and segments',
      rowsProblem(3, 192, 33, { bias: true, epilogue: 'residual', segments: { total: 8, align: 8 } }),
    ),
    linearCase(
      'norm, bias and swiglu',
      rowsProblem(1, 100, 40, { norm: true, eps: 1e-6, bias: true, epilogue: 'swiglu' }),
      small,
    ),
    linearCase(
      'norm, bias and gelu',
      rowsProblem(1, 100, 40, { norm: true, eps: 1e-6, bias: true, epilogue: 'swiglu', activation: 'gelu_tanh' }),
      small,
    ),
    linearCase('gelu by erf', rowsProblem(3, 100, 33, { epilogue: 'gelu', activation: 'gelu', bias: true })),
    linearCase('gelu, bias', rowsProblem(3, 100, 33, { epilogue: 'gelu', bias: true })),
    linearCase(
      'gelu, 8 segments',
      rowsProblem(1, 576, 96, { epilogue: 'gelu', type: 'q8', segments: { total: 8, align: 32 } }),
    ),
    linearCase('norm of two rows', rowsProblem(2, 100, 33, { norm: true, eps: 1e-6, tileRows: 1 })),
    linearCase('norm of two rows in a tile', rowsProblem(2, 100, 33, { norm: true, eps: 1e-6 }), small),
    linearCase(
      'norm of a tile and a row, swiglu',
      rowsProblem(5, 896, 72, { norm: true, eps: 1e-6, type: 'q4', epilogue: 'swiglu' }),
      { tolerance: { absolute: 5e-5, relative: 5e-5 } },
    ),
    linearCase('a shard of the logits', rowsProblem(2, 64, 40, { outOffset: 24, outStride: 96 })),
    linearCase('capped logits', rowsProblem(3, 100, 33, { outScale: 6, outCap: 2.5 })),
    linearCase(
      'a norm and logits that the cap hardly bends',
      rowsProblem(1, 64, 40, { norm: true, eps: 1e-6, outCap: 30 }),
      small,
    ),
    linearCase(
      'segments as output',
      rowsProblem(2, 100, 33, { output: 'segments', segments: { total: 8, align: 8 } }),
      small,
    ),
    linearCase(
      'a slice that starts within a block of q4',
      rowsProblem(2, 48, 33, {
        type: 'q4',
        output: 'segments',
        modelInFeatures: 72,
        segments: { total: 3, align: 8, first: 1, count: 2 },
      }),
    ),
    linearCase('many segments lower tileRows', rowsProblem(8, 512, 33, { segments: { total: 64, align: 8 } })),
    linearCase('matvec 2048 x 2048, f16', rowsProblem(1, 2048, 2048)),
    linearCase('matvec 2048 x 2048, q4', rowsProblem(1, 2048, 2048, { type: 'q4' })),
    ...WEIGHT_TYPES.map((type) =>
      linearCase(`${type}, large`, rowsProblem(1, 4096, 8192, { type }), {
        large: true,
        tolerance: { absolute: 1e-4, relative: 2e-5 },
      }),
    ),
  ],
  inputs: linearInputs,
  outputs: (problem): Record<string, { type: 'f32'; length: number }> =>
    problem.epilogue === 'residual' ? {} : { out: { type: 'f32', length: outLength(problem) } },
  reference,
};
