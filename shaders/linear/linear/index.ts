import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rmsWgsl from '../../lib/rms.wgsl?raw';
import { LINEAR_PARAMS, type LinearProblem, planLinear, tilesOf } from '../problem.js';
import serialContractWgsl from '../serial.wgsl?raw';
import linearWgsl from './linear.wgsl?raw';
import serialWgsl from './linear_serial.wgsl?raw';
import swigluWgsl from './swiglu.wgsl?raw';
import xNormedWgsl from './x_normed.wgsl?raw';
import xPlainWgsl from '../x_plain.wgsl?raw';

export interface LinearRowsProblem extends LinearProblem {
  /** Rows that share one read of the weights; changes no bit. */
  readonly tileRows: 1 | 2 | 4 | 8;
  /** RMS-normalise x first, with `eps`; needs tileRows 1 and `canFuseNorm`. */
  readonly norm: boolean;
  readonly eps?: number;
  /** 'swiglu': the weight holds gate rows then up rows, each padded to 32; outFeatures is the intermediate size. */
  readonly epilogue: 'none' | 'residual' | 'swiglu';
}

/** Slices of a contraction that a workgroup takes at once on a hardware adapter. */
const SLICES = 8;

const normBytes = (inFeatures: number): number => alignUp(inFeatures, 32) * 4 + 64 * 4;

/** Whether `linear` can normalise a row of `inFeatures` itself; if not, rms_norm before it gives the same bits. */
export function canFuseNorm(inFeatures: number, traits: DeviceTraits): boolean {
  const partials = traits.software ? 0 : 2 * SLICES * 32 * 4;
  return normBytes(inFeatures) + partials <= traits.limits.maxComputeWorkgroupStorageSize;
}

/** Linear layer for few rows: generated tokens and logits. */
export const linear = defineKernel({
  name: 'linear',
  bindings: { x: 'read', weight: 'read', scale: 'read', bias: 'read', norm_weight: 'read', out: 'read_write' },
  params: LINEAR_PARAMS,
  plan(problem: LinearRowsProblem, traits) {
    const { rows, inFeatures, outFeatures, epilogue, norm, eps } = problem;
    const { segments, params, fragments, constants } = planLinear('linear', problem, epilogue);
    const bad = (what: string): SplitkvError => new SplitkvError('internal', `linear: ${what}`);
    if (norm && problem.tileRows !== 1)
      throw bad(`a fused norm needs tileRows 1, got ${problem.tileRows}; use rms_norm`);
    if (norm && eps === undefined) throw bad('a fused norm needs eps');
    if (norm && segments.end - segments.start !== params.model_in_features)
      throw bad('a fused norm needs the whole row of x');
    const matrices = epilogue === 'swiglu' ? 2 : 1;

    // The order of every sum follows from the model's number of segments and the traits alone.
    const subs = traits.software ? 1 : Math.max(1, Math.floor(SLICES / segments.total));
    const parts = segments.count * subs;
    const limit = traits.limits.maxComputeWorkgroupStorageSize;
    const staged = norm ? normBytes(inFeatures) : 0;
    const bytes = (tileRows: number): number => staged + (traits.software ? 0 : parts * matrices * tileRows * 32 * 4);
    let tileRows: number = traits.software ? Math.min(problem.tileRows, 2) : problem.tileRows;
    while (tileRows > 1 && bytes(tileRows) > limit) tileRows /= 2;
    if (bytes(tileRows) > limit) {
      throw new SplitkvError(
        'limit',
        `linear: inFeatures ${inFeatures}${norm ? ' with a fused norm' : ''} and ${segments.count} segments need ${bytes(1)} bytes of ` +
          `workgroup memory; this adapter's maxComputeWorkgroupStorageSize is ${limit}; ` +
          (norm ? 'use the rms_norm kernel before it' : 'split the contraction over more ranks'),
      );
    }
    const x = norm ? [rmsWgsl, xNormedWgsl] : [xPlainWgsl];
    const tiles = tilesOf(outFeatures);
    const variants = traits.software
      ? { SERIAL_ROWS: tileRows, SWIGLU: epilogue === 'swiglu' }
      : { TILE_ROWS: tileRows, MATRICES: matrices, SLICES: Math.min(SLICES, parts), SUBS: subs, PARTS: parts };
    return {
      wgsl: [...fragments, ...x, swigluWgsl, ...(traits.software ? [serialContractWgsl, serialWgsl] : [linearWgsl])],
      constants: { ...constants, ...variants, ...(norm ? { STAGED: alignUp(inFeatures, 32) / 4 } : {}) },
      params: { ...params, eps: eps ?? 0 },
      grid: (step) => [tiles, ceilDiv(Math.min(step.rows, rows), tileRows), 1],
    };
  },
});
