import { beforeAll, describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import type { DeviceTraits } from '../../../src/gpu/index.js';
import { assembleWgsl, type Bindings, type Kernel, type KernelPlan, type ParamTypes } from '../../../src/gpu/kernel.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { bindingProblems } from '../../../src/gpu/testing/check_wgsl.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { BASELINE_TRAITS } from '../../../src/gpu/testing/test_kernel.js';
import { rmsNorm } from '../../norm/rms_norm/index.js';
import { rowsProblem } from '../linear/cases.js';
import { canFuseNorm, linear, type LinearRowsProblem } from '../linear/index.js';
import { suite as mergeSuite } from '../linear_merge/cases.js';
import { linearMerge } from '../linear_merge/index.js';
import { linearProblem, mergeProblem } from '../linear_merge/reference.js';
import { attentionMerge } from '../../attention/attention_merge/index.js';
import { unpackTiles } from '../pack.js';
import { linearInputs, linearReference, outLength } from '../reference.js';
import { segmentRange } from '../segments.js';
import { rowBits, runOnce } from '../testing/run.js';
import dotPacked from './dot_packed.wgsl?raw';
import dotPlain from './dot_plain.wgsl?raw';
import { loadFast } from './fast.js';

beforeAll(loadFast);

const inBytes = (traits: DeviceTraits): DeviceTraits => ({
  ...traits,
  software: false,
  fast: { paths: ['matrix 16x16x16', 'dot4', 'f16'], subgroup: 32 },
});

/** Planned so, whatever it is asked with. */
const decided = <B extends Bindings, P extends ParamTypes, Problem>(
  kernel: Kernel<B, P, Problem>,
  traits: DeviceTraits,
  change: (plan: KernelPlan<P>) => KernelPlan<P> = (plan) => plan,
): Kernel<B, P, Problem> => ({ ...kernel, plan: (problem: Problem) => change(kernel.plan(problem, inBytes(traits))) });

test('which weights and segments: by the model alone', () => {
  const pathOf = (rest: Partial<LinearRowsProblem>, traits = inBytes(BASELINE_TRAITS)) =>
    linear.plan(rowsProblem(1, 192, 40, { type: 'q4', ...rest }), traits).fast;
  expect(pathOf({})).toBe('dot4');
  expect(pathOf({ type: 'q8' })).toBe('dot4');
  expect(pathOf({ type: 'f16' })).toBeUndefined();
  expect(pathOf({ segments: { total: 3, align: 32 } })).toBe('dot4');
  // 24 columns a segment; and all that one rank has lies in blocks of its own.
  expect(pathOf({ segments: { total: 8, align: 8 } })).toBeUndefined();
  const held = { total: 8, align: 8, first: 0, count: 4 };
  expect(pathOf({ inFeatures: 96, modelInFeatures: 192, segments: held })).toBeUndefined();
  expect(pathOf({}, BASELINE_TRAITS)).toBeUndefined();
  expect(pathOf({}, { ...inBytes(BASELINE_TRAITS), software: true })).toBeUndefined();
  const f16 = { paths: ['f16' as const], subgroup: 32 };
  expect(pathOf({}, { ...BASELINE_TRAITS, fast: f16 })).toBeUndefined();
});

test('what fits the workgroup memory with a norm, fits it in bytes, too', () => {
  const traits = inBytes(BASELINE_TRAITS);
  const widths = [1024, 2048, 2560, 3072].filter((width) => canFuseNorm(width, traits));
  expect(widths.length).toBeGreaterThan(1);
  for (const width of widths) {
    const norm = { type: 'q4', norm: true, eps: 1e-5, epilogue: 'swiglu' } as const;
    const plan = linear.plan(rowsProblem(1, width, 32, norm), traits);
    expect(bindingProblems(linear, assembleWgsl('linear', plan))).toEqual([]);
  }
});

await describeOnAdapters('generated rows in bytes', (device) => {
  const run = (
    problem: LinearRowsProblem,
    inputs: HostArrays,
    change?: (plan: KernelPlan<typeof linear.params>) => KernelPlan<typeof linear.params>,
    traits = device().traits,
  ): Promise<Uint32Array> =>
    runOnce(device(), decided(linear, traits, change), problem, inputs, outLength(problem), false);

  describe.each(['q8', 'q4'] as const)('%s', (type) => {
    test('errors are within half a step of each block', async () => {
      const K = 608;
      const problem = rowsProblem(3, K, 40, { type, segments: { total: 2, align: 32 } });
      const inputs = linearInputs(problem, new Random(21));
      const x = inputs['x'] as Float32Array;
      // As activations are: a few columns are far larger than the others; a block may be zero.
      for (let row = 0; row < 3; row++) for (const k of [7, 500]) x[row * problem.xStride + k]! *= 30;
      x.fill(0, 64, 96);
      const bits = await run(problem, inputs);
      const got = new Float32Array(bits.buffer, bits.byteOffset, bits.length);
      const want = linearReference(problem, inputs)['out']!;
      const w = unpackTiles(type, inputs as never, 40, K);
      let different = 0;
      for (let row = 0; row < 3; row++) {
        for (let n = 0; n < 40; n++) {
          let bound = 1e-4;
          for (let first = 0; first < K; first += 32) {
            const columns = Array.from({ length: 32 }, (_, i) => first + i);
            const largest = Math.max(...columns.map((k) => Math.abs(x[row * problem.xStride + k]!)));
            bound += columns.reduce((sum, k) => sum + Math.abs(w[n * K + k]!), 0) * (largest / 254);
          }
          const at = row * problem.outStride + n;
          const error = Math.abs(got[at]! - Number(want[at]!));
          expect(error, `row ${row}, output ${n}`).toBeLessThan(bound);
          if (error > 1e-4) different++;
        }
      }
      expect(different).toBeGreaterThan(60); // rounded they are
    });

    test('the same bits alone, in tiles of 2, 4 and 8, however it is tuned, and by plain products', async () => {
      const problem = rowsProblem(9, 200, 72, { type, tileRows: 1, epilogue: 'swiglu' });
      const inputs = linearInputs(problem, new Random(22));
      const whole = await run(problem, inputs);
      for (const tileRows of drawn([2, 4, 8] as const, 1, `tiles in bytes ${type}`))
        expect(await run({ ...problem, tileRows }, inputs)).toEqual(whole);
      const alone = { ...problem, rows: 1 };
      const x = inputs['x']!.slice(8 * problem.xStride);
      const row = (out: Uint32Array, at: number) => rowBits(out, at, problem.outStride, 72);
      const one = await run(alone, { ...inputs, x });
      expect(row(one, 0)).toEqual(row(whole, 8));
      for (const tuning of drawn(linear.tunings!, 1, `tunings in bytes ${type}`)) {
        const tuned = { ...device().traits, tuning };
        expect(await run(alone, { ...inputs, x }, undefined, tuned), tuning).toEqual(one);
      }
      const plain = await run(alone, { ...inputs, x }, (plan) => ({
        ...plan,
        wgsl: plan.wgsl.map((text) => (text === dotPacked ? dotPlain : text)),
      }));
      expect(plain).toEqual(one);
    });

    test('a fused norm gives the bits of rms_norm before it', async () => {
      const width = 192;
      const problem = rowsProblem(2, width, 40, { type, norm: true, eps: 1e-5, tileRows: 1 });
      const { norm_weight: weight, ...rest } = linearInputs(problem, new Random(23));
      const { xStride } = problem;
      const normed = await runOnce(
        device(),
        rmsNorm,
        { rows: 2, width, stride: xStride, eps: 1e-5, residual: false },
        { x: rest['x']!, weight: weight!, out: new Float32Array(2 * xStride) },
        2 * xStride,
        false,
      );
      const x = new Float32Array(normed.buffer, normed.byteOffset, normed.length);
      const apart = await run({ ...problem, norm: false, tileRows: 2 }, { ...rest, x });
      expect(await run(problem, { ...rest, norm_weight: weight! })).toEqual(apart);
    });

    test('the segments of a rank are those of one rank', async () => {
      const segments = { total: 4, align: 32 };
      const output = 'segments' as const;
      const problem = rowsProblem(2, 384, 40, { type, segments, output });
      const inputs = linearInputs(problem, new Random(24));
      const whole = await run(problem, inputs);
      const held = { ...segments, first: 1, count: 2 };
      const { start, end } = segmentRange(384, held);
      const part = { ...problem, inFeatures: end - start, modelInFeatures: 384, segments: held, xStride: end - start };
      const x = new Float32Array(2 * part.xStride);
      for (let row = 0; row < 2; row++) {
        const from = row * problem.xStride;
        x.set(inputs['x']!.subarray(from + start, from + end) as Float32Array, row * part.xStride);
      }
      // Both tiles' blocks of the weight.
      const cut = (words: Uint32Array): Uint32Array<ArrayBuffer> => {
        const tile = words.length / 2;
        const [from, to] = [(tile * start) / 384, (tile * end) / 384];
        return Uint32Array.from([...words.subarray(from, to), ...words.subarray(tile + from, tile + to)]);
      };
      const { weight, scale } = inputs as Record<string, Uint32Array>;
      const sums = await run(part, { x, weight: cut(weight!), scale: cut(scale!) });
      const size = 2 * problem.outStride;
      expect(sums).toEqual(whole.subarray(size, 3 * size));
    });
  });

  test('linear_merge gives the bits of attention_merge and linear', async () => {
    const { problem, seed } = mergeSuite.cases.find(({ name }) => name === 'q4, 14 heads of 64')!;
    const { partial_o, partial_ml, row_info, ...matrix } = mergeSuite.inputs(problem, new Random(seed));
    const partials = { partial_o: partial_o!, partial_ml: partial_ml!, row_info: row_info! };
    const both = linearProblem(problem);
    const kernel = decided(linearMerge, device().traits);
    expect(kernel.plan(problem, device().traits).fast).toBe('dot4');
    const once = { ...problem, rows: 1 };
    const got = await runOnce(device(), kernel, once, { ...matrix, ...partials }, outLength(both), false);
    const merge = mergeProblem(problem);
    const merged = await runOnce(device(), attentionMerge, merge, partials, merge.outStride, false);
    const x = new Float32Array(merge.outStride);
    x.set(new Float32Array(merged.buffer, merged.byteOffset, problem.inFeatures));
    expect(got).toEqual(await run(both as LinearRowsProblem, { ...matrix, x }));
  });
});
