import type { Tensor } from '../../gpu/index.js';
import { stageRoutes } from '../../placement/index.js';
import type { RowBuffers } from '../forward/forward.js';
import { rowsOf } from './linear/parts.js';
import type { RankRecorder, World } from './world.js';

/** Row groups whose rows lie side by side, each with room of its own: prompt rows that are split over replicas. */
export const rowBlocks = ({ all }: World, role: RowBuffers['role']): number => (all.places ? 1 : all.rowGroups[role]);

/** The block of the rows that this rank runs. */
export const ownBlock = (world: World, role: RowBuffers['role']): number =>
  rowBlocks(world, role) === 1 ? 0 : world.topology.runs[role][0]!;

/** This rank's own rows of `rowInfo`. */
export function ownRowInfo(
  world: World,
  { role, rowInfo, rows }: Pick<RowBuffers, 'role' | 'rowInfo' | 'rows'>,
): Tensor {
  if (rowBlocks(world, role) === 1) return rowInfo;
  return { buffer: rowInfo, offset: ownBlock(world, role) * rows * 8, size: rows * 8 };
}

/** The rows' residual stream comes to a stage from the one before it. */
export function recordStageRows(
  recorder: RankRecorder,
  world: World,
  stage: number,
  { role, x }: Pick<RowBuffers, 'role' | 'x'>,
  stride: number,
): void {
  world.exchangeRoutes(recorder, 'stage', stageRoutes(world.all, stage, role), ({ cargo }, _side, step) => {
    const { first, count } = world.rowRange(role, cargo.group, step);
    return [rowsOf(x, stride, count, first)];
  });
}
