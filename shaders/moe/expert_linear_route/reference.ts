import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArray, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { linearReference } from '../../linear/reference.js';
import { expertLayout } from '../experts.js';
import type { ExpertLinearProblem } from '../expert_linear/index.js';
import { expertLinearReference } from '../expert_linear/reference.js';
import type { MoeRouteProblem } from '../moe_route/index.js';
import { routeRow } from '../moe_route/reference.js';
import type { ExpertRouteProblem } from './index.js';

/** The same of moe_route alone. */
export const routeProblem = (problem: ExpertRouteProblem): MoeRouteProblem => ({
  ...problem,
  rows: 1,
  stride: problem.experts,
});

/** The same of expert_linear alone. */
export const hiddenProblem = (problem: ExpertRouteProblem): ExpertLinearProblem => ({
  ...problem,
  rows: 1,
  epilogue: 'swiglu',
  xPerSlot: false,
});

/** The same of linear alone; undefined: there is no dense MLP. */
export const sharedProblem = ({ shared, type, ...problem }: ExpertRouteProblem) => {
  if (!shared || type === 'mxfp4') return undefined;
  const { inFeatures, xStride, normEps: eps } = problem;
  const outStride = alignUp(shared.width, 32);
  const row = { rows: 1, tileRows: 1, inFeatures, outFeatures: shared.width, xStride, outStride } as const;
  return { ...row, type, segments: { total: 1, align: 32 }, bias: false, norm: true, eps, epilogue: 'swiglu' } as const;
};

/** Weights and scales of the experts, and of the dense MLP behind them. */
export function parted(problem: ExpertRouteProblem, { weight, scale }: HostArrays) {
  const { experts, expertFirst = 0, expertCount = experts - expertFirst } = problem;
  const { weightBytes, scaleBytes } = expertLayout(hiddenProblem(problem));
  const cut = (array: HostArray, bytes: number) => [
    array.subarray(0, (expertCount * bytes) / 4),
    array.subarray((expertCount * bytes) / 4),
  ];
  const [routedScale, sharedScale] = scale ? cut(scale, scaleBytes) : [];
  const [routed, shared] = cut(weight!, weightBytes);
  return {
    routed: { weight: routed!, ...(routedScale && { scale: routedScale }) },
    shared: { weight: shared!, ...(sharedScale && { scale: sharedScale }) },
  };
}

/** Float64: the choice, its experts, then the dense MLP. */
export function expertRouteReference(problem: ExpertRouteProblem, inputs: HostArrays): Expected {
  const { topK, outStride } = problem;
  const { logits, correction_bias: bias } = inputs;
  const { experts, weights } = routeRow(routeProblem(problem), Array.from(logits!), bias);
  const { routed, shared } = parted(problem, inputs);
  const expert_ids = Uint32Array.from(experts);
  const { out } = expertLinearReference(hiddenProblem(problem), { ...inputs, ...routed, expert_ids });
  const dense = sharedProblem(problem);
  if (dense) {
    const { x, norm_weight } = inputs;
    const { out: beside } = linearReference(dense, { x: x!, norm_weight: norm_weight!, ...shared });
    for (let n = 0; n < dense.outFeatures; n++) out[topK * outStride + n] = beside![n]!;
  }
  return { out, expert_ids: experts, expert_weights: weights };
}
