import { beforeAll, describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { fastTraits } from '../../../src/gpu/fast_paths.js';
import type { Device, DeviceTraits, FastPath } from '../../../src/gpu/index.js';
import { assembleWgsl, type Bindings, type Kernel, type KernelPlan, type ParamTypes } from '../../../src/gpu/kernel.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { bindingProblems } from '../../../src/gpu/testing/check_wgsl.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import type { HostArray, HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { findMismatch, prepareCase } from '../../../src/gpu/testing/run_kernel.js';
import { BASELINE_TRAITS } from '../../../src/gpu/testing/test_kernel.js';
import { expertProblem } from '../../moe/fixture.js';
import { suite as expertSuite, sorted } from '../../moe/expert_linear_tiled/cases.js';
import { expertInputs, randomExperts } from '../../moe/fixture.js';
import { expertLinearTiled } from '../../moe/expert_linear_tiled/index.js';
import { suite as normSuite } from '../../norm/rms_norm/cases.js';
import { rmsNorm } from '../../norm/rms_norm/index.js';
import { suite as linearSuite, tiledProblem } from '../linear_tiled/cases.js';
import { linearTiled, type LinearTiledProblem } from '../linear_tiled/index.js';
import { unpackTiles, type WeightType } from '../pack.js';
import { linearInputs, linearReference } from '../reference.js';
import dotPacked from './dot_packed.wgsl?raw';
import dotPlain from './dot_plain.wgsl?raw';
import { fastPath, loadFast, takesBytes } from './fast.js';
import { spelledOut } from './testing/plain_units.js';

beforeAll(loadFast);

const PATHS = ['f16', 'dot4'] as const satisfies FastPath[];
/** Apple's, AMD's and NVIDIA's, Intel's; spelled out (testing/plain_units.ts), as no adapter of tests has them. */
const UNITS = ['matrix f32 8x8x8', 'matrix 16x16x16', 'matrix f16 8x16x16'] as const satisfies FastPath[];
const ALL = [...PATHS, ...UNITS] as const;

/** As for a GPU with one path; the CPU's compilers take long for what is unrolled. */
const traitsFor = (traits: DeviceTraits, path: FastPath, subgroup = 32): DeviceTraits => ({
  ...traits,
  software: false,
  fast: { paths: [path], subgroup, matrix: 'subgroup-matrix' },
});

/** Whether the adapter under test cuts digits off where it rounds to f16. */
let cuts = false;

const decided = <B extends Bindings, P extends ParamTypes, Problem>(
  kernel: Kernel<B, P, Problem>,
  traits: DeviceTraits,
  change: (plan: KernelPlan<P>) => KernelPlan<P> = (plan) => plan,
): Kernel<B, P, Problem> => ({
  ...kernel,
  plan: (problem: Problem) => spelledOut(change(kernel.plan(problem, traits)), cuts),
});

/** Runs one dispatch; the outputs by binding. */
async function runCase<B extends Bindings, P extends ParamTypes, Problem>(
  device: Device,
  suite: KernelSuite<B, P, Problem>,
  testCase: KernelCase<Problem>,
): Promise<{ readonly inputs: HostArrays; readonly out: HostArray }> {
  const prepared = await device.checked(testCase.name, () => prepareCase(device, suite, testCase));
  try {
    await device.checked(testCase.name, () => {
      prepared.reset();
      prepared.run();
    });
    return { inputs: prepared.inputs, out: (await prepared.readOutputs(['out']))['out']! };
  } finally {
    prepared.dispose();
  }
}

const runLinear = async (
  device: Device,
  kernel: typeof linearTiled,
  problem: LinearTiledProblem,
  inputs: HostArrays,
): Promise<Uint32Array> => {
  const suite = { ...linearSuite, kernel, inputs: () => inputs };
  const step = { rows: problem.rows, chunks: 1 };
  const { out } = await runCase(device, suite, { name: 'one', problem, seed: 0, flops: 0, bytes: 0, step });
  return new Uint32Array(out.buffer, out.byteOffset, out.length);
};

/** What outputs of normal rows by weights of 1 / sqrt(K) may be off by; those of bytes by some 1% of their size. */
const TOLERANCE = {
  f16: { absolute: 4e-3, relative: 2e-3 },
  dot4: { absolute: 6e-2, relative: 2e-2 },
  'matrix f32 8x8x8': { absolute: 4e-5, relative: 1e-5 },
  'matrix 16x16x16': { absolute: 4e-3, relative: 2e-3 },
  'matrix f16 8x16x16': { absolute: 2e-2, relative: 4e-3 },
} as const;

describe('by what an adapter has', () => {
  const config = (componentType: string, resultComponentType: string, M: number, N: number, K: number) => ({
    componentType,
    resultComponentType,
    M,
    N,
    K,
  });
  const apple = [config('f32', 'f32', 8, 8, 8), config('f16', 'f16', 8, 8, 8)];
  const intel = [config('i8', 'i32', 8, 16, 32), config('f16', 'f16', 8, 16, 16)];
  const nvidia = [...intel, config('f16', 'f32', 16, 16, 16), config('f16', 'f32', 16, 8, 16)];
  const experimental = 'chromium-experimental-subgroup-matrix';
  test.each<[vendor: string, features: readonly string[], configs: unknown[], size: number, paths: readonly string[]]>([
    ['apple', ['subgroup-matrix'], apple, 32, ['matrix f32 8x8x8', 'matrix f16 8x8x8', 'f16']],
    ['intel', [experimental], intel, 32, ['matrix f16 8x16x16', 'dot4', 'f16']],
    ['nvidia', [experimental, 'subgroup-matrix'], nvidia, 32, ['matrix 16x16x16', 'matrix f16 8x16x16', 'dot4', 'f16']],
    ['of large subgroups', [experimental], nvidia, 128, ['dot4', 'f16']],
    ['without matrix units', [], nvidia, 32, ['dot4', 'f16']],
  ])('%s', (vendor, features, subgroupMatrixConfigs, subgroupMaxSize, paths) => {
    const has = new Set(['shader-f16', 'subgroups', ...features]);
    const info = { vendor, subgroupMatrixConfigs, subgroupMaxSize };
    const language = new Set(['packed_4x8_integer_dot_product']);
    const of = (names: Set<string>) => fastTraits({ features: names, info } as never, language);
    expect(of(has)).toEqual({ paths, subgroup: subgroupMaxSize, matrix: features[0] });
    has.delete('shader-f16');
    expect(of(has).paths).toEqual(paths.filter((path) => path === 'dot4' || path.includes('f32')));
    has.delete('subgroups');
    expect(of(has).paths).toEqual(paths.filter((path) => path === 'dot4'));
  });

  test('shaders name the feature as the adapter does', () => {
    for (const matrix of [experimental, 'subgroup-matrix']) {
      const fast = { paths: ['matrix 16x16x16'], subgroup: 32, matrix } as const;
      const plan = linearTiled.plan(tiledProblem(100, 64, 4096), { ...BASELINE_TRAITS, fast });
      const code = assembleWgsl('linear_tiled', plan);
      expect(code).toMatch(new RegExp(`^enable ${matrix.replaceAll('-', '_')}, f16;$`, 'm'));
    }
  });
});

describe('by features and weights', () => {
  const paths = ['matrix 16x16x16', 'dot4', 'f16'] as const;
  test.each<[WeightType, readonly FastPath[], FastPath | undefined]>([
    ['q4', paths, 'matrix 16x16x16'],
    ['f16', paths, 'matrix 16x16x16'],
    ['q8', ['dot4', 'f16'], 'dot4'],
    ['f16', ['dot4', 'f16'], 'f16'],
    ['f16', ['dot4'], undefined],
    ['q4', ['f16'], 'f16'],
    ['q4', [], undefined],
    ['f32', paths, undefined],
  ])('%s of %j', (type, given, taken) => {
    const fast = { paths: given, subgroup: 32, matrix: 'subgroup-matrix' };
    expect(fastPath({ ...BASELINE_TRAITS, fast }, type)).toBe(taken);
    expect(fastPath({ ...BASELINE_TRAITS, software: true, fast }, type)).toBeUndefined();
    expect(fastPath(BASELINE_TRAITS, type)).toBeUndefined();
    const plan = linearTiled.plan(tiledProblem(100, 64, 4096, { type }), { ...BASELINE_TRAITS, fast });
    expect(plan.fast).toBe(taken);
  });
});

describe.each([linearSuite, expertSuite] as const)('$kernel.name', (suite) => {
  const { kernel, cases } = suite as unknown as KernelSuite<Bindings, ParamTypes, { type: WeightType }>;

  // Races aren't looked for: wgsl_reflect's interpreter loses types of what functions return.
  test('declaration and WGSL agree', () => {
    for (const path of PATHS) {
      const traits = traitsFor(BASELINE_TRAITS, path);
      for (const { problem, name } of cases) {
        if (fastPath(traits, problem.type) === undefined) continue;
        expect(bindingProblems(kernel, assembleWgsl(kernel.name, kernel.plan(problem as never, traits))), name).toEqual(
          [],
        );
      }
    }
  });
});

await describeOnAdapters('fast tiles', (device, isQuickest) => {
  beforeAll(() => {
    cuts = device().name.includes('SwiftShader');
  });

  const near = drawn(ALL, isQuickest ? 2 : 1, `near ${device().name}`);
  test.each(near)('%s: cases are near the reference', { timeout: 300_000 }, async (path) => {
    const traits = traitsFor(device().traits, path);
    for (const suite of [linearSuite, expertSuite]) {
      const { kernel, cases, ...rest } = suite as unknown as KernelSuite<Bindings, ParamTypes, { type: WeightType }>;
      const isUnits = path.startsWith('matrix');
      // Units that are spelled out are slow.
      const fast = cases.filter(
        ({ problem, flops }) => fastPath(traits, problem.type) !== undefined && !(isUnits && flops > 1e6),
      );
      for (const testCase of drawn(fast, isQuickest && !isUnits ? 2 : 1, `fast ${kernel.name} ${path}`)) {
        const { inputs, out } = await runCase(device(), { ...rest, cases, kernel: decided(kernel, traits) }, testCase);
        const tolerance = TOLERANCE[path];
        const want = rest.reference(testCase.problem, inputs)['out']!;
        const mismatch = findMismatch({ ...testCase, tolerance }, 'out', out, want);
        expect(mismatch, `${kernel.name}, ${path}`).toBeUndefined();
      }
    }
  });

  /** Elements of f32 that a sum's rounding is off by, and what f16 rounds: half a unit in the last of 11 bits. */
  const F32 = 2 ** -23;
  const F16 = 2 ** -11;
  const bounds: [FastPath, WeightType, rms: number][] = [
    ['f16', 'f16', 3e-4],
    ['f16', 'q8', 4e-4],
    ['f16', 'q4', 4e-4],
    ['dot4', 'q8', 1.2e-2],
    ['dot4', 'q4', 1.2e-2],
    ['matrix f32 8x8x8', 'q8', 1e-6],
    ['matrix 16x16x16', 'q4', 4e-4],
    ['matrix f16 8x16x16', 'q8', 2e-3],
  ];
  const bounded = drawn(bounds, isQuickest ? 3 : 1, `bounds ${device().name}`);
  test.each(bounded)('%s by %s weights: errors are within their bound', async (path, type, rms) => {
    const K = 1536;
    const problem = tiledProblem(40, K, 96, { type });
    const inputs = linearInputs(problem, new Random(11));
    const x = inputs['x'] as Float32Array;
    // As activations are: a few columns are far larger than the others.
    for (let row = 0; row < 40; row++) for (const k of [7, 700]) x[row * K + k]! *= 30;
    const kernel = decided(linearTiled, traitsFor(device().traits, path));
    const bits = await runLinear(device(), kernel, problem, inputs);
    const got = new Float32Array(bits.buffer, bits.byteOffset, bits.length);
    const want = linearReference(problem, inputs)['out']!;
    const w = unpackTiles(type, inputs as never, 96, K);
    let [errors, sizes] = [0, 0];
    for (let row = 0; row < 40; row++) {
      for (let n = 0; n < 96; n++) {
        let bound = 0;
        for (let first = 0; first < K; first += 32) {
          let [products, weights, largest] = [0, 0, 0];
          for (let k = first; k < first + 32; k++) {
            const [a, b] = [Math.abs(x[row * K + k]!), Math.abs(w[n * K + k]!)];
            products += a * b;
            weights += b;
            largest = Math.max(largest, a);
          }
          // Half a step of a row's block; or both factors' rounding, and f16's least normal number where it is flushed.
          if (path === 'dot4') bound += (weights * largest) / 254;
          else if (!path.includes('f32')) bound += products * (2 * F16 + F16 ** 2) + weights * 2 ** -14;
          // Sums of 32 products in f16, or all in f32.
          bound += products * (path.startsWith('matrix f16') ? 33 * F16 : K * F32);
        }
        const error = got[row * 96 + n]! - want[row * 96 + n]!;
        expect(Math.abs(error)).toBeLessThan(bound);
        errors += error ** 2;
        sizes += want[row * 96 + n]! ** 2;
      }
    }
    const relative = Math.sqrt(errors / sizes);
    if (process.env['SPLITKV_PRINT']) console.log(path, type, relative);
    expect(relative).toBeLessThan(rms);
    if (!path.includes('f32')) expect(relative, 'it rounds').toBeGreaterThan(1e-5);
  });

  const pairs: [FastPath, WeightType][] = [
    ['f16', 'f16'],
    ['f16', 'q4'],
    ['dot4', 'q8'],
    ['dot4', 'q4'],
  ];
  describe.each(drawn(pairs, 1, 'fast bits'))('%s by %s weights: equal bits', (path, type) => {
    const kernelOf = (change?: (plan: KernelPlan<ParamTypes>) => KernelPlan<ParamTypes>): typeof linearTiled =>
      decided(linearTiled, traitsFor(device().traits, path), change as never);

    test('of a row whatever the number of rows, the tiles and what is asked for early', async () => {
      // More rows take larger tiles.
      const problem = tiledProblem(65, 72, 8160, { type, segments: { total: 3, align: 8 } });
      const inputs = linearInputs(problem, new Random(6));
      const { xStride, outStride, outFeatures } = problem;
      const whole = await runLinear(device(), kernelOf(), problem, inputs);
      for (const rows of [1, 33]) {
        const x = inputs['x']!.slice(31 * xStride, (31 + rows) * xStride);
        const early = kernelOf((plan) => ({ ...plan, constants: { ...plan.constants, PREFETCH: rows === 33 } }));
        const part = await runLinear(device(), early, { ...problem, rows }, { ...inputs, x });
        for (let row = 0; row < rows; row++) {
          const at = (31 + row) * outStride;
          expect(part.subarray(row * outStride, row * outStride + outFeatures)).toEqual(
            whole.subarray(at, at + outFeatures),
          );
        }
      }
    });

    test('of a segment whatever the other segments of a rank are', async () => {
      // Segments begin and end within a block of 32.
      const segments = { total: 4, align: 8 };
      const problem = tiledProblem(9, 200, 40, { type, segments, output: 'segments' });
      const inputs = linearInputs(problem, new Random(7));
      const whole = await runLinear(device(), kernelOf(), problem, inputs);
      const [first, start, end] = [1, 48, 144];
      const held = { ...segments, first, count: 2 };
      const part = { ...problem, inFeatures: end - start, modelInFeatures: 200, segments: held, xStride: 96 };
      const x = new Float32Array(9 * 96);
      for (let row = 0; row < 9; row++) {
        const from = row * problem.xStride;
        x.set(inputs['x']!.subarray(from + start, from + end) as Float32Array, row * 96);
      }
      // Blocks 32 to 160 of the weight.
      const { weight, scale } = inputs as Record<string, Uint32Array>;
      const cut = (words: Uint32Array): Uint32Array<ArrayBuffer> => {
        const tile = words.length / 2;
        const [from, to] = [(tile * 32) / 224, (tile * 160) / 224];
        return Uint32Array.from([...words.subarray(from, to), ...words.subarray(tile + from, tile + to)]);
      };
      const given = { x, weight: cut(weight!), ...(scale && { scale: cut(scale) }) };
      const sums = await runLinear(device(), kernelOf(), part, given);
      const size = 9 * problem.outStride;
      for (let s = 0; s < 2; s++) {
        for (let row = 0; row < 9; row++) {
          const [to, from] = [s * size + row * problem.outStride, (first + s) * size + row * problem.outStride];
          expect(sums.subarray(to, to + 40), `segment ${s}, row ${row}`).toEqual(whole.subarray(from, from + 40));
        }
      }
    });

    if (path !== 'dot4') return;
    test('of packed products and their twin', async () => {
      const problem = tiledProblem(33, 200, 72, { type });
      const inputs = linearInputs(problem, new Random(8));
      const twin = kernelOf((plan) => ({
        ...plan,
        wgsl: plan.wgsl.map((text) => (text === dotPacked ? dotPlain : text)),
      }));
      expect(await runLinear(device(), twin, problem, inputs)).toEqual(
        await runLinear(device(), kernelOf(), problem, inputs),
      );
    });
  });

  test.each(drawn(['q8', 'q4'] as const, 1, 'bytes'))(
    '%s: rows that a norm writes in bytes give the bits of rows in f32',
    async (type) => {
      const [rows, width, stride] = [37, 352, 384];
      const traits = traitsFor(device().traits, 'dot4');
      const norm = { rows, width, stride, eps: 1e-5, residual: false };
      const given = normSuite.inputs(norm, new Random(9));
      const normed = async (inBytes: boolean): Promise<HostArray> => {
        const suite = { ...normSuite, kernel: decided(rmsNorm, traits), inputs: () => given };
        const step = { rows, chunks: 1 };
        return (
          await runCase(device(), suite, {
            name: 'one',
            problem: { ...norm, inBytes },
            seed: 0,
            flops: 0,
            bytes: 0,
            step,
          })
        ).out;
      };
      const problem = tiledProblem(rows, width, 72, { type, xStride: stride, segments: { total: 3, align: 32 } });
      expect(takesBytes(traits, problem)).toBe(true);
      expect(takesBytes(traits, { ...problem, segments: { total: 3, align: 8 } })).toBe(false);
      expect(takesBytes(traitsFor(device().traits, 'f16'), problem)).toBe(false);
      const inputs = linearInputs(problem, new Random(10));
      const kernel = decided(linearTiled, traits);
      const outputs = async (inBytes: boolean): Promise<Uint32Array> =>
        runLinear(device(), kernel, { ...problem, inBytes }, { ...inputs, x: await normed(inBytes) });
      expect(await outputs(true)).toEqual(await outputs(false));
    },
  );

  const forExperts = drawn(ALL, isQuickest ? 2 : 1, `experts ${device().name}`);
  test.each(forExperts)("%s: an expert's rows alone or among others, experts in one buffer or not", async (path) => {
    const problem = { ...expertProblem(35, [8, 3], 72, 100, { type: 'q8' }), stepRows: 35 };
    const random = new Random(6);
    const inputs = expertInputs(problem, random);
    const ids = randomExperts(problem.rows, problem.topK, problem.experts, random);
    const kernel = decided(expertLinearTiled, traitsFor(device().traits, path));
    const run = async (wanted: typeof problem, given: HostArrays): Promise<HostArray> => {
      const suite = { ...expertSuite, kernel, inputs: () => given };
      const step = { rows: wanted.stepRows, chunks: 1 };
      return (await runCase(device(), suite, { name: 'one', problem: wanted, seed: 0, flops: 0, bytes: 0, step })).out;
    };
    const whole = await run(problem, { ...inputs, ...sorted(ids, problem) });
    const rowLength = problem.topK * problem.outStride;
    const one = { ...problem, rows: 1, stepRows: 1 };
    const alone = await run(one, {
      ...inputs,
      x: inputs['x']!.slice(34 * problem.xStride, 35 * problem.xStride),
      out: inputs['out']!.slice(0, rowLength),
      ...sorted(ids.subarray(34 * problem.topK), one),
    });
    expect(alone).toEqual(whole.subarray(34 * rowLength, 35 * rowLength));
    let { out } = inputs;
    for (const [expertFirst, expertCount] of [
      [0, 5],
      [5, 3],
    ] as const) {
      const part = (name: string): HostArray => {
        const each = inputs[name]!.length / problem.experts;
        return inputs[name]!.slice(expertFirst * each, (expertFirst + expertCount) * each);
      };
      const shard = { ...inputs, weight: part('weight'), scale: part('scale'), out: out!, ...sorted(ids, problem) };
      out = await run({ ...problem, expertFirst, expertCount } as typeof problem, shard);
    }
    expect(out).toEqual(whole);
  });
});
