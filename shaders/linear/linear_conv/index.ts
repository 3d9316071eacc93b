import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { CONTRACT_TUNINGS, ONE_SEGMENT, planContract, contractWgsl } from '../contract.js';
import { planNormedX } from '../linear/index.js';
import { blockElements, type MatrixType, TILE, UNIT_ELEMENTS } from '../pack.js';
import { someActivations } from '../problem.js';
import { weightsWgsl } from '../weights_wgsl.js';
import source from './linear_conv.wgsl?raw';

/** Of a lone row. */
export interface LinearConvProblem {
  readonly inFeatures: number;
  /** Channels, a multiple of 32: the weight has as many rows of B, of C and of the convolution's input. */
  readonly width: number;
  /** 2 to 8. */
  readonly taps: number;
  readonly type: MatrixType;
  /** Elements, a multiple of 4; x's padding is zero. */
  readonly xStride: number;
  /** Of x's norm. */
  readonly eps: number;
}

const GPU = { software: false };

/** Whether a row of `inFeatures` fits the workgroup memory, beside the sums of 256 threads. */
export const canConvolve = (inFeatures: number, { limits }: DeviceTraits): boolean =>
  planNormedX(inFeatures, GPU).bytes + 3 * 256 * 4 <= limits.maxComputeWorkgroupStorageSize;

/**
 * linear, with its norm, and causal_conv in one, bit for bit: for a lone row. On every adapter planned as for a GPU. Binds 9 storage
 * buffers.
 * @throws SplitkvError `limit` where the row doesn't fit the workgroup memory (`canConvolve`)
 */
export const linearConv = defineKernel({
  name: 'linear_conv',
  bindings: {
    x: 'read',
    weight: 'read',
    scale: 'read',
    norm_weight: 'read',
    taps: 'read',
    row_info: 'read',
    places: 'read',
    state: 'read_write',
    out: 'read_write',
  },
  params: {
    out_features: 'u32',
    model_in_features: 'u32',
    units: 'u32',
    tile_units: 'u32',
    x_stride4: 'u32',
    eps: 'f32',
  },
  tunings: CONTRACT_TUNINGS,
  contents: ({ xStride }: LinearConvProblem) => ({ x: someActivations(xStride) }),
  plan({ inFeatures, width, taps, type, xStride, eps }: LinearConvProblem, traits) {
    if (width % TILE !== 0 || taps < 2 || taps > 8 || xStride % 4 !== 0 || xStride < inFeatures) {
      throw new SplitkvError(
        'internal',
        `linear_conv: ${width} channels, ${taps} taps, xStride ${xStride}: expected a multiple of ${TILE}, 2 to 8 taps, and a ` +
          `multiple of 4 from inFeatures (${inFeatures}) on`,
      );
    }
    if (!canConvolve(inFeatures, traits)) {
      throw new SplitkvError(
        'limit',
        `linear_conv: inFeatures ${inFeatures} don't fit this adapter's maxComputeWorkgroupStorageSize of ` +
          `${traits.limits.maxComputeWorkgroupStorageSize}; use linear and causal_conv`,
      );
    }
    const normed = planNormedX(inFeatures, GPU);
    const contraction = { type, outFeatures: width, inFeatures, tileRows: 1, matrices: 3, cut: false } as const;
    const whole = { ...contraction, segments: ONE_SEGMENT, staged: normed.bytes };
    const { constants, tiles } = planContract(whole, traits);
    return {
      wgsl: [stepsWgsl, weightsWgsl(type, traits), ...normed.fragments, contractWgsl, source],
      constants: { ...constants, ...normed.constants, TAPS: taps },
      params: {
        out_features: width,
        model_in_features: inFeatures,
        units: ceilDiv(inFeatures, UNIT_ELEMENTS[type]),
        tile_units: alignUp(inFeatures, blockElements(type)) / UNIT_ELEMENTS[type],
        x_stride4: xStride / 4,
        eps,
      },
      grid: (step) => [tiles, Math.min(step.rows, 1), 1],
    };
  },
});
