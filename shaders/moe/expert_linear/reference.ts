import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { rmsNormReference } from '../../norm/rms_norm/reference.js';
import { expertReference } from '../reference.js';
import type { ExpertLinearProblem } from './index.js';

/** Float64: x normalised where it is asked for, then `expertReference`. */
export function expertLinearReference(problem: ExpertLinearProblem, inputs: HostArrays): { readonly out: number[] } {
  const { rows, inFeatures: width, xStride: stride, normEps: eps } = problem;
  const { expert_ids: ids, norm_weight: weight, x } = inputs;
  if (eps === undefined) return { out: expertReference(problem, ids!, rows, inputs) };
  const { out: normed } = rmsNormReference({ rows, width, stride, eps, residual: false }, { x: x!, weight: weight! });
  return { out: expertReference(problem, ids!, rows, { ...inputs, x: Float64Array.from(normed) as never }) };
}
