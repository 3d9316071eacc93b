import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel, type ParamTypes } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import routeWgsl from '../route.wgsl?raw';
import source from './moe_route.wgsl?raw';

export interface MoeRouteProblem {
  /** Most rows of a step. */
  readonly rows: number;
  /** At most 512. */
  readonly experts: number;
  /** Experts of a row; at most 32, and no more than the chosen groups have. */
  readonly topK: number;
  /** Equal parts of the experts, neighbours each; a divisor of `experts`, at most 64. */
  readonly groups: number;
  /** Groups that experts are chosen from. */
  readonly topkGroups: number;
  readonly scoring: 'softmax' | 'sigmoid';
  /** How groups are compared: by their best expert, or ('noaux_tc') by the sum of their two best. 'greedy' has one group. */
  readonly method: 'greedy' | 'group_limited_greedy' | 'noaux_tc';
  readonly normTopkProb: boolean;
  readonly routedScalingFactor: number;
  /** Add `correction_bias` to the scores that are compared; never to the weights. */
  readonly correctionBias: boolean;
  /** Weights are times `expert_scale`, in the end. Of moe_route. */
  readonly scaled?: boolean;
  /** Elements between rows of logits. */
  readonly stride: number;
}

const MAX_EXPERTS = 512;
const MAX_GROUPS = 64;
const MAX_TOP_K = 32;

export const ROUTE_PARAMS = {
  experts: 'u32',
  top_k: 'u32',
  groups: 'u32',
  topk_groups: 'u32',
  sigmoid: 'u32',
  two_best: 'u32',
  normalise: 'u32',
  bias: 'u32',
  stride: 'u32',
  scaling: 'f32',
} as const satisfies ParamTypes;

/** Experts that there is room for. */
const capacityOf = (experts: number): number => [64, 128, 256].find((room) => experts <= room) ?? MAX_EXPERTS;

/** Of workgroup memory, for route.wgsl. */
export const routeBytes = (experts: number): number => (3 * capacityOf(experts) + MAX_GROUPS + 2 * MAX_TOP_K) * 4;

/**
 * The experts of each row, in ascending order, and their weights. Ties go to the lower expert, and to the lower group. `row_count`
 * receives the number of rows of the step, for moe_sort; without one it may be left out.
 */
export const moeRoute = defineKernel({
  name: 'moe_route',
  bindings: {
    logits: 'read',
    correction_bias: 'read',
    expert_scale: 'read',
    expert_ids: 'read_write',
    expert_weights: 'read_write',
    row_count: 'read_write',
  },
  params: ROUTE_PARAMS,
  plan(problem: MoeRouteProblem, traits) {
    const { rows, experts, topK, groups, topkGroups, scoring, method, stride } = problem;
    const bad = (what: string): SplitkvError => new SplitkvError('internal', `moe_route: ${what}`);
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`moe_route: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    for (const [name, value, limit] of [
      ['experts', experts, MAX_EXPERTS],
      ['groups', groups, MAX_GROUPS],
      ['experts a token', topK, MAX_TOP_K],
    ] as const) {
      if (value > limit)
        throw new SplitkvError('unsupported', `moe_route: ${value} ${name}; this runtime has at most ${limit}`);
    }
    if (experts > stride) throw bad(`experts is ${experts}, expected at most ${stride} (stride)`);
    if (experts % groups !== 0) throw bad(`groups is ${groups}, expected a divisor of ${experts} (experts)`);
    if (method === 'greedy' && groups !== 1) throw bad(`groups is ${groups}, expected 1 with 'greedy'`);
    if (topkGroups < 1 || topkGroups > groups)
      throw bad(`topkGroups is ${topkGroups}, expected 1 to ${groups} (groups)`);
    const reachable = (experts / groups) * topkGroups;
    if (topK < 1 || topK > reachable)
      throw bad(`topK is ${topK}, expected 1 to ${reachable} (experts in topkGroups groups)`);
    return {
      wgsl: [steps, routeWgsl, source],
      // Workgroup memory is zeroed first, which takes SwiftShader long to compile: no more of it than needed.
      constants: {
        THREADS: traits.software ? 4 : 128,
        CAPACITY: capacityOf(experts),
        AHEAD: traits.unroll ? 16 : 1,
        SCALED: problem.scaled ?? false,
      },
      params: {
        experts,
        top_k: topK,
        groups,
        topk_groups: topkGroups,
        sigmoid: scoring === 'sigmoid' ? 1 : 0,
        two_best: method === 'noaux_tc' && experts > groups ? 1 : 0,
        normalise: problem.normTopkProb ? 1 : 0,
        bias: problem.correctionBias ? 1 : 0,
        stride,
        scaling: problem.routedScalingFactor,
      },
      grid: (step) => [step.rows, 1, 1],
    };
  },
});
