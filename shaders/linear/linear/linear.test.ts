import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { rmsNorm } from '../../norm/rms_norm/index.js';
import { linearInputs } from '../reference.js';
import { rowBits, runOnce } from '../testing/run.js';
import { rowsProblem, suite } from './cases.js';
import { canFuseNorm, linear, type LinearRowsProblem } from './index.js';

await testKernel(suite);

const SEGMENTS = { total: 3, align: 8 };

await describeOnAdapters('linear', (device) => {
  describe.each([true, false])('decided for a software adapter: %s', (software) => {
    test('a row has the same bits in tiles of 1, 2, 4, 8 and 16, and alone', async () => {
      const summed = { type: 'f16', segments: SEGMENTS } as const;
      const gated = { type: 'q4', epilogue: 'swiglu' } as const;
      const others = software ? [{ ...summed, type: 'q4' as const }] : [gated];
      for (const rest of [summed, ...others]) {
        const problem = rowsProblem(17, 72, 33, { ...rest, tileRows: 1 });
        const inputs = linearInputs(problem, new Random(4));
        const run = (p: LinearRowsProblem, x = inputs['x']!) =>
          runOnce(device(), linear, p, { ...inputs, x }, p.rows * p.outStride, software);
        const whole = await run(problem);
        // The long shaders of gate and up take adapters seconds to compile.
        for (const tileRows of rest === gated ? ([16] as const) : ([2, 4, 8, 16] as const))
          expect(await run({ ...problem, tileRows }), `${tileRows}`).toEqual(whole);
        for (const row of [0, 8, 16]) {
          const x = inputs['x']!.slice(row * problem.xStride, (row + 1) * problem.xStride);
          const alone = await run({ ...problem, rows: 1 }, x);
          expect(rowBits(alone, 0, problem.outStride, 33), `row ${row}`).toEqual(
            rowBits(whole, row, problem.outStride, 33),
          );
        }
      }
    });

    test('an output has the same bits however many stand beside it', async () => {
      // So many that a thread of a GPU takes 4 outputs.
      for (const [type, outs] of [['f16', 16416] as const, ['q4', 8224] as const]) {
        const problem = rowsProblem(1, 200, outs, { type, segments: { total: 3, align: 8 } });
        const inputs = linearInputs(problem, new Random(6));
        const all = await runOnce(device(), linear, problem, inputs, problem.outStride, software);
        const few = { ...problem, outFeatures: 40, outStride: 64 };
        expect(rowBits(await runOnce(device(), linear, few, inputs, 64, software), 0, 64, 40), type).toEqual(
          rowBits(all, 0, problem.outStride, 40),
        );
      }
    });

    test('a fused norm gives the bits of rms_norm before it', async () => {
      for (const [rows, width] of [
        [1, 576],
        [3, 100],
        [5, 1100],
      ] as const) {
        const eps = 1e-5;
        const problem = rowsProblem(rows, width, 40, { type: 'q8', norm: true, eps });
        const inputs = linearInputs(problem, new Random(5));
        const { norm_weight: weight, ...rest } = inputs;
        const { xStride } = problem;
        const normed = await runOnce(
          device(),
          rmsNorm,
          { rows, width, stride: xStride, eps, residual: false },
          { x: inputs['x']!, weight: weight!, out: new Float32Array(rows * xStride) },
          rows * xStride,
          software,
        );
        const x = new Float32Array(normed.buffer, normed.byteOffset, normed.length);
        const length = rows * problem.outStride;
        const apart = await runOnce(
          device(),
          linear,
          { ...problem, norm: false, tileRows: 2 },
          { ...rest, x },
          length,
          software,
        );
        for (const tileRows of [1, problem.tileRows] as const) {
          const fused = await runOnce(device(), linear, { ...problem, tileRows }, inputs, length, software);
          expect(fused, `${rows} of ${width} by ${tileRows}`).toEqual(apart);
        }
      }
    });
  });
});

describe('linear refuses', () => {
  const plan =
    (problem: LinearRowsProblem, traits = BASELINE_TRAITS) =>
    () =>
      linear.plan(problem, traits);

  test('a row too long to normalise in workgroup memory, as canFuseNorm says', () => {
    expect(canFuseNorm(2048, BASELINE_TRAITS)).toBe(true);
    expect(canFuseNorm(4096, BASELINE_TRAITS)).toBe(false);
    expect(canFuseNorm(1024, BASELINE_TRAITS, 2)).toBe(true);
    expect(canFuseNorm(1024, BASELINE_TRAITS, 4)).toBe(false);
    expect(canFuseNorm(64, { ...BASELINE_TRAITS, software: true }, 2)).toBe(false);
    expect(plan(rowsProblem(1, 2048, 32, { norm: true, eps: 1e-5, epilogue: 'swiglu' }))).not.toThrow();
    expect(plan(rowsProblem(1, 4096, 32, { norm: true, eps: 1e-5 }))).toThrow(
      /maxComputeWorkgroupStorageSize is 16384.*rms_norm/,
    );
    const roomy = { ...BASELINE_TRAITS, limits: { ...BASELINE_TRAITS.limits, maxComputeWorkgroupStorageSize: 32768 } };
    expect(canFuseNorm(4096, roomy)).toBe(true);
    expect(plan(rowsProblem(1, 4096, 32, { norm: true, eps: 1e-5 }), roomy)).not.toThrow();
  });

  test('problems that contradict themselves', () => {
    expect(plan(rowsProblem(1, 64, 32, { xStride: 60 }))).toThrow(/xStride is 60/);
    expect(plan(rowsProblem(1, 64, 32, { outOffset: 1 }))).toThrow(/don't fit an out row of 32/);
    expect(plan(rowsProblem(1, 64, 32, { segments: { total: 4, align: 4 } }))).toThrow(/align is 4/);
    expect(plan(rowsProblem(1, 64, 32, { segments: { total: 4, align: 8, first: 1 } }))).toThrow(/cover 48 elements/);
    expect(plan(rowsProblem(1, 64, 32, { segments: { total: 4, align: 8, first: 3, count: 2 } }))).toThrow(
      /among the 4/,
    );
    expect(plan(rowsProblem(2, 64, 32, { norm: true }))).toThrow(/a fused norm needs eps/);
    expect(plan(rowsProblem(1, 64, 32, { output: 'segments', bias: true }))).toThrow(/reduce_segments/);
  });
});
