import { alignUp } from '../../src/base/math.js';
import type { Random } from '../../src/base/random.js';
import type { Device, Kernel } from '../../src/gpu/index.js';
import type { Bindings, ParamTypes } from '../../src/gpu/kernel.js';
import type { HostArray, HostArrays, KernelSuite } from '../../src/gpu/testing/kernel_case.js';
import { prepareCase } from '../../src/gpu/testing/run_kernel.js';
import { isKept, packTiles } from '../linear/pack.js';
import { randomTiles } from '../linear/testing/kept_tiles.js';
import { expertLayout, type ExpertProblem } from './experts.js';

/** What elements that nothing is written to hold. */
export const UNTOUCHED = 12345;

/** For each row topK different experts, ascending. */
export function randomExperts(rows: number, topK: number, experts: number, random: Random): Uint32Array<ArrayBuffer> {
  const ids = new Uint32Array(rows * topK);
  for (let row = 0; row < rows; row++) {
    const left = Array.from({ length: experts }, (_, e) => e);
    const chosen = Array.from({ length: topK }, () => left.splice(random.integer(left.length), 1)[0]!);
    ids.set(
      chosen.sort((a, b) => a - b),
      row * topK,
    );
  }
  return ids;
}

/** Random x with zero padding, the shard's packed weights (their padding random: nothing may come of it), and out untouched. */
export function expertInputs(problem: ExpertProblem, random: Random): HostArrays {
  const { rows, topK, experts, inFeatures, type, xStride, xPerSlot, outStride, expertFirst = 0 } = problem;
  const xRows = rows * (xPerSlot ? topK : 1);
  const x = new Float32Array(xRows * xStride);
  for (let r = 0; r < xRows; r++) x.set(random.normals(inFeatures), r * xStride);
  const expertRows = expertLayout(problem).tiles * 32;
  const isHalf = problem.epilogue === 'gate' || problem.epilogue === 'up';
  const biasRows = isHalf ? 2 * expertRows : expertRows;
  const count = problem.expertCount ?? experts - expertFirst;
  // Random numbers are slow to make: few are, and a prime number of them, so that no two rows are the same.
  const some = random.normals(Math.min(count * expertRows * inFeatures, 65521), 1 / Math.sqrt(inFeatures));
  const weights = new Float32Array(count * expertRows * inFeatures);
  for (let at = 0; at < weights.length; at += some.length) weights.set(some.subarray(0, weights.length - at), at);
  const packed = isKept(type)
    ? randomTiles(type, random, count * expertRows, inFeatures, 1 / Math.sqrt(inFeatures))
    : packTiles(type, weights, count * expertRows, inFeatures);
  return {
    x,
    weight: packed.weight,
    ...(packed.scale ? { scale: packed.scale } : {}),
    ...(problem.bias && {
      bias: random.normals((problem.rowBias ? rows * topK : (problem.biasFirst ?? 0) + count) * biasRows, 2),
    }),
    out:
      problem.epilogue === 'up'
        ? random.normals(rows * topK * outStride, 2)
        : new Float32Array(rows * topK * outStride).fill(UNTOUCHED),
  };
}

/** A problem with the strides of a lone layer, changed by `rest`. */
export function expertProblem(
  rows: number,
  [experts, topK]: readonly [experts: number, topK: number],
  inFeatures: number,
  outFeatures: number,
  rest: Partial<ExpertProblem> = {},
): ExpertProblem {
  return {
    rows,
    topK,
    experts,
    inFeatures,
    outFeatures,
    type: 'f16',
    epilogue: 'none',
    xStride: alignUp(inFeatures, 32),
    xPerSlot: false,
    outStride: alignUp(outFeatures, 32),
    ...rest,
  };
}

/** gpt-oss's gate and up: biased, and clamped where many are beyond the limit. */
export const oaiProblem = (
  rows: number,
  experts: readonly [experts: number, topK: number],
  [inFeatures, outFeatures]: readonly [number, number],
  rest: Partial<ExpertProblem> = {},
): ExpertProblem =>
  expertProblem(rows, experts, inFeatures, outFeatures, {
    type: 'mxfp4',
    epilogue: 'swiglu',
    bias: true,
    clamped: { alpha: 1.702, limit: 1.5 },
    ...rest,
  });

/** Runs one dispatch of a kernel on given inputs, with the decisions made for a software adapter or for a GPU. */
export async function runOnce<B extends Bindings, P extends ParamTypes, Problem>(
  device: Device,
  { kernel, outputs, reference }: Pick<KernelSuite<B, P, Problem>, 'kernel' | 'outputs' | 'reference'>,
  problem: Problem,
  inputs: HostArrays,
  stepRows: number,
  software: boolean,
): Promise<Record<string, HostArray>> {
  const decided: Kernel<B, P, Problem> = {
    ...kernel,
    plan: (wanted: Problem) => kernel.plan(wanted, { ...device.traits, software }),
  };
  const testCase = { name: 'one run', problem, seed: 0, flops: 0, bytes: 0, step: { rows: stepRows, chunks: 1 } };
  const prepared = await device.checked(kernel.name, () =>
    prepareCase(device, { kernel: decided, cases: [], inputs: () => inputs, outputs, reference }, testCase),
  );
  try {
    await device.checked(kernel.name, () => {
      prepared.reset();
      prepared.run();
    });
    return await prepared.readOutputs(Object.keys(prepared.buffers));
  } finally {
    prepared.dispose();
  }
}
