import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { rmsNorm } from '../../norm/rms_norm/index.js';
import { expertLayout } from '../experts.js';
import { expertProblem, runOnce } from '../fixture.js';
import { oneRow, suite } from './cases.js';
import { expertLinear } from './index.js';

await testKernel(suite);

await describeOnAdapters('expert_linear', (device) => {
  test.each([true, false])(
    'bits: a row alone or in a batch, experts in one buffer or in three (software: %s)',
    async (software) => {
      const problem = expertProblem(5, [8, 3], 72, 33, { type: 'q8', xPerSlot: true });
      const inputs = suite.inputs(problem, new Random(6));
      const { out: whole } = await runOnce(device(), suite, problem, inputs, 5, software);

      const alone = await runOnce(device(), suite, { ...problem, rows: 1 }, oneRow(problem, inputs, 3), 1, software);
      const rowLength = problem.topK * problem.outStride;
      expect(alone['out']).toEqual(whole!.subarray(3 * rowLength, 4 * rowLength));

      const { weightBytes, scaleBytes } = expertLayout(problem);
      let out = inputs['out']!;
      for (const [expertFirst, expertCount] of [
        [5, 3],
        [0, 1],
        [1, 4],
      ] as const) {
        const part = (name: string, bytes: number) =>
          inputs[name]!.slice((expertFirst * bytes) / 4, ((expertFirst + expertCount) * bytes) / 4);
        const shard = { ...inputs, weight: part('weight', weightBytes), scale: part('scale', scaleBytes), out };
        const result = await runOnce(device(), suite, { ...problem, expertFirst, expertCount }, shard, 5, software);
        out = result['out']! as Float32Array;
      }
      expect(out).toEqual(whole);
    },
  );

  test('a fused norm gives the bits of rms_norm before it', async () => {
    const problem = expertProblem(2, [4, 2], 100, 40, { type: 'q8', epilogue: 'swiglu' });
    const [rows, width, stride, eps] = [problem.rows, problem.inFeatures, problem.xStride, 1e-5];
    const fused = { ...problem, normEps: eps };
    const inputs = suite.inputs(fused, new Random(9));
    const { x, norm_weight: weight, ...rest } = inputs;
    const norm = { rows, width, stride, eps, residual: false };
    const normInputs = { x: x!, weight: weight! };
    const { out: normed } = await runOnce(
      device(),
      { kernel: rmsNorm, outputs: () => ({}), reference: () => ({ out: [] }) },
      norm,
      { ...normInputs, out: new Float32Array(rows * stride) },
      rows,
      false,
    );
    const { out: expected } = await runOnce(device(), suite, problem, { ...rest, x: normed! }, rows, false);
    const { out } = await runOnce(device(), suite, fused, inputs, rows, false);
    expect(new Uint32Array(out!.buffer)).toEqual(new Uint32Array(expected!.buffer));
  });

  test.each([true, false])(
    "other experts' weights are not read, nor rows beyond the step written (software: %s)",
    async (software) => {
      const problem = expertProblem(2, [4, 1], 40, 24, { type: 'f32', epilogue: 'swiglu' });
      const inputs = suite.inputs(problem, new Random(2));
      const expertWords = expertLayout(problem).weightBytes / 4;
      const weight = new Uint32Array(inputs['weight']!).fill(0x7fc00000);
      weight.set(inputs['weight']!.subarray(2 * expertWords, 3 * expertWords), 2 * expertWords);
      const { out } = await runOnce(
        device(),
        suite,
        problem,
        { ...inputs, weight, expert_ids: Uint32Array.of(2, 1) },
        1,
        software,
      );
      expect(out!.subarray(0, 24).every(Number.isFinite)).toBe(true);
      expect(out!.subarray(32)).toEqual(inputs['out']!.subarray(32));
    },
  );
});

test('says what an expert takes', () => {
  const shape = { type: 'q8', inFeatures: 2048, outFeatures: 1408, epilogue: 'swiglu' } as const;
  expect(expertLayout(shape)).toEqual({ tiles: 88, weightBytes: 2 * 1408 * 2048, scaleBytes: (2 * 1408 * 2048) / 16 });
});

test('refuses shapes that do not fit', () => {
  const plan = (rest: object) => expertLinear.plan(expertProblem(2, [4, 2], 40, 24, rest), BASELINE_TRAITS);
  expect(() => plan({ xStride: 40 })).toThrow('xStride is 40, expected a multiple of 4 from 64 on');
  expect(() => plan({ outStride: 16 })).toThrow('outFeatures is 24, expected 1 to 16');
  expect(() => plan({ topK: 5 })).toThrow('topK is 5, expected 1 to 4');
  expect(() => plan({ expertFirst: 3, expertCount: 2 })).toThrow(
    'experts 3 to 4 in the shard, expected some of 0 to 3',
  );
  expect(() => plan({ normEps: 1e-5, xPerSlot: true })).toThrow('a fused norm needs rows that slots share');
  const long = { ...expertProblem(1, [4, 2], 4096, 24), normEps: 1e-5 };
  expect(() => expertLinear.plan(long, BASELINE_TRAITS)).toThrow(/4096 with a fused norm need .* 16384.*rms_norm/);
  expect(() => plan({ rows: 40000 })).toThrow('40000 rows need 80000 workgroups');
});
