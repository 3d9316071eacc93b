import { defineKernel } from '../../../src/gpu/kernel.js';
import { CONTRACT_TUNINGS } from '../contract.js';
import { linear, type LinearRowsProblem } from '../linear/index.js';
import linearWgsl from '../linear/linear.wgsl?raw';
import xNormedWgsl from '../linear/x_normed.wgsl?raw';
import { LINEAR_PARAMS, someActivations } from '../problem.js';
import source from './linear_add_norm.wgsl?raw';
import xAddedWgsl from './x_added.wgsl?raw';

export interface LinearAddNormProblem extends LinearRowsProblem {
  /** The sum is times the element behind added_weight. */
  readonly scaled?: boolean | undefined;
}

/**
 * rms_norm with its residual, apart, and linear in one, bit for bit, for rows as canFuseNorm says; both norms have the same eps. On every adapter
 * planned as for a GPU. Binds 9 storage buffers. `norm` as `linear`'s, of the new row.
 */
export const linearAddNorm = defineKernel({
  name: 'linear_add_norm',
  bindings: {
    x: 'read',
    added: 'read',
    added_weight: 'read',
    weight: 'read',
    scale: 'read',
    bias: 'read',
    norm_weight: 'read',
    out: 'read_write',
    x_out: 'read_write',
  },
  params: LINEAR_PARAMS,
  tunings: CONTRACT_TUNINGS,
  contents: ({ rows, xStride }: LinearAddNormProblem) => ({
    x: someActivations(rows * xStride),
    added: someActivations(rows * xStride),
  }),
  plan(problem: LinearAddNormProblem, traits) {
    const plan = linear.plan({ ...problem, norm: true }, { ...traits, software: false });
    const own = new Map([
      [linearWgsl, source],
      [xNormedWgsl, xAddedWgsl],
    ]);
    return {
      ...plan,
      wgsl: plan.wgsl.map((text) => own.get(text) ?? text),
      constants: { ...plan.constants, NORMED: problem.norm, SCALED: problem.scaled ?? false },
    };
  },
});
