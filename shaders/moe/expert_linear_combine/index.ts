import { limitError } from '../../../src/base/errors.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import segmentsWgsl from '../../lib/segments.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import {
  type Contraction,
  CONTRACT_TUNINGS,
  type ContractPlan,
  planContract,
  contractWgsl,
} from '../../linear/contract.js';
import { packedLayout, UNIT_ELEMENTS } from '../../linear/pack.js';
import { someActivations } from '../../linear/problem.js';
import { inBlocks, treeLevels } from '../../linear/segments.js';
import { checkGridY, type ExpertProblem, planExperts } from '../experts.js';
import source from './expert_linear_combine.wgsl?raw';

/** The down projection; `outStride` is that of the residual stream, [rows][outStride]. */
export interface ExpertCombineProblem extends Omit<
  ExpertProblem,
  'epilogue' | 'clamped' | 'xPerSlot' | 'expertFirst' | 'expertCount' | 'biasFirst'
> {
  /** Of a lone row, added first: a dense MLP's down, in the same buffers from unit `firstUnit` on, whose x follows the slots'. */
  readonly shared?: SharedDown | undefined;
}

export interface SharedDown {
  readonly inFeatures: number;
  readonly segments: { readonly total: number; readonly align: number };
  readonly firstUnit: number;
  readonly outScale: number;
}

type Shape = Pick<Contraction, 'type' | 'inFeatures' | 'outFeatures'> & Pick<ExpertCombineProblem, 'topK' | 'shared'>;

/** Slots are the segments of one contraction, and each is in as many parts as one that isn't cut; so is the dense MLP. */
function contractionOf({ type, inFeatures, outFeatures, topK, shared }: Shape, traits: DeviceTraits): ContractPlan {
  // A thread has several experts already: no more outputs in a batch than alone.
  const contraction = { type, outFeatures, tileRows: 1, matrices: 1, cut: false } as const;
  // What is staged is sums of at most 32 outputs.
  const all = { inFeatures: topK * inFeatures + (shared?.inFeatures ?? 0), staged: topK * 32 * 4 };
  const segments = { total: 1, count: topK + (shared ? 1 : 0) };
  return planContract({ ...contraction, ...all, segments }, traits);
}

/** Whether the sums of a row's experts fit the workgroup memory, and its dense MLP can be cut into as many parts as they, of whole units. */
export function canCombine(shape: Shape, traits: DeviceTraits): boolean {
  const { bytes, constants } = contractionOf(shape, traits);
  const { segments = { total: 1, align: 1 }, inFeatures = 0 } = shape.shared ?? {};
  // Units are never cut here.
  const divides =
    Number(constants['SUBS']) % segments.total === 0 && inBlocks(segments, inFeatures, UNIT_ELEMENTS[shape.type]);
  return divides && bytes <= traits.limits.maxComputeWorkgroupStorageSize;
}

/**
 * expert_linear of the down projection and moe_combine in one, bit for bit: out[row] += (w0 W0 x0 + w1 W1 x1) + ..., for generated
 * rows whose experts are all in one buffer. On every adapter planned as for a GPU.
 * @throws SplitkvError `limit` where `canCombine` says so, or there are too many rows
 */
export const expertLinearCombine = defineKernel({
  name: 'expert_linear_combine',
  bindings: {
    x: 'read',
    weight: 'read',
    scale: 'read',
    expert_ids: 'read',
    expert_weights: 'read',
    bias: 'read',
    out: 'read_write',
  },
  params: {
    top_k: 'u32',
    tiles: 'u32',
    units: 'u32',
    used_units: 'u32',
    x_stride4: 'u32',
    out_features: 'u32',
    out_stride: 'u32',
    shared_first: 'u32',
    shared_units: 'u32',
    shared_in: 'u32',
    shared_scale: 'f32',
  },
  tunings: CONTRACT_TUNINGS,
  contents: ({ rows, topK, experts, xStride, shared }: ExpertCombineProblem) => ({
    x: someActivations(rows * topK * xStride + (shared?.inFeatures ?? 0)),
    expert_ids: Uint32Array.from({ length: rows * topK }, (_, slot) => slot % experts),
    expert_weights: someActivations(rows * topK),
  }),
  plan(problem: ExpertCombineProblem, traits) {
    const { rows, shared } = problem;
    const own = { ...problem, epilogue: 'none', xPerSlot: true } as const;
    const planned = planExperts('expert_linear_combine', own, traits);
    const { BIASED } = planned.constants;
    const { top_k, tiles, units, used_units, x_stride4, out_features, out_stride } = planned.params;
    checkGridY('expert_linear_combine', rows, rows, traits);
    const contract = contractionOf(problem, traits);
    const limit = traits.limits.maxComputeWorkgroupStorageSize;
    if (contract.bytes > limit) {
      throw limitError(
        `expert_linear_combine: ${problem.topK} experts a row need ${contract.bytes} bytes of workgroup memory; this adapter's ` +
          `maxComputeWorkgroupStorageSize is ${limit}; use expert_linear and moe_combine`,
      );
    }
    const { total = 0, align = 1 } = shared?.segments ?? {};
    const levels = treeLevels('expert_linear_combine', Math.max(1, total));
    const dense = {
      shared_first: shared?.firstUnit ?? 0,
      shared_units: shared ? packedLayout(problem.type, 1, shared.inFeatures).units : units,
      shared_in: shared?.inFeatures ?? 0,
      shared_scale: shared?.outScale ?? 1,
    };
    return {
      wgsl: [stepsWgsl, segmentsWgsl, planned.weights, contractWgsl, source],
      constants: { ...contract.constants, BIASED, SHARED_SEGMENTS: total, SHARED_ALIGN: align, TREE_LEVELS: levels },
      params: { top_k, tiles, units, used_units, x_stride4, out_features, out_stride, ...dense },
      grid: (step) => [contract.tiles, Math.min(step.rows, rows), 1],
    };
  },
});
