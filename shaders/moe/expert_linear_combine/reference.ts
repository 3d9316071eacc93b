import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArray, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { linearReference } from '../../linear/reference.js';
import { expertLayout, type ExpertProblem } from '../experts.js';
import { combineReference } from '../moe_combine/reference.js';
import { expertReference } from '../reference.js';
import type { ExpertCombineProblem } from './index.js';

/** The same of expert_linear alone. */
export const downProblem = (problem: ExpertCombineProblem): ExpertProblem => ({
  ...problem,
  epilogue: 'none',
  xPerSlot: true,
});

/** The same of the dense MLP's linear alone, where there is one. */
export const sharedProblem = ({ shared, type, outFeatures, outStride }: ExpertCombineProblem) => {
  if (!shared || type === 'mxfp4') return undefined;
  const { inFeatures, segments, outScale } = shared;
  const row = { rows: 1, tileRows: 1, inFeatures, outFeatures, xStride: alignUp(inFeatures, 32), outStride } as const;
  return { ...row, type, segments, bias: false, norm: false, epilogue: 'residual', outScale } as const;
};

/** Weights, scales and x of the experts, and of the dense MLP behind them. */
export function parted(problem: ExpertCombineProblem, { weight, scale, x }: HostArrays) {
  const { experts, topK, rows, xStride } = problem;
  const { weightBytes, scaleBytes } = expertLayout(downProblem(problem));
  const cut = <T extends HostArray>(array: T, at: number): [T, T] => [
    array.subarray(0, at) as T,
    array.subarray(at) as T,
  ];
  const weights = cut(weight!, (experts * weightBytes) / 4);
  const scales = scale && cut(scale, (experts * scaleBytes) / 4);
  const rowsOfX = cut(x!, rows * topK * xStride);
  const [routed, shared] = [0, 1].map((part) => ({
    weight: weights[part]!,
    ...(scales && { scale: scales[part]! }),
    x: rowsOfX[part]!,
  }));
  return { routed: routed!, shared: shared! };
}

/** The dense MLP, then expert_linear and moe_combine, in float64. */
export function expertCombineReference(problem: ExpertCombineProblem, inputs: HostArrays): Expected {
  const { rows, topK, outFeatures: width, outStride: stride } = problem;
  const { routed, shared } = parted(problem, inputs);
  const dense = sharedProblem(problem);
  const before = dense ? linearReference(dense, { ...shared, out: inputs['out']! })['out']! : inputs['out']!;
  const x = Array.from(inputs['out']!, (value, at) => before[at] ?? value);
  const room = new Float64Array(rows * topK * stride);
  const given = { ...inputs, ...routed, out: room as never };
  const each = expertReference(downProblem(problem), inputs['expert_ids']!, rows, given);
  const combine = { rows, topK, width, inStride: stride, stride };
  return { out: combineReference(combine, rows, { ...inputs, expert_out: each as never, x: x as never }) };
}
