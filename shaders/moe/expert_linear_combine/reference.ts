import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { ExpertProblem } from '../experts.js';
import { combineReference } from '../moe_combine/reference.js';
import { expertReference } from '../reference.js';
import type { ExpertCombineProblem } from './index.js';

/** The same of expert_linear alone. */
export const downProblem = (problem: ExpertCombineProblem): ExpertProblem => ({
  ...problem,
  epilogue: 'none',
  xPerSlot: true,
});

/** expert_linear, then moe_combine, in float64. */
export function expertCombineReference(problem: ExpertCombineProblem, inputs: HostArrays): Expected {
  const { rows, topK, outFeatures: width, outStride: stride } = problem;
  const room = new Float64Array(rows * topK * stride);
  const each = expertReference(downProblem(problem), inputs['expert_ids']!, rows, { ...inputs, out: room as never });
  const combine = { rows, topK, width, inStride: stride, stride };
  const outputs = { ...inputs, expert_out: each as never, x: inputs['out']! };
  return { out: combineReference(combine, rows, outputs) };
}
