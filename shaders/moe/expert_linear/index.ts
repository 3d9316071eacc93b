import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { alignUp } from '../../../src/base/math.js';
import { defineKernel, type StepShape } from '../../../src/gpu/kernel.js';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { CONTRACT_TUNINGS, ONE_SEGMENT, planContract, contractWgsl } from '../../linear/contract.js';
import serialContractWgsl from '../serial.wgsl?raw';
import { planNormedX } from '../../linear/linear/index.js';
import { someActivations } from '../../linear/problem.js';
import { checkGridY, EXPERT_PARAMS, type ExpertProblem, planExperts } from '../experts.js';
import expertXWgsl from '../expert_x.wgsl?raw';
import source from './expert_linear.wgsl?raw';
import serialSource from './expert_linear_serial.wgsl?raw';

export interface ExpertLinearProblem extends ExpertProblem {
  /** RMS-normalise x first, with this eps; needs `canFuseNorm` (linear), and rows that slots share. */
  readonly normEps?: number;
}

/**
 * Generated rows by the weights of their experts: out[row][slot] = W[expert_ids[row][slot]] x. Reads no other expert's weights; writes
 * nothing for a (row, slot) whose expert isn't in the shard.
 */
export const expertLinear = defineKernel({
  name: 'expert_linear',
  bindings: {
    x: 'read',
    weight: 'read',
    scale: 'read',
    expert_ids: 'read',
    norm_weight: 'read',
    bias: 'read',
    out: 'read_write',
  },
  params: { ...EXPERT_PARAMS, model_in_features: 'u32', eps: 'f32' },
  tunings: CONTRACT_TUNINGS,
  contents: ({ rows, topK, experts, xStride, xPerSlot, ...problem }: ExpertLinearProblem) => {
    const { inFeatures, normEps, expertFirst = 0, expertCount = experts - expertFirst } = problem;
    return {
      ...(normEps !== undefined && { norm_weight: someActivations(alignUp(inFeatures, 4)) }),
      x: someActivations(rows * (xPerSlot ? topK : 1) * xStride),
      expert_ids: Uint32Array.from({ length: rows * topK }, (_, slot) => expertFirst + (slot % expertCount)),
    };
  },
  plan(problem: ExpertLinearProblem, traits) {
    const { fragments, constants, matrices, tiles, params: experts } = planExperts('expert_linear', problem, traits);
    const { normEps } = problem;
    const norm = normEps !== undefined;
    const params = { ...experts, model_in_features: problem.inFeatures, eps: normEps ?? 0 };
    checkGridY('expert_linear', problem.rows, problem.rows * problem.topK, traits);
    const rows = (step: StepShape): number => Math.min(step.rows, problem.rows) * problem.topK;
    if (norm && problem.xPerSlot) {
      throw new SplitkvError('internal', 'expert_linear: a fused norm needs rows that slots share, got xPerSlot');
    }
    const { type, inFeatures, outFeatures, topK } = problem;
    const normed = norm ? planNormedX(inFeatures, traits) : { bytes: 0, constants: {}, fragments: [expertXWgsl] };
    const staged = normed.bytes;
    const shared = { segments: ONE_SEGMENT, cut: false, copies: topK, staged } as const;
    const contract = planContract({ type, inFeatures, outFeatures, matrices, tileRows: 1, ...shared }, traits);
    const bytes = traits.software ? staged : contract.bytes;
    const limit = traits.limits.maxComputeWorkgroupStorageSize;
    if (bytes > limit) {
      throw limitError(
        `expert_linear: inFeatures ${inFeatures}${norm ? ' with a fused norm' : ''} need ${bytes} bytes of workgroup memory; ` +
          `this adapter's maxComputeWorkgroupStorageSize is ${limit}; use the rms_norm kernel before it`,
      );
    }
    if (traits.software) {
      return {
        wgsl: [...(norm ? [stepsWgsl] : []), ...fragments, serialContractWgsl, serialSource, ...normed.fragments],
        constants: { ...constants, SERIAL_ROWS: 1, ...normed.constants },
        params,
        grid: (step) => [tiles, rows(step), 1],
      };
    }
    return {
      wgsl: [stepsWgsl, ...fragments, contractWgsl, ...normed.fragments, source],
      constants: { ...constants, ...contract.constants, ...normed.constants },
      params,
      grid: (step) => [contract.tiles, rows(step), 1],
    };
  },
});
