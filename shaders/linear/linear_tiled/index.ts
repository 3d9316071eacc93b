import { serialContractWgsl } from '../contract.js';
import { SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel, type GridSpec } from '../../../src/gpu/kernel.js';
import siluWgsl from '../../lib/silu.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import treeSumWgsl from '../../lib/tree_sum.wgsl?raw';
import { fastPath, fastTile } from '../fast/fast.js';
import swigluWgsl from '../linear/swiglu.wgsl?raw';
import { BLOCK } from '../pack.js';
import {
  activationConstants,
  type Activation,
  type Epilogue,
  LINEAR_PARAMS,
  type LinearProblem,
  planLinear,
  someActivations,
  tilesOf,
} from '../problem.js';
import { segmentStart, treeLevels } from '../segments.js';
import xPlainWgsl from '../x_plain.wgsl?raw';
import tiledWgsl from './linear_tiled.wgsl?raw';
import serialWgsl from './linear_tiled_serial.wgsl?raw';

export interface LinearTiledProblem extends LinearProblem {
  readonly epilogue: Epilogue;
  /** Of swiglu's gate, 'silu' where left out; of 'gelu'. */
  readonly activation?: Activation;
  /** x lies in bytes (fast/row_vec4s.wgsl): only where it `takesBytes`. */
  readonly inBytes?: boolean;
}

/** Outputs x rows of a workgroup, and whether it asks for the next columns early. */
const TUNINGS: readonly string[] = ['64 x 64', '64 x 32', '32 x 32', 'late'];

/** Workgroups below which a GPU is left partly idle, so that smaller tiles win. */
const ENOUGH_WORKGROUPS = 128;

/** Linear layer for many rows: prompt tokens. x is used as it is: normalise it before. */
export const linearTiled = defineKernel({
  name: 'linear_tiled',
  bindings: { x: 'read', weight: 'read', scale: 'read', bias: 'read', out: 'read_write' },
  params: LINEAR_PARAMS,
  tunings: TUNINGS,
  contents: ({ rows, xStride }: LinearTiledProblem) => ({ x: someActivations(rows * xStride) }),
  plan(problem: LinearTiledProblem, traits) {
    const { rows, inFeatures, outFeatures, epilogue, activation } = problem;
    const { segments, params, ...shared } = planLinear('linear_tiled', problem, epilogue, traits);
    const isGated = epilogue === 'swiglu';
    if (isGated && segments.count > 1) {
      throw new SplitkvError('internal', `linear_tiled: swiglu of ${segments.count} segments, expected one`);
    }
    const fragments = [...shared.fragments, xPlainWgsl, siluWgsl, swigluWgsl];
    const constants = {
      ...shared.constants,
      SWIGLU: isGated,
      ...activationConstants(activation),
    };
    // Columns of weights: of gate and of up.
    const columns = isGated ? 2 * outFeatures : outFeatures;
    const levels = treeLevels('linear_tiled', segments.count);
    if (traits.software) {
      return {
        wgsl: [...fragments, serialContractWgsl, serialWgsl],
        constants: { ...constants, ALIGNED: segments.aligned, TREE_LEVELS: levels },
        params,
        grid: (step) => [tilesOf(outFeatures), ceilDiv(Math.min(step.rows, rows), 2), 1],
      };
    }
    const workgroups = (outTile: number, rowTile: number): number => ceilDiv(columns, outTile) * ceilDiv(rows, rowTile);
    const { tuning = '', unroll } = traits;
    const [outs, most] = tuning.split(' x ').map(Number);
    const rowTile = most ?? (rows <= 32 || workgroups(64, 64) < ENOUGH_WORKGROUPS ? 32 : 64);
    const outTile = (most && outs) ?? (columns <= 32 || workgroups(64, rowTile) < ENOUGH_WORKGROUPS ? 32 : 64);
    const prefetch = unroll && tuning !== 'late';
    const path = fastPath(traits, problem.type);
    const grid: GridSpec = (step) => [ceilDiv(columns, outTile), ceilDiv(Math.min(step.rows, rows), rowTile), 1];
    if (path !== undefined) {
      const { inBytes = false } = problem;
      const tile = fastTile('linear_tiled', path, problem.type, traits, [rowTile, outTile], inBytes);
      // Rows in bytes have a load_x of their own.
      const wgsl = [stepsWgsl, ...fragments.filter((text) => !(inBytes && text === xPlainWgsl)), ...tile.wgsl];
      return {
        ...tile,
        wgsl,
        constants: { ...constants, ...tile.constants, PREFETCH: prefetch, TREE_LEVELS: levels },
        params,
        grid,
      };
    }
    // Workgroup memory holds 32 columns at a time, so a boundary within them must be masked whatever the weight type.
    let aligned = true;
    for (let s = segments.first; s <= segments.first + segments.count; s++) {
      const boundary = segmentStart(s, problem.modelInFeatures ?? inFeatures, problem.segments);
      if (boundary % BLOCK !== 0 && boundary !== params.model_in_features) aligned = false;
    }
    return {
      wgsl: [stepsWgsl, treeSumWgsl, ...fragments, tiledWgsl],
      constants: {
        ...constants,
        ALIGNED: aligned,
        OUT_TILE: outTile,
        ROW_TILE: rowTile,
        PREFETCH: prefetch,
        TREE_LEVELS: levels,
      },
      params,
      grid,
    };
  },
});
