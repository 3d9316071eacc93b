import { defineKernel, type StepShape } from '../../../src/gpu/kernel.js';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { CONTRACT_TUNINGS, ONE_SEGMENT, planContract } from '../../linear/contract.js';
import contractWgsl from '../../linear/contract.wgsl?raw';
import { someActivations } from '../../linear/problem.js';
import { checkGridY, EXPERT_PARAMS, type ExpertProblem, planExperts } from '../experts.js';
import serialContractWgsl from '../serial.wgsl?raw';
import source from './expert_linear.wgsl?raw';
import serialSource from './expert_linear_serial.wgsl?raw';

export type ExpertLinearProblem = ExpertProblem;

/**
 * Generated rows by the weights of their experts: out[row][slot] = W[expert_ids[row][slot]] x. Reads no other expert's weights; writes
 * nothing for a (row, slot) whose expert isn't in the shard.
 */
export const expertLinear = defineKernel({
  name: 'expert_linear',
  bindings: { x: 'read', weight: 'read', scale: 'read', expert_ids: 'read', out: 'read_write' },
  params: EXPERT_PARAMS,
  tunings: CONTRACT_TUNINGS,
  contents: ({ rows, topK, experts, xStride, xPerSlot, ...shard }: ExpertProblem) => {
    const { expertFirst = 0, expertCount = experts - expertFirst } = shard;
    return {
      x: someActivations(rows * (xPerSlot ? topK : 1) * xStride),
      expert_ids: Uint32Array.from({ length: rows * topK }, (_, slot) => expertFirst + (slot % expertCount)),
    };
  },
  plan(problem: ExpertLinearProblem, traits) {
    const { fragments, matrices, params, tiles } = planExperts('expert_linear', problem);
    checkGridY('expert_linear', problem.rows, problem.rows * problem.topK, traits);
    const rows = (step: StepShape): number => Math.min(step.rows, problem.rows) * problem.topK;
    if (traits.software) {
      return {
        wgsl: [...fragments, serialContractWgsl, serialSource],
        constants: { SWIGLU: matrices === 2, SERIAL_ROWS: 1 },
        params,
        grid: (step) => [tiles, rows(step), 1],
      };
    }
    const { type, inFeatures, outFeatures, topK } = problem;
    const contract = planContract(
      { type, inFeatures, outFeatures, matrices, tileRows: 1, segments: ONE_SEGMENT, cut: false, copies: topK },
      traits,
    );
    return {
      wgsl: [stepsWgsl, ...fragments, contractWgsl, source],
      constants: { SWIGLU: matrices === 2, ...contract.constants },
      params,
      grid: (step) => [contract.tiles, rows(step), 1],
    };
  },
});
