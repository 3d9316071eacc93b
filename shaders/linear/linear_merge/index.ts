import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { CONTRACT_TUNINGS, planContract } from '../contract.js';
import contractWgsl from '../contract.wgsl?raw';
import siluWgsl from '../linear/silu.wgsl?raw';
import swigluWgsl from '../linear/swiglu.wgsl?raw';
import outputsWgsl from '../outputs.wgsl?raw';
import { LINEAR_PARAMS, type LinearProblem, planLinear, someActivations } from '../problem.js';
import xMergedWgsl from '../x_merged.wgsl?raw';
import source from './linear_merge.wgsl?raw';

/** Chunks that are merged where they are projected: more, times all the workgroups that read them, would cost more than a dispatch. */
export const MOST_MERGED_CHUNKS = 4;

/** Of a lone row: heads of headDim elements are what is contracted. */
export interface LinearMergeProblem extends Omit<LinearProblem, 'rows' | 'xStride' | 'xOffset'> {
  readonly headDim: number;
  /** Chunks of a head that partial_o and partial_ml have room for. */
  readonly partials: number;
  readonly epilogue: 'none' | 'residual';
}

const stagedBytes = (inFeatures: number): number => alignUp(inFeatures, 32) * 4;

/** Whether `inFeatures` of attention's output fit the workgroup memory, beside the sums of so many segments. */
export const canMerge = (inFeatures: number, segments: number, { limits }: DeviceTraits): boolean =>
  stagedBytes(inFeatures) + Math.max(32, segments) * 32 <= limits.maxComputeWorkgroupStorageSize;

/**
 * attention_merge ('all') and linear in one, bit for bit: for a lone row of at most MOST_MERGED_CHUNKS chunks. On every adapter planned
 * as for a GPU.
 * @throws SplitkvError `limit` where `canMerge` says so
 */
export const linearMerge = defineKernel({
  name: 'linear_merge',
  bindings: {
    partial_o: 'read',
    partial_ml: 'read',
    row_info: 'read',
    weight: 'read',
    scale: 'read',
    bias: 'read',
    out: 'read_write',
  },
  params: { ...LINEAR_PARAMS, partials: 'u32' },
  tunings: CONTRACT_TUNINGS,
  contents: ({ inFeatures, headDim, partials }: LinearMergeProblem) => ({
    partial_o: someActivations(inFeatures * partials),
    partial_ml: someActivations((inFeatures / headDim) * partials * 2),
  }),
  plan(problem: LinearMergeProblem, traits) {
    const { inFeatures, outFeatures, type, epilogue, headDim, partials } = problem;
    const xStride = alignUp(inFeatures, 32);
    const linear = { ...problem, rows: 1, xStride };
    const { segments, params, fragments, constants } = planLinear('linear_merge', linear, epilogue, traits);
    if (inFeatures % headDim !== 0 || headDim % 4 !== 0) {
      throw new SplitkvError('internal', `linear_merge: inFeatures ${inFeatures} aren't heads of ${headDim}`);
    }
    if (!canMerge(inFeatures, segments.count, traits)) {
      throw new SplitkvError(
        'limit',
        `linear_merge: inFeatures ${inFeatures} and ${segments.count} segments don't fit this adapter's ` +
          `maxComputeWorkgroupStorageSize of ${traits.limits.maxComputeWorkgroupStorageSize}; use attention_merge and linear`,
      );
    }
    const contract = planContract(
      {
        type,
        outFeatures,
        inFeatures,
        tileRows: 1,
        matrices: 1,
        segments,
        cut: !segments.aligned,
        staged: stagedBytes(inFeatures),
      },
      traits,
    );
    return {
      wgsl: [
        stepsWgsl,
        ...fragments,
        softmaxState,
        xMergedWgsl,
        siluWgsl,
        swigluWgsl,
        contractWgsl,
        outputsWgsl,
        source,
      ],
      constants: {
        ...constants,
        ...contract.constants,
        GELU: false,
        SEGMENT_TOTAL: segments.total,
        HEAD_UNITS: headDim / 4,
        STAGED: xStride / 4,
        MERGED: inFeatures / 4,
        MOST_CHUNKS: Math.min(MOST_MERGED_CHUNKS, partials),
      },
      params: { ...params, partials },
      grid: (step) => [contract.tiles, Math.min(step.rows, 1), 1],
    };
  },
});
