import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { rmsNormReference } from '../../norm/rms_norm/reference.js';
import { linearReference } from '../reference.js';
import type { LinearAddNormProblem } from './index.js';

/** The same of rms_norm alone, whose rows are `added`. */
export const addedProblem = ({
  rows,
  inFeatures: width,
  xStride: stride,
  eps = 0,
  scaled = false,
}: LinearAddNormProblem) => ({
  rows,
  width,
  stride,
  eps,
  residual: true,
  scaled,
});

/** rms_norm onto x, then linear. */
export function linearAddNormReference(problem: LinearAddNormProblem, inputs: HostArrays): Expected {
  const { x, added, added_weight: weight } = inputs;
  const sum = rmsNormReference(addedProblem(problem), { x: added!, weight: weight!, out: x! });
  const given = { ...inputs, x: Float64Array.from(sum.out) as unknown as Float32Array };
  // Padding beyond a vec4 isn't written.
  const written = alignUp(problem.inFeatures, 4);
  const x_out = Array.from(sum.out, (value, i) => (i % problem.xStride < written ? value : undefined)) as number[];
  return { ...linearReference(problem, given), x_out };
}
