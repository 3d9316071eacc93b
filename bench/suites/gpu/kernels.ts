import { tiledProblem } from '../../../shaders/linear/linear_tiled/cases.js';
import { linearTiled, type LinearTiledProblem } from '../../../shaders/linear/linear_tiled/index.js';
import { rowsProblem } from '../../../shaders/linear/linear/cases.js';
import { linear, type LinearRowsProblem } from '../../../shaders/linear/linear/index.js';
import { packedLayout, type WeightType } from '../../../shaders/linear/pack.js';
import { linearInputs, linearReference, outLength } from '../../../shaders/linear/reference.js';
import { attentionCase, type AttentionCase, attentionInputs } from '../../../shaders/attention/fixture.js';
import { attentionSplit } from '../../../shaders/attention/attention_split/index.js';
import { attentionSplitReference } from '../../../shaders/attention/attention_split/reference.js';
import { SplitkvError } from '../../../src/base/errors.js';
import { Random } from '../../../src/base/random.js';
import { median } from '../../../src/base/stats.js';
import { warmUp } from '../../../src/engine/measure/timing.js';
import { openStopwatch } from '../../../src/engine/tuning/stopwatch.js';
import {
  type Buffer,
  type Device,
  type Kernel,
  type Program,
  type ProgramStep,
  Recorder,
} from '../../../src/gpu/index.js';
import { type Bindings, type KernelPlan, type ParamTypes, pipelineSource } from '../../../src/gpu/kernel.js';
import type { HostArray, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { findMismatch } from '../../../src/gpu/testing/run_kernel.js';
import { type AnyKernelSuite, kernelFolders, loadKernelSuite } from '../../kernel_suites.js';
import { checkKernel } from '../check.js';
import type { GpuBench, GpuPart } from '../gpu.js';
import { timeCases } from '../kernels.js';

/** Weights are read from copies that no cache holds together. */
const COLD_BYTES = 256 * 2 ** 20;
const ROUNDS = 5;

const correct: GpuPart = {
  name: 'correct',
  title: "Every kernel's cases against their float64 references",
  seconds: 110,
  async run({ device, hooks, row, isLate, quick }) {
    const wrong: string[] = [];
    for (const folder of kernelFolders(quick ? 'norm/' : '')) {
      if (isLate()) return;
      const { kernel, cases, wrong: failed } = await checkKernel(device, await loadKernelSuite(folder), hooks);
      row({ kernel, cases, wrong: failed.length, first: failed[0] ? `${failed[0].case}: ${failed[0].problem}` : '' });
      if (failed.length > 0) wrong.push(kernel);
    }
    if (wrong.length > 0) throw new SplitkvError('internal', `wrong on this adapter: ${wrong.join(', ')}`);
  },
};

/** A kernel's dispatch over copies of its buffers. */
export interface Timed {
  readonly program: Program;
  readonly step: ProgramStep;
  /** Dispatches in the program. */
  readonly count: number;
}

/** Microseconds of a dispatch of each, in turns. */
export async function timeInTurns(device: Device, all: readonly Timed[]): Promise<number[]> {
  const stopwatch = openStopwatch(device, all.length);
  try {
    const passes = (repeats: readonly number[]) =>
      all.map(({ program, step }, index) => (pass: GPUComputePassEncoder): void => {
        for (let i = 0; i < repeats[index]!; i++) program.encode(pass, step);
      });
    const once = all.map(() => 1);
    await stopwatch.seconds(passes(once));
    const repeatsNow = async (): Promise<number[]> =>
      (await stopwatch.seconds(passes(once))).map((seconds) =>
        Math.max(1, Math.min(512, Math.ceil((2 * stopwatch.enough) / seconds))),
      );
    const first = await repeatsNow();
    await warmUp([device], () => stopwatch.seconds(passes(first)));
    const repeats = await repeatsNow();
    const samples: number[][] = all.map(() => []);
    for (let round = 0; round < ROUNDS; round++) {
      const seconds = await stopwatch.seconds(passes(repeats));
      for (const [index, each] of seconds.entries()) {
        samples[index]!.push((each / repeats[index]! / all[index]!.count) * 1e6);
      }
    }
    return samples.map(median);
  } finally {
    stopwatch.dispose();
  }
}

/** A dispatch of a plan for each set of buffers. */
function recordPlan<B extends Bindings, P extends ParamTypes, Problem>(
  device: Device,
  kernel: Kernel<B, P, Problem>,
  problem: Problem,
  plan: KernelPlan<P>,
  sets: readonly { readonly [K in keyof B]?: Buffer }[],
): Program {
  const recorder = new Recorder(device, kernel.name);
  const { name, bindings, params } = kernel;
  for (const set of sets) recorder.dispatch({ name, bindings, params, plan: () => plan }, problem, set);
  return recorder.finish();
}

async function submit(device: Device, { program, step }: Pick<Timed, 'program' | 'step'>): Promise<void> {
  const encoder = device.gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  program.encode(pass, step);
  pass.end();
  device.gpu.queue.submit([encoder.finish()]);
  await device.wait(device.gpu.queue.onSubmittedWorkDone());
}

/** A buffer that holds `array` as often as it fits. */
export function repeated(device: Device, label: string, array: HostArray, bytes: number): Buffer {
  const buffer = device.createBuffer(label, bytes);
  for (let at = 0; at < bytes; at += array.byteLength) {
    device.write(buffer, at, new Uint8Array(array.buffer, array.byteOffset, Math.min(array.byteLength, bytes - at)));
  }
  return buffer;
}

type MatrixKernel = 'linear' | 'linear_tiled';

/**
 * A matrix times rows, by every plan of equal bits. The matrix is a small one over and over, whose product is compared with the
 * reference; the whole product must then be that over and over, bit for bit.
 */
async function timeMatrix(
  { device, rates, row, isLate, quick }: GpuBench,
  which: MatrixKernel,
  [outs, ins]: readonly [outs: number, ins: number],
  type: WeightType,
  rows: number,
): Promise<void> {
  const kernel = (which === 'linear' ? linear : linearTiled) as Kernel<
    (typeof linear)['bindings'],
    (typeof linear)['params'],
    LinearRowsProblem | LinearTiledProblem
  >;
  const problemOf = (of: number): LinearRowsProblem | LinearTiledProblem =>
    which === 'linear' ? rowsProblem(rows, ins, of, { type }) : tiledProblem(rows, ins, of, { type });
  const few = Math.min(outs, rows > 1 ? 64 : 256);
  const small = problemOf(few);
  const big = problemOf(outs);
  const step = { rows: [rows], chunks: 1 };
  const inputs = linearInputs(small, new Random(1));
  const { weightBytes, scaleBytes } = packedLayout(type, outs, ins);
  const bytes = weightBytes + scaleBytes;
  const copies = quick ? 1 : Math.max(1, Math.min(64, Math.ceil(COLD_BYTES / bytes)));
  const owned: Buffer[] = [];
  const programs: Program[] = [];
  try {
    const [first, ...rest] = await device.checked('preparing to measure', () =>
      Array.from({ length: copies }, (_, copy) => {
        const own = {
          x: copy === 0 ? repeated(device, 'x', inputs['x']!, inputs['x']!.byteLength) : owned[0]!,
          weight: repeated(device, 'weight', inputs['weight']!, weightBytes),
          ...(inputs['scale'] && { scale: repeated(device, 'scale', inputs['scale'], scaleBytes) }),
          out: device.createBuffer('out', outLength(big) * 4),
        };
        owned.push(...Object.values(own));
        return own;
      }),
    );
    const outputs = async (plan: KernelPlan<typeof linear.params>, problem: typeof small): Promise<Uint32Array> => {
      const program = recordPlan(device, kernel, problem, plan, [first!]);
      programs.push(program);
      await device.checked(kernel.name, () => submit(device, { program, step }));
      return new Uint32Array(await device.read(first!.out));
    };
    const { traits } = device;
    const what = `${outs} x ${ins}, ${type}, ${rows} rows`;
    const expected = await outputs(kernel.plan(small, traits), small);
    const problem = findMismatch(
      { name: what, problem: small, seed: 1, flops: 0, bytes: 0, tolerance: { absolute: 2e-4, relative: 1e-4 } },
      'out',
      new Float32Array(expected.buffer),
      linearReference({ ...small, epilogue: 'none' }, inputs)['out']!,
    );
    if (problem) throw new SplitkvError('internal', `${kernel.name}: ${problem}; it isn't timed`);
    const tunings = traits.software ? [undefined] : [undefined, ...(kernel.tunings ?? [])];
    const found = new Map<string, { readonly tuning: string; readonly timed: Timed; readonly plan: string }>();
    for (const tuning of tunings) {
      const plan = kernel.plan(big, tuning === undefined ? traits : { ...traits, tuning });
      const { code } = pipelineSource(kernel, plan);
      if (found.has(code)) continue;
      const got = await outputs(plan, big);
      for (let r = 0; r < rows; r++) {
        for (let n = 0; n < outs; n++) {
          if (got[r * big.outStride + n] === expected[r * small.outStride + (n % few)]) continue;
          throw new SplitkvError(
            'internal',
            `${kernel.name}, ${what}, ${tuning ?? 'as planned'}: output ${n} of row ${r} is wrong; it isn't timed`,
          );
        }
      }
      const program = recordPlan(device, kernel, big, plan, [first!, ...rest]);
      programs.push(program);
      const timed = { program, step, count: copies };
      found.set(code, { tuning: tuning ?? 'as planned', plan: planName(plan.constants), timed });
    }
    if (isLate()) return;
    const { copy_gbps: copy, fma_gflops: fma } = await rates();
    const times = await timeInTurns(
      device,
      [...found.values()].map(({ timed }) => timed),
    );
    for (const [index, { tuning, plan }] of [...found.values()].entries()) {
      const us = times[index]!;
      const gflops = (2 * rows * outs * ins) / us / 1e3;
      row({
        weights: type,
        tuning,
        plan,
        outputs: outs,
        inputs: ins,
        rows,
        us,
        'GB/s': bytes / us / 1e3,
        '% of copies': (100 * bytes) / us / 1e3 / copy,
        'GFLOP/s': gflops,
        '% of FMA': (100 * gflops) / fma,
      });
    }
  } finally {
    for (const program of programs) program.dispose();
    for (const buffer of new Set(owned)) buffer.dispose();
  }
}

/** The constants that a stopwatch may choose. */
const planName = (constants: KernelPlan<ParamTypes>['constants']): string =>
  ['LANES', 'EACH', 'SLICES', 'UNROLL', 'OUT_TILE', 'ROW_TILE', 'PREFETCH']
    .flatMap((name) => (name in constants ? `${name.toLowerCase()} ${constants[name]}` : []))
    .join(', ') || 'serial';

const MATRICES: readonly (readonly [outs: number, ins: number, only?: WeightType])[] = [
  [896, 896],
  [1152, 896],
  [896, 4864],
  [9728, 896],
  [2048, 8192],
  [151936, 896],
  [64, 2048, 'f32'],
];
const QUICK_MATRICES: typeof MATRICES = [
  [512, 256],
  [64, 256, 'f32'],
];

const matrices: GpuPart = {
  name: 'linear',
  title: 'A row times a matrix (decode), by types of weights and plans of equal bits, against copies',
  seconds: 110,
  async run(bench) {
    for (const [outs, ins, only] of bench.quick ? QUICK_MATRICES : MATRICES) {
      for (const type of only ? [only] : (['f16', 'q8', 'q4'] as const)) {
        if (bench.isLate()) return;
        bench.hooks.onProgress(`linear ${outs} x ${ins}, ${type}`);
        await timeMatrix(bench, 'linear', [outs, ins], type, 1);
      }
    }
  },
};

const tiles: GpuPart = {
  name: 'tiles',
  title: 'Rows times a matrix (prompts), by numbers of rows, against multiply-adds',
  seconds: 70,
  async run(bench) {
    const [outs, ins] = bench.quick ? [128, 128] : [2048, 2048];
    for (const type of ['f16', 'q4'] as const) {
      for (const rows of bench.quick ? [16, 64] : [16, 32, 64, 128, 256, 512]) {
        if (bench.isLate()) return;
        bench.hooks.onProgress(`linear_tiled ${rows} rows, ${type}`);
        await timeMatrix(bench, 'linear_tiled', [outs, ins], type, rows);
      }
    }
  },
};

const BLOCK = 64;
/** Of the sequence that is compared with the reference, and that longer ones repeat. */
const BASE_TOKENS = 1024;

const attention: GpuPart = {
  name: 'attention',
  title: 'attention_split of one generated row, f16 cache, by tokens',
  seconds: 60,
  async run(bench) {
    const { quick, isLate, hooks } = bench;
    const lengths = quick ? [64, 512, 2048] : [64, 256, 1024, 4096, 16384, 65536, 131072];
    for (const [heads, kvHeads] of quick
      ? ([[4, 2]] as const)
      : ([
          [14, 2],
          [32, 8],
        ] as const)) {
      for (const headDim of quick ? [64] : [64, 128]) {
        for (const tokens of lengths) {
          if (isLate()) return;
          hooks.onProgress(`attention ${heads}/${kvHeads} d${headDim}, ${tokens} tokens`);
          try {
            await timeAttention(bench, { heads, kvHeads, headDim, kvType: 'f16', block: BLOCK }, tokens);
          } catch (error) {
            // A cache of that length doesn't fit a binding: the next shape may.
            if (!(error instanceof SplitkvError) || error.code !== 'limit') throw error;
            break;
          }
        }
      }
    }
  },
};

/** Chunks of a long sequence are those of a short one over and over, so their states must be, too; the short one's are checked. */
async function timeAttention(
  { device, rates, row }: GpuBench,
  shape: Parameters<typeof attentionCase>[0],
  tokens: number,
): Promise<void> {
  const base = Math.min(tokens, BASE_TOKENS);
  const times = tokens / base;
  const small = attentionCase(shape, [[base - 1, 0]]);
  const big = attentionCase(shape, [[tokens - 1, 0]]);
  const inputs = attentionInputs(small, new Random(3));
  const owned: Buffer[] = [];
  const programs: Program[] = [];
  try {
    const buffersOf = (problem: AttentionCase, count: number): Record<string, Buffer> => {
      const { rows, heads, headDim, maxChunks } = problem;
      const blocks = Math.ceil(base / BLOCK);
      // attentionInputs' cache has two blocks more than are used.
      const physical = blocks + 2;
      const from = inputs['block_table']!;
      const table = new Uint32Array(problem.tableStride).fill(0xffffffff);
      for (let i = 0; i < blocks * count; i++) table[i] = from[i % blocks]! + Math.floor(i / blocks) * physical;
      const given: HostArrays = { ...inputs, block_table: table, row_info: Uint32Array.from([base * count - 1, 0]) };
      const made = Object.entries(given).map(([name, array]) => {
        const isCache = name === 'k_cache' || name === 'v_cache';
        return [name, repeated(device, name, array, array.byteLength * (isCache ? count : 1))] as const;
      });
      const states = rows * heads * maxChunks;
      return Object.fromEntries([
        ...made,
        ['partial_o', device.createBuffer('partial_o', states * headDim * 4)],
        ['partial_ml', device.createBuffer('partial_ml', states * 8)],
      ]);
    };
    const run = async (problem: AttentionCase, count: number) => {
      const chunks = Math.ceil((base * count) / 256);
      const buffers = await device.checked('attention_split', () => buffersOf(problem, count));
      owned.push(...Object.values(buffers));
      const plan = attentionSplit.plan(problem, device.traits);
      const program = recordPlan(device, attentionSplit, problem, plan, [buffers]);
      programs.push(program);
      const timed = { program, step: { rows: [1], chunks }, count: 1 };
      await device.checked('attention_split', () => submit(device, timed));
      return { timed, out: new Uint32Array(await device.read(buffers['partial_o']!)), chunks };
    };
    const short = await run(small, 1);
    const { partial_o: expected } = attentionSplitReference(small, inputs);
    const what = `attention_split, ${tokens} tokens`;
    const mismatch = findMismatch(
      { name: what, problem: small, seed: 3, flops: 0, bytes: 0, tolerance: { absolute: 1e-4, relative: 1e-4 } },
      'partial_o',
      new Float32Array(short.out.buffer),
      expected!,
    );
    if (mismatch) throw new SplitkvError('internal', `${mismatch}; it isn't timed`);
    const long = times === 1 ? short : await run(big, times);
    const { heads, headDim, kvHeads } = small;
    for (let head = 0; head < heads; head++) {
      for (let chunk = 0; chunk < long.chunks; chunk++) {
        for (let dim = 0; dim < headDim; dim++) {
          const got = long.out[(head * (times === 1 ? small : big).maxChunks + chunk) * headDim + dim];
          if (got === short.out[(head * small.maxChunks + (chunk % short.chunks)) * headDim + dim]) continue;
          throw new SplitkvError('internal', `${what}: chunk ${chunk} of head ${head} is wrong; it isn't timed`);
        }
      }
    }
    const [us] = await timeInTurns(device, [long.timed]);
    const bytes = 2 * 2 * kvHeads * headDim * tokens;
    row({
      'heads / kv heads': `${heads} / ${kvHeads}`,
      'head dim': headDim,
      tokens,
      us: us!,
      'GB/s': bytes / us! / 1e3,
      '% of copies': (100 * bytes) / us! / 1e3 / (await rates()).copy_gbps,
    });
  } finally {
    for (const program of programs) program.dispose();
    for (const buffer of owned) buffer.dispose();
  }
}

/** Cases that kernels have, which say flops and bytes: new ones are among them. */
const casesPart = (
  name: string,
  title: string,
  seconds: number,
  folders: (quick: boolean) => readonly string[],
  wanted: (suite: AnyKernelSuite) => AnyKernelSuite['cases'],
): GpuPart => ({
  name,
  title,
  seconds,
  async run({ device, hooks, rates, row, isLate, quick }) {
    for (const folder of folders(quick)) {
      const suite = await loadKernelSuite(folder);
      for (const testCase of wanted(suite).slice(0, quick ? 1 : undefined)) {
        if (isLate()) return;
        const [result] = await timeCases(device, suite, [testCase], ROUNDS, await rates(), hooks);
        const { kernel, us, gbps, copy_share: share, gflops } = result!;
        row({ kernel, case: testCase.name, us, 'GB/s': gbps, '% of copies': 100 * share, 'GFLOP/s': gflops });
      }
    }
  },
});

const byBytes = ({ cases }: AnyKernelSuite): AnyKernelSuite['cases'] =>
  cases
    .filter(({ large, needsF16 }) => !large && !needsF16)
    .toSorted((a, b) => b.bytes - a.bytes)
    .slice(0, 2);

export const KERNEL_PARTS: readonly GpuPart[] = [
  correct,
  matrices,
  attention,
  tiles,
  casesPart('kernels', "Every kernel's largest cases", 60, (quick) => kernelFolders(quick ? 'norm/' : ''), byBytes),
  casesPart(
    'sampling',
    'Sampling from a vocabulary of 151,936',
    20,
    () => [
      'sampling/argmax_partial',
      'sampling/candidates',
      'sampling/merge_candidates',
      'sampling/sample',
      'sampling/min_p',
    ],
    ({ cases }) => cases.filter(({ name }) => name.includes('151936')),
  ),
];
