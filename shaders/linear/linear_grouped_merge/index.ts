import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { CONTRACT_TUNINGS, ONE_SEGMENT, planContract, contractWgsl } from '../contract.js';
import groupOutputsWgsl from '../group_outputs.wgsl?raw';
import { MOST_MERGED_CHUNKS } from '../linear_merge/index.js';
import { BLOCK, blockElements, type MatrixType, UNIT_ELEMENTS } from '../pack.js';
import { weightsWgsl } from '../weights_wgsl.js';
import xMergedWgsl from '../x_merged.wgsl?raw';
import { someActivations } from '../problem.js';
import source from './linear_grouped_merge.wgsl?raw';

/** Of a lone row. */
export interface LinearGroupedMergeProblem {
  readonly groups: number;
  /** Elements of a head's state, which a group contracts: a multiple of 8. */
  readonly inFeatures: number;
  readonly outFeatures: number;
  readonly type: MatrixType;
  /** Chunks of a head that partial_o and partial_ml have room for. */
  readonly partials: number;
  /** Elements of out, and from group to group. */
  readonly outStride: number;
  readonly outGroupStride: number;
}

/**
 * attention_merge ('all') and linear_grouped in one, bit for bit: for a lone row of at most MOST_MERGED_CHUNKS chunks. On every adapter
 * planned as for a GPU.
 */
export const linearGroupedMerge = defineKernel({
  name: 'linear_grouped_merge',
  bindings: {
    partial_o: 'read',
    partial_ml: 'read',
    row_info: 'read',
    weight: 'read',
    scale: 'read',
    out: 'read_write',
  },
  params: {
    rows: 'u32',
    out_features: 'u32',
    units: 'u32',
    tile_units: 'u32',
    out_stride: 'u32',
    out_offset: 'u32',
    out_group: 'u32',
    partials: 'u32',
  },
  tunings: CONTRACT_TUNINGS,
  contents: ({ groups, inFeatures, partials }: LinearGroupedMergeProblem) => ({
    partial_o: someActivations(groups * inFeatures * partials),
    partial_ml: someActivations(groups * partials * 2),
  }),
  plan(problem: LinearGroupedMergeProblem, traits) {
    const { groups, inFeatures, outFeatures, type, partials, outStride, outGroupStride } = problem;
    const bad = (what: string): SplitkvError => new SplitkvError('internal', `linear_grouped_merge: ${what}`);
    if (!Number.isInteger(inFeatures) || inFeatures < 8 || inFeatures % 8 !== 0) {
      throw bad(`inFeatures is ${inFeatures}, expected a multiple of 8 from 8 on`);
    }
    if (groups > 1 && outGroupStride < outFeatures)
      throw bad(`outGroupStride is ${outGroupStride}, expected at least ${outFeatures}`);
    if ((groups - 1) * outGroupStride + outFeatures > outStride) {
      throw bad(`${groups} groups of ${outFeatures}, ${outGroupStride} apart, don't fit an out row of ${outStride}`);
    }
    const unit = UNIT_ELEMENTS[type];
    const width = alignUp(inFeatures, BLOCK);
    const contract = planContract(
      {
        type,
        inFeatures,
        outFeatures,
        tileRows: 1,
        matrices: 1,
        segments: ONE_SEGMENT,
        cut: false,
        copies: groups,
        staged: width * 4,
      },
      traits,
    );
    return {
      wgsl: [stepsWgsl, weightsWgsl(type, traits), softmaxState, xMergedWgsl, contractWgsl, groupOutputsWgsl, source],
      constants: {
        ...contract.constants,
        HEAD_UNITS: inFeatures / 4,
        STAGED: width / 4,
        MERGED: inFeatures / 4,
        MOST_CHUNKS: Math.min(MOST_MERGED_CHUNKS, partials),
        WINDOW: 0,
      },
      params: {
        rows: 1,
        out_features: outFeatures,
        units: ceilDiv(inFeatures, unit),
        tile_units: alignUp(inFeatures, blockElements(type)) / unit,
        out_stride: outStride,
        out_offset: 0,
        out_group: outGroupStride,
        partials,
      },
      grid: (step) => [contract.tiles, groups, Math.min(step.rows, 1)],
    };
  },
});
