import { SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import source from './fma_rate.wgsl?raw';

export interface FmaRateProblem {
  /** A multiple of 256. */
  readonly invocations: number;
  readonly steps: number;
  readonly factor: number;
  readonly addend: number;
}

/** Fused multiply-adds of one step of one invocation: 8 chains of 4 lanes. */
export const FMAS_A_STEP = 32;

/** Chains of fused multiply-adds that touch no memory, for an adapter's peak rate. */
export const fmaRate = defineKernel({
  name: 'fma_rate',
  bindings: { start: 'read', out: 'read_write' },
  params: { steps: 'u32', factor: 'f32', addend: 'f32' },
  plan({ invocations, steps, factor, addend }: FmaRateProblem, traits) {
    if (invocations < 256 || invocations % 256 !== 0) {
      throw new SplitkvError('internal', `fma_rate: ${invocations} invocations; expected a multiple of 256`);
    }
    const workgroup = traits.software ? 32 : 256;
    return {
      wgsl: [source],
      constants: { WORKGROUP: workgroup },
      params: { steps, factor, addend },
      grid: [invocations / workgroup, 1, 1],
    };
  },
});
