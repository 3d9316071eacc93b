import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rmsWgsl from '../../lib/rms.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import {
  activationConstants,
  type Activation,
  type Epilogue,
  LINEAR_PARAMS,
  type LinearProblem,
  planLinear,
  someActivations,
  type TileRows,
  tilesOf,
} from '../problem.js';
import { decodesBytes, rowBytes } from '../fast/fast.js';
import { CONTRACT_TUNINGS, fitTile, planContract, contractWgsl, serialContractWgsl } from '../contract.js';
import outputsWgsl from '../outputs.wgsl?raw';
import linearWgsl from './linear.wgsl?raw';
import { treeLevels } from '../segments.js';
import serialWgsl from './linear_serial.wgsl?raw';
import siluWgsl from './silu.wgsl?raw';
import stagedRowWgsl from './staged_row.wgsl?raw';
import swigluWgsl from './swiglu.wgsl?raw';
import xNormedWgsl from './x_normed.wgsl?raw';
import xNormedSerialWgsl from './x_normed_serial.wgsl?raw';
import xPlainWgsl from '../x_plain.wgsl?raw';

export interface LinearRowsProblem extends LinearProblem {
  readonly tileRows: TileRows;
  /** RMS-normalise x first, with `eps`; needs `canFuseNorm`. */
  readonly norm: boolean;
  readonly eps?: number;
  readonly epilogue: Epilogue;
  /** Of swiglu's gate, 'silu' where left out; of 'gelu'. */
  readonly activation?: Activation;
}

/** Of lib/rms.wgsl, an f32 each. */
const RMS_PARTIALS = 64;

/** How rows of `inFeatures` are normalised in workgroup memory: `bytes` of it each, of which `constants` tell the shader. */
export function planNormedX(inFeatures: number, { software }: Pick<DeviceTraits, 'software'>) {
  // A GPU's threads have as many vec4s each.
  const vec4s = alignUp(inFeatures, software ? 32 : 4 * 256) / 4;
  return {
    bytes: vec4s * 16 + RMS_PARTIALS * 4,
    constants: { STAGED: vec4s },
    fragments: [rmsWgsl, ...(software ? [xNormedSerialWgsl] : [stagedRowWgsl, xNormedWgsl])],
  };
}

/**
 * Whether `linear` can normalise rows of `inFeatures` itself, so many in a tile; if not, rms_norm before it gives the same bits. A software
 * adapter's workgroup takes one.
 */
export function canFuseNorm(inFeatures: number, traits: DeviceTraits, tileRows: TileRows = 1): boolean {
  const bytes = planNormedX(inFeatures, traits).bytes + (decodesBytes(traits, 'q8') ? rowBytes(inFeatures) : 0);
  if (tileRows > 1 && (traits.software || !fitTile(tileRows, bytes))) return false;
  // A thread of 256 sums gate and up, or a tile's rows by one of them.
  const sums = traits.software ? 0 : Math.max(2, tileRows) * 256 * 4;
  return tileRows * bytes + sums <= traits.limits.maxComputeWorkgroupStorageSize;
}

/** Linear layer for few rows: generated tokens and logits. */
export const linear = defineKernel({
  name: 'linear',
  bindings: { x: 'read', weight: 'read', scale: 'read', bias: 'read', norm_weight: 'read', out: 'read_write' },
  params: LINEAR_PARAMS,
  tunings: CONTRACT_TUNINGS,
  contents: ({ rows, xStride }: LinearRowsProblem) => ({ x: someActivations(rows * xStride) }),
  plan(problem: LinearRowsProblem, traits) {
    const { rows, inFeatures, outFeatures, type, epilogue, norm, eps } = problem;
    const planned = planLinear('linear', problem, epilogue, traits, true);
    const { segments, params, fragments, constants, fast } = planned;
    if (norm) checkNorm(problem, segments.end - segments.start === params.model_in_features);
    const normed = norm ? planNormedX(inFeatures, traits) : { bytes: 0, constants: {}, fragments: [xPlainWgsl] };
    const limit = traits.limits.maxComputeWorkgroupStorageSize;
    const matrices = epilogue === 'swiglu' ? 2 : 1;
    const { tileRows: most } = problem;
    const cut = !segments.aligned;
    const contraction = {
      type,
      outFeatures,
      inFeatures,
      tileRows: most,
      matrices,
      segments,
      cut,
      rowBytes: planned.rowBytes + normed.bytes,
    } as const;
    const hardware = traits.software ? undefined : planContract(contraction, traits);
    const bytes = hardware?.bytes ?? normed.bytes;
    if (bytes > limit) {
      throw new SplitkvError(
        'limit',
        `linear: inFeatures ${inFeatures}${norm ? ' with a fused norm' : ''} and ${segments.count} segments need ${bytes} bytes of ` +
          `workgroup memory; this adapter's maxComputeWorkgroupStorageSize is ${limit}; ` +
          (norm ? 'use the rms_norm kernel before it' : 'split the contraction over more ranks'),
      );
    }
    const shared = {
      constants: {
        ...constants,
        ...activationConstants(problem.activation),
        ...normed.constants,
      },
      fragments: [stepsWgsl, ...fragments, siluWgsl, swigluWgsl],
      params: { ...params, eps: eps ?? 0 },
    };
    // A software adapter's workgroup normalises one row.
    const tileRows = hardware?.tileRows ?? (norm ? 1 : Math.min(problem.tileRows, 2));
    const tiles = hardware?.tiles ?? tilesOf(outFeatures);
    return {
      wgsl: [
        ...shared.fragments,
        // llvmpipe compiles a serial loop into slower code where what it calls is declared behind it.
        ...(hardware
          ? [contractWgsl, outputsWgsl, linearWgsl, ...normed.fragments]
          : [...normed.fragments, serialContractWgsl, serialWgsl]),
      ],
      constants: {
        ...shared.constants,
        ...(hardware
          ? { ...hardware.constants, SEGMENT_TOTAL: segments.total }
          : {
              ALIGNED: segments.aligned,
              SERIAL_ROWS: tileRows,
              SWIGLU: epilogue === 'swiglu',
              TREE_LEVELS: treeLevels('linear', segments.count),
            }),
      },
      params: shared.params,
      ...(fast && { fast }),
      grid: (step) => [tiles, ceilDiv(Math.min(step.rows, rows), tileRows), 1],
    };
  },
});

/** @param whole the rank has the whole row of x */
function checkNorm({ eps }: LinearRowsProblem, whole: boolean): void {
  const bad = (what: string): SplitkvError => new SplitkvError('internal', `linear: a fused norm needs ${what}`);
  if (eps === undefined) throw bad('eps');
  if (!whole) throw bad('the whole row of x');
}
