import { ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { fastPath, fastTile } from '../../linear/fast/fast.js';
import { checkGridY, EXPERT_PARAMS, type ExpertProblem, planExperts } from '../experts.js';
import expertTileWgsl from '../expert_tile.wgsl?raw';
import serialContractWgsl from '../serial.wgsl?raw';
import source from './expert_linear_tiled.wgsl?raw';
import serialSource from './expert_linear_tiled_serial.wgsl?raw';

export type ExpertLinearTiledProblem = ExpertProblem;

/** (row, slot)s of one expert that share a read of its weights; changes no bit. */
const tileRows = (traits: DeviceTraits): number => (traits.software ? 8 : 32);

/** Most tiles that `rows` rows can make: every expert's last one may be nearly empty. */
export function mostTiles(rows: number, topK: number, experts: number, tile: number): number {
  const pairs = rows * topK;
  return Math.floor((pairs + Math.min(experts, pairs) * (tile - 1)) / tile);
}

/**
 * Prompt rows by the weights of their experts, batched by expert with the lists of moe_sort: out[row][slot] = W[expert] x. Writes
 * nothing for a (row, slot) whose expert isn't in the shard.
 */
export const expertLinearTiled = defineKernel({
  name: 'expert_linear_tiled',
  bindings: {
    x: 'read',
    weight: 'read',
    scale: 'read',
    pairs: 'read',
    pair_counts: 'read',
    bias: 'read',
    out: 'read_write',
  },
  params: EXPERT_PARAMS,
  plan(problem: ExpertLinearTiledProblem, traits) {
    const { rows, topK } = problem;
    const { expertCount, fragments, constants, matrices, params, tiles } = planExperts(
      'expert_linear_tiled',
      problem,
      traits,
    );
    const tile = tileRows(traits);
    const most = (stepRows: number): number => mostTiles(Math.min(stepRows, rows), topK, expertCount, tile);
    checkGridY('expert_linear_tiled', rows, most(rows), traits);
    const path = fastPath(traits, problem.type);
    if (path !== undefined) {
      const fast = fastTile('expert_linear_tiled', path, problem.type, traits, [tile, 64]);
      return {
        ...fast,
        wgsl: [...fragments, stepsWgsl, expertTileWgsl, ...fast.wgsl],
        constants: { ...constants, TILE_ROWS: tile, ...fast.constants },
        params,
        // 64 outputs, or 32 of gate with those of up.
        grid: (step) => [matrices === 2 ? tiles : ceilDiv(tiles, 2), most(step.rows), 1],
      };
    }
    return {
      wgsl: [...fragments, expertTileWgsl, ...(traits.software ? [serialContractWgsl, serialSource] : [source])],
      constants: { ...constants, TILE_ROWS: tile, ...(traits.software ? { SERIAL_ROWS: 2 } : {}) },
      params,
      grid: (step) => [tiles, most(step.rows), 1],
    };
  },
});
