import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { causalConvReference } from '../../recurrent/causal_conv/reference.js';
import { linearReference } from '../reference.js';
import type { LinearConvProblem } from './index.js';

export interface ConvCase extends LinearConvProblem {
  /** The row isn't its sequence's first. */
  readonly goesOn: boolean;
}

/** The same of linear alone. */
export const linearProblem = ({ width, ...problem }: ConvCase) => ({
  ...problem,
  rows: 1,
  outFeatures: 3 * width,
  tileRows: 1 as const,
  norm: true,
  segments: { total: 1, align: 32 },
  bias: false,
  epilogue: 'none' as const,
  outStride: alignUp(3 * width, 32),
});

/** The same of causal_conv alone. */
export const convProblem = ({ width, taps, goesOn }: ConvCase) => ({
  rows: 1,
  oneRun: goesOn,
  width,
  taps,
  gated: true,
  xStride: alignUp(3 * width, 32),
  outStride: width,
});

/** The matrix, then causal_conv. */
export function linearConvReference(problem: ConvCase, inputs: HostArrays): Expected {
  const { out } = linearReference(linearProblem(problem), inputs);
  const conv = { ...inputs, weight: inputs['taps']!, out: new Float32Array(problem.width) };
  return causalConvReference(convProblem(problem), { ...conv, x: Float32Array.from(out!) });
}
