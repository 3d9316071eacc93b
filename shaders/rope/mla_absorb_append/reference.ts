import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { latentWidth } from '../../cache/latent_cache.js';
import { linearGroupedReference } from '../../linear/linear_grouped/reference.js';
import type { LinearGroupedProblem } from '../../linear/linear_grouped/index.js';
import { type MlaRopeAppendCase, mlaRopeAppendReference } from '../mla_rope_append/reference.js';
import type { MlaAbsorbAppendProblem } from './index.js';

export type AbsorbCase = MlaAbsorbAppendProblem & MlaRopeAppendCase;

/** The same of linear_grouped alone. */
export const absorbProblem = (problem: AbsorbCase): LinearGroupedProblem => ({
  rows: problem.rows,
  tileRows: 1,
  groups: problem.heads,
  type: problem.type,
  inFeatures: problem.qkNopeHeadDim,
  outFeatures: problem.kvLoraRank,
  xStride: problem.qStride,
  xOffset: problem.qOffset ?? 0,
  xGroupStride: problem.qkNopeHeadDim + problem.qkRopeHeadDim,
  outStride: problem.qAbsStride,
  outOffset: 0,
  outGroupStride: latentWidth(problem),
});

/** What both write: of an inactive row, whose query is NaN, nothing is compared. */
export function mlaAbsorbAppendReference(problem: AbsorbCase, inputs: HostArrays): Expected {
  const { q_abs: rotated, ...cache } = mlaRopeAppendReference(problem, inputs);
  const { out } = linearGroupedReference(absorbProblem(problem), { ...inputs, x: inputs['q']! });
  const row = (at: number) => problem.rowInfo[Math.floor(at / problem.qAbsStride)];
  const both = Array.from(out!, (value, at) => (row(at) ? (value ?? rotated![at]!) : (undefined as never)));
  return { out: both, ...cache };
}
