import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel, type StepShape } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import { writeBytes } from '../../linear/fast/fast.js';
import source from './rms_norm.wgsl?raw';
import bytesSource from './rms_norm_bytes.wgsl?raw';
import serialSource from './rms_norm_serial.wgsl?raw';

/** vec4s of a row that a thread keeps: registers. */
const MOST_AHEAD = 8;

export interface RmsNormProblem {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  readonly width: number;
  /** Elements between rows of x and out; a multiple of 4. */
  readonly stride: number;
  readonly eps: number;
  /** Add what is normalised to out, instead of writing it. */
  readonly residual: boolean;
  /** Written in bytes (linear/fast/row_vec4s.wgsl); width and stride are multiples of 32. */
  readonly inBytes?: boolean;
  /** With `residual`: out is the sum of base and that. Of rms_norm. */
  readonly apart?: boolean;
  /** With `residual`: out is times the element behind the weights. Of rms_norm. */
  readonly scaled?: boolean | undefined;
  /** Pieces of a row that are normalised each by itself, stride elements apart; 1 where left out. Of rms_norm. */
  readonly pieces?: number;
}

/** What kernels that normalise rows, a workgroup each, plan alike. */
export function planNorm(
  kernel: string,
  { rows, width, stride, eps, residual, pieces = 1 }: RmsNormProblem,
  traits: DeviceTraits,
) {
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
    grid: (step: StepShape): [number, number, number] => [step.rows, pieces, 1],
  };
}

/** out = x / sqrt(mean(x^2) + eps) * weight for each row, or out += that, or out = base + that, or either times a number. */
export const rmsNorm = defineKernel({
  name: 'rms_norm',
  bindings: { x: 'read', weight: 'read', base: 'read', out: 'read_write' },
  params: { width: 'u32', stride: 'u32', eps: 'f32' },
  plan(problem: RmsNormProblem, traits) {
    const { residual: RESIDUAL, apart: APART = false, scaled: SCALED = false, pieces: PIECES = 1 } = problem;
    const plan = planNorm('rms_norm', problem, traits);
    if (problem.inBytes) {
      const wgsl = [rms, steps, ...writeBytes('rms_norm'), bytesSource];
      return { ...plan, constants: { THREADS: plan.constants.THREADS }, wgsl };
    }
    if (traits.software)
      return { ...plan, constants: { ...plan.constants, APART, SCALED, PIECES }, wgsl: [rms, steps, serialSource] };
    const vec4s = ceilDiv(problem.width, 4 * 64);
    const ahead = traits.unroll ? Math.min(vec4s, MOST_AHEAD) : 1;
    const turns = ahead === vec4s ? 1 : 0;
    const constants = { RESIDUAL, APART, SCALED, PIECES, AHEAD: ahead, TURNS: turns };
    return { ...plan, constants, wgsl: [rms, steps, source] };
  },
});
