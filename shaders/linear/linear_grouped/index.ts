import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { weightsWgsl } from '../weights_wgsl.js';
import { blockElements, type MatrixType, UNIT_ELEMENTS } from '../pack.js';
import { someActivations, type TileRows, tilesOf } from '../problem.js';
import { CONTRACT_TUNINGS, ONE_SEGMENT, planContract, contractWgsl } from '../contract.js';
import groupOutputsWgsl from '../group_outputs.wgsl?raw';
import source from './linear_grouped.wgsl?raw';
import serialSource from './linear_grouped_serial.wgsl?raw';

/**
 * One weight per group (head), each applied to its own slice of a row: out[r][g] = W[g] x[r][g]. Weight tiles of group g start at
 * tile g * tilesOf(outFeatures): every group is packed by itself (packTiles), one after the other.
 */
export interface LinearGroupedProblem {
  /** Most rows of a step. */
  readonly rows: number;
  readonly tileRows: TileRows;
  readonly groups: number;
  /** Elements of a group's slice of x: a multiple of 8. What follows the slice is never read. */
  readonly inFeatures: number;
  readonly outFeatures: number;
  readonly type: MatrixType;
  /** Elements from row to row of x, of the first group in a row, and from group to group: multiples of 4. */
  readonly xStride: number;
  readonly xOffset: number;
  readonly xGroupStride: number;
  /** Elements from row to row of out, of the first group in a row, and from group to group. */
  readonly outStride: number;
  readonly outOffset: number;
  readonly outGroupStride: number;
}

/** A matrix a head: MLA's absorb (W_UK^T) and up-projection (W_UV). */
export const linearGrouped = defineKernel({
  name: 'linear_grouped',
  bindings: { x: 'read', weight: 'read', scale: 'read', out: 'read_write' },
  params: {
    rows: 'u32',
    out_features: 'u32',
    x_vec4s: 'u32',
    units: 'u32',
    tile_units: 'u32',
    x_stride4: 'u32',
    x_start4: 'u32',
    x_group4: 'u32',
    out_stride: 'u32',
    out_offset: 'u32',
    out_group: 'u32',
  },
  tunings: CONTRACT_TUNINGS,
  contents: ({ rows, xStride }: LinearGroupedProblem) => ({ x: someActivations(rows * xStride) }),
  plan(problem: LinearGroupedProblem, traits) {
    const { rows, tileRows, groups, inFeatures, outFeatures, type } = problem;
    const { xStride, xOffset, xGroupStride, outStride, outOffset, outGroupStride } = problem;
    const bad = (what: string): SplitkvError => new SplitkvError('internal', `linear_grouped: ${what}`);
    const limit = traits.limits.maxComputeWorkgroupsPerDimension;
    if (!Number.isInteger(groups) || groups < 1 || groups > limit)
      throw bad(`${groups} groups, expected an integer from 1 to ${limit}`);
    if (!Number.isInteger(inFeatures) || inFeatures < 8 || inFeatures % 8 !== 0) {
      throw bad(`inFeatures is ${inFeatures}, expected a multiple of 8 from 8 on`);
    }
    for (const [name, value] of Object.entries({ xStride, xOffset, xGroupStride })) {
      if (value % 4 !== 0 || value < 0) throw bad(`${name} is ${value}, expected a multiple of 4`);
    }
    if (xOffset + (groups - 1) * xGroupStride + inFeatures > xStride) {
      throw bad(
        `${groups} groups of ${inFeatures}, ${xGroupStride} apart from ${xOffset} on, don't fit an x row of ${xStride}`,
      );
    }
    if (groups > 1 && outGroupStride < outFeatures)
      throw bad(`outGroupStride is ${outGroupStride}, expected at least ${outFeatures}`);
    if (outOffset + (groups - 1) * outGroupStride + outFeatures > outStride) {
      throw bad(
        `${groups} groups of ${outFeatures}, ${outGroupStride} apart from ${outOffset} on, don't fit an out row of ${outStride}`,
      );
    }
    const unit = UNIT_ELEMENTS[type];
    const params = {
      rows,
      out_features: outFeatures,
      x_vec4s: inFeatures / 4,
      units: ceilDiv(inFeatures, unit),
      tile_units: alignUp(inFeatures, blockElements(type)) / unit,
      x_stride4: xStride / 4,
      x_start4: xOffset / 4,
      x_group4: xGroupStride / 4,
      out_stride: outStride,
      out_offset: outOffset,
      out_group: outGroupStride,
    };
    const masked = { MASKED: inFeatures % unit !== 0 };
    if (traits.software) {
      const serialRows = Math.min(tileRows, 8);
      return {
        wgsl: [weightsWgsl(type, traits), serialSource],
        constants: { TILE_ROWS: serialRows, ...masked },
        params,
        grid: (step) => [tilesOf(outFeatures), groups, ceilDiv(Math.min(step.rows, rows), serialRows)],
      };
    }
    const contract = planContract(
      { type, inFeatures, outFeatures, tileRows, matrices: 1, segments: ONE_SEGMENT, cut: false, copies: groups },
      traits,
    );
    return {
      wgsl: [stepsWgsl, weightsWgsl(type, traits), contractWgsl, groupOutputsWgsl, source],
      constants: { ...contract.constants, ...masked },
      params,
      grid: (step) => [contract.tiles, groups, ceilDiv(Math.min(step.rows, rows), contract.tileRows)],
    };
  },
});
