import { limitError, SplitkvError } from '../../../src/base/errors.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel, type StepShape } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './rms_norm.wgsl?raw';

export interface RmsNormProblem {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  readonly width: number;
  /** Elements between rows of x and out; a multiple of 4. */
  readonly stride: number;
  readonly eps: number;
  /** Add what is normalised to out, instead of writing it. */
  readonly residual: boolean;
}

/** What kernels that normalise rows, a workgroup each, plan alike. */
export function planNorm(kernel: string, { rows, width, stride, eps, residual }: RmsNormProblem, traits: DeviceTraits) {
  if (width < 1 || stride < width || stride % 4 !== 0) {
    throw new SplitkvError(
      'internal',
      `${kernel}: width ${width}, stride ${stride}: expected 1 <= width <= stride, stride a multiple of 4`,
    );
  }
  const most = traits.limits.maxComputeWorkgroupsPerDimension;
  if (rows > most) throw limitError(`${kernel}: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
  return {
    constants: { RESIDUAL: residual, THREADS: traits.software ? 8 : 64 },
    params: { width, stride, eps },
    grid: (step: StepShape): [number, number, number] => [step.rows, 1, 1],
  };
}

/** out = x / sqrt(mean(x^2) + eps) * weight for each row, or out += that. */
export const rmsNorm = defineKernel({
  name: 'rms_norm',
  bindings: { x: 'read', weight: 'read', out: 'read_write' },
  params: { width: 'u32', stride: 'u32', eps: 'f32' },
  plan: (problem: RmsNormProblem, traits) => ({
    ...planNorm('rms_norm', problem, traits),
    wgsl: [rms, steps, source],
  }),
});
