import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { CONTRACT_TUNINGS } from '../../linear/contract.js';
import { canFuseNorm } from '../../linear/linear/index.js';
import { blockElements, UNIT_ELEMENTS } from '../../linear/pack.js';
import { someActivations, tilesOf } from '../../linear/problem.js';
import { expertLinear, type ExpertLinearProblem } from '../expert_linear/index.js';
import { moeRoute, type MoeRouteProblem, ROUTE_PARAMS, routeBytes } from '../moe_route/index.js';
import expertLinearWgsl from '../expert_linear/expert_linear.wgsl?raw';
import routeWgsl from '../route.wgsl?raw';
import source from './expert_linear_route.wgsl?raw';

/** Of a lone row, whose norm is fused: how its experts are chosen, and their gate and up. */
export interface ExpertRouteProblem
  extends Omit<MoeRouteProblem, 'rows' | 'stride'>, Omit<ExpertLinearProblem, 'rows' | 'epilogue' | 'xPerSlot'> {
  readonly normEps: number;
  /** Gate and up of a dense MLP of this width: in the same buffers from unit `firstUnit` on, tiles of gate, then as many of up. */
  readonly shared?: { readonly width: number; readonly firstUnit: number } | undefined;
}

const without = (bytes: number, traits: DeviceTraits): DeviceTraits => {
  const { maxComputeWorkgroupStorageSize: all } = traits.limits;
  return { ...traits, software: false, limits: { ...traits.limits, maxComputeWorkgroupStorageSize: all - bytes } };
};

/** Whether a row of `inFeatures` and its choice of `experts` fit the workgroup memory. */
export const canRoute = (experts: number, inFeatures: number, traits: DeviceTraits): boolean =>
  canFuseNorm(inFeatures, without(routeBytes(experts) + 4, traits));

/**
 * moe_route and expert_linear (swiglu, norm) in one, bit for bit, and linear (swiglu, norm) of a dense MLP beside them: for a lone row.
 * The dense MLP's outputs follow the slots'. On every adapter planned as for a GPU. Binds 10 storage buffers.
 * @throws SplitkvError `limit` where `canRoute` says so
 */
export const expertLinearRoute = defineKernel({
  name: 'expert_linear_route',
  bindings: {
    x: 'read',
    weight: 'read',
    scale: 'read',
    norm_weight: 'read',
    bias: 'read',
    logits: 'read',
    correction_bias: 'read',
    out: 'read_write',
    expert_ids: 'read_write',
    expert_weights: 'read_write',
  },
  params: {
    ...expertLinear.params,
    ...ROUTE_PARAMS,
    shared_first: 'u32',
    shared_tiles: 'u32',
    shared_width: 'u32',
  },
  tunings: CONTRACT_TUNINGS,
  contents: ({ experts, inFeatures, xStride }: ExpertRouteProblem) => ({
    norm_weight: someActivations(alignUp(inFeatures, 4)),
    x: someActivations(xStride),
    logits: someActivations(experts),
  }),
  plan({ correctionBias, shared, ...problem }: ExpertRouteProblem, traits) {
    const { type, experts, inFeatures, topK, expertFirst = 0 } = problem;
    const { expertCount = experts - expertFirst } = problem;
    const rows = 1;
    const less = without(routeBytes(experts) + 4, traits);
    const route = moeRoute.plan({ ...problem, correctionBias, rows, stride: experts }, less);
    const linear = expertLinear.plan({ ...problem, rows, epilogue: 'swiglu', xPerSlot: false }, less);
    const { CAPACITY, AHEAD } = route.constants;
    const units = alignUp(inFeatures, blockElements(type)) / UNIT_ELEMENTS[type];
    const behind = expertCount * linear.params.matrices * linear.params.tiles * units * 32;
    if (shared && shared.firstUnit < behind) {
      const { firstUnit } = shared;
      throw new SplitkvError(
        'internal',
        `expert_linear_route: firstUnit is ${firstUnit}, expected at least ${behind} (of the experts)`,
      );
    }
    const [x] = typeof linear.grid === 'function' ? linear.grid({ rows, chunks: 1 }) : linear.grid;
    const outs = Number(linear.constants['LANES']) * Number(linear.constants['EACH']);
    const y = topK + ceilDiv(shared?.width ?? 0, x * outs);
    return {
      wgsl: [...linear.wgsl.filter((part) => part !== expertLinearWgsl), routeWgsl, source],
      constants: { ...linear.constants, CAPACITY: CAPACITY!, AHEAD: AHEAD!, SHARED: shared !== undefined },
      params: {
        ...linear.params,
        ...route.params,
        shared_first: shared?.firstUnit ?? 0,
        shared_tiles: tilesOf(shared?.width ?? 0),
        shared_width: shared?.width ?? 0,
      },
      grid: (step) => [x, step.rows > 0 ? y : 0, 1],
    };
  },
});
