import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { moeRoute, type MoeRouteProblem } from './index.js';
import { routeRow } from './reference.js';

/** DeepSeek-V2-Lite's routing, changed by `rest`. */
export function routeProblem(
  rows: number,
  experts: number,
  topK: number,
  rest: Partial<MoeRouteProblem> = {},
): MoeRouteProblem {
  return {
    rows,
    experts,
    topK,
    groups: 1,
    topkGroups: 1,
    scoring: 'softmax',
    method: 'greedy',
    normTopkProb: false,
    routedScalingFactor: 1,
    correctionBias: false,
    stride: experts,
    ...rest,
  };
}

function routeCase(
  name: string,
  problem: MoeRouteProblem,
  more: Partial<KernelCase<MoeRouteProblem>> = {},
): KernelCase<MoeRouteProblem> {
  return {
    name,
    problem,
    seed: 5,
    step: { rows: problem.rows, chunks: 1 },
    flops: problem.rows * problem.experts * (problem.experts + 8),
    bytes: problem.rows * (problem.experts + 2 * problem.topK) * 4,
    tolerance: { absolute: 1e-7, relative: 4e-6 },
    ...more,
  };
}

const V3 = {
  scoring: 'sigmoid',
  method: 'noaux_tc',
  correctionBias: true,
  normTopkProb: true,
  routedScalingFactor: 2.5,
} as const;
const LIMITED = { method: 'group_limited_greedy', routedScalingFactor: 16 } as const;

export const suite: KernelSuite<typeof moeRoute.bindings, typeof moeRoute.params, MoeRouteProblem> = {
  kernel: moeRoute,
  cases: [
    routeCase('one of 4', routeProblem(3, 4, 1), { races: true }),
    routeCase(
      '2 of 8, normalised, in 4 groups',
      routeProblem(1, 8, 2, { ...LIMITED, groups: 4, topkGroups: 2, normTopkProb: true }),
      {
        races: true,
      },
    ),
    routeCase('every expert', routeProblem(2, 4, 4, { normTopkProb: true })),
    routeCase('3 of 16, normalised and scaled', routeProblem(3, 16, 3, { normTopkProb: true, scaled: true }), {
      races: true,
    }),
    routeCase('6 of 64', routeProblem(33, 64, 6)),
    routeCase('6 of 160 in 8 groups', routeProblem(33, 160, 6, { ...LIMITED, groups: 8, topkGroups: 3 })),
    routeCase('8 of 256 in 8 groups by two', routeProblem(3, 256, 8, { ...V3, groups: 8, topkGroups: 4 })),
    routeCase(
      '8 of 64 in 4 groups by two, strided',
      routeProblem(33, 64, 8, { ...V3, groups: 4, topkGroups: 2, stride: 96 }),
    ),
    routeCase('2 of 8 in 1 group, by sigmoid and bias', routeProblem(33, 8, 2, V3)),
    routeCase('32 of 256 in 64 groups', routeProblem(1, 256, 32, { ...LIMITED, groups: 64, topkGroups: 16 })),
  ],
  inputs: ({ rows, experts, stride, correctionBias, scaled }, random) => ({
    logits: random.normals(rows * stride, 2),
    // Some biases are large enough to choose an expert against its score, and some scores fall below zero.
    ...(correctionBias ? { correction_bias: random.normals(experts, 0.5) } : {}),
    ...(scaled ? { expert_scale: random.normals(experts) } : {}),
  }),
  outputs: ({ rows, topK }): Record<string, { type: 'f32' | 'u32'; length: number }> => ({
    expert_ids: { type: 'u32', length: rows * topK },
    expert_weights: { type: 'f32', length: rows * topK },
    row_count: { type: 'u32', length: 1 },
  }),
  reference: (problem, { logits, correction_bias: bias, expert_scale: scale }) => {
    const { rows, experts, stride } = problem;
    const routed = Array.from({ length: rows }, (_, row) =>
      routeRow(problem, Array.from(logits!.subarray(row * stride, row * stride + experts)), bias, scale),
    );
    return {
      expert_ids: routed.flatMap((row) => row.experts),
      expert_weights: routed.flatMap((row) => row.weights),
      row_count: [rows],
    };
  },
};
