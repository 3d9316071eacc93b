import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { fmaRate, type FmaRateProblem, FMAS_A_STEP } from './index.js';
import { fmaRateReference } from './reference.js';

// Exact in f32, so that the reference needs no allowance for them.
const factors = { factor: 0.875, addend: 0.25 };

function fmaCase(invocations: number, steps: number, races = false): KernelCase<FmaRateProblem> {
  return {
    name: `${invocations} invocations, ${steps} steps`,
    problem: { invocations, steps, ...factors },
    seed: 5,
    tolerance: { absolute: 1e-5, relative: 1e-5 },
    flops: 2 * FMAS_A_STEP * invocations * steps,
    bytes: 8 * invocations,
    races,
  };
}

export const suite: KernelSuite<typeof fmaRate.bindings, typeof fmaRate.params, FmaRateProblem> = {
  kernel: fmaRate,
  cases: [fmaCase(256, 0), fmaCase(256, 3, true), fmaCase(1024, 17)],
  inputs: ({ invocations }, random) => ({ start: random.normals(invocations) }),
  outputs: ({ invocations }) => ({ out: { type: 'f32', length: invocations } }),
  reference: (problem, { start }) => ({ out: fmaRateReference(problem, start!) }),
};
