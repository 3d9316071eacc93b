import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkGridY, EXPERT_PARAMS, type ExpertProblem, planExperts } from '../experts.js';
import serialContractWgsl from '../serial.wgsl?raw';
import source from './expert_linear.wgsl?raw';
import serialSource from './expert_linear_serial.wgsl?raw';

export type ExpertLinearProblem = ExpertProblem;

/** Slices of a contraction that a workgroup takes at once on a hardware adapter; they fix the order of the sum. */
const SLICES = 8;

/**
 * Generated rows by the weights of their experts: out[row][slot] = W[expert_ids[row][slot]] x. Reads no other expert's weights; writes
 * nothing for a (row, slot) whose expert isn't in the shard.
 */
export const expertLinear = defineKernel({
  name: 'expert_linear',
  bindings: { x: 'read', weight: 'read', scale: 'read', expert_ids: 'read', out: 'read_write' },
  params: EXPERT_PARAMS,
  plan(problem: ExpertLinearProblem, traits) {
    const { fragments, matrices, params, tiles } = planExperts('expert_linear', problem);
    checkGridY('expert_linear', problem.rows, problem.rows * problem.topK, traits);
    return {
      wgsl: [...fragments, ...(traits.software ? [serialContractWgsl, serialSource] : [source])],
      constants: { SWIGLU: matrices === 2, ...(traits.software ? { SERIAL_ROWS: 1 } : { SLICES }) },
      params,
      grid: (step) => [tiles, Math.min(step.rows, problem.rows) * problem.topK, 1],
    };
  },
});
