import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { LinearRowsProblem } from '../../linear/linear/index.js';
import { linearReference } from '../../linear/reference.js';
import { type AbsorbCase, mlaAbsorbAppendReference } from '../mla_absorb_append/reference.js';
import type { MlaRopeAppendCase } from '../mla_rope_append/reference.js';
import type { MlaUpAppendProblem } from './index.js';

export type UpCase = MlaUpAppendProblem & Omit<MlaRopeAppendCase, 'latents' | 'qStride' | 'qOffset'>;

/** The same of linear alone. */
export function upProblem(problem: UpCase): LinearRowsProblem {
  const outFeatures = problem.heads * (problem.qkNopeHeadDim + problem.qkRopeHeadDim);
  return {
    rows: problem.rows,
    tileRows: 1,
    type: problem.type,
    inFeatures: problem.loraRank,
    outFeatures,
    segments: { total: 1, align: 32 },
    bias: false,
    norm: true,
    eps: problem.eps,
    epilogue: 'none',
    xStride: problem.kvStride,
    outStride: outFeatures,
  };
}

/** The same of mla_absorb_append alone. */
export const absorbCaseOf = ({ absorbType: type, ...problem }: UpCase): AbsorbCase => ({
  ...problem,
  type,
  qStride: upProblem({ ...problem, absorbType: type }).outStride,
});

/** What those two are given; `q` is what the first makes. */
export const inputsOf = (problem: UpCase, { x, weight, scale, norm_weight: norms, absorb, ...rest }: HostArrays) => ({
  up: { x: x!, weight: weight!, ...(scale && { scale }), norm_weight: norms!.slice(0, problem.loraRank) },
  absorb: { ...rest, kv_a: x!, weight: absorb!, norm_weight: norms!.slice(problem.latentNorm) },
});

export function mlaUpAppendReference(problem: UpCase, inputs: HostArrays): Expected {
  const { up, absorb } = inputsOf(problem, inputs);
  const { out } = linearReference(upProblem(problem), up);
  return mlaAbsorbAppendReference(absorbCaseOf(problem), { ...absorb, q: Float32Array.from(out!) });
}
