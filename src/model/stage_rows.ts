import type { Transfer } from '../distributed/communicator.js';
import type { Buffer, Recorder, Tensor } from '../gpu/index.js';
import { isKvOnly } from '../placement/index.js';
import type { RowBuffers } from './forward.js';
import { rowsOf } from './record_ranks.js';
import { rowSource } from './topology.js';
import type { World } from './world.js';

/** This rank's own rows of `rowInfo`. */
export function ownRowInfo(
  { topology }: World,
  { role, rowInfo, rows }: Pick<RowBuffers, 'role' | 'rowInfo' | 'rows'>,
): Tensor {
  if (role === 'generated' || topology.rowBlocks === 1) return rowInfo;
  return { buffer: rowInfo, offset: topology.rowBlock * rows * 8, size: rows * 8 };
}

/** The rows' residual stream comes to a stage from the one before it. */
export function recordStageRows(recorder: Recorder, world: World, stage: number, x: Buffer, stride: number): void {
  if (stage === 0) return;
  const { plan, rank } = world;
  // Ranks that keep sequences only run no rows of their own.
  const running = plan.stages[stage]!.shares.filter((share) => !isKvOnly(share));
  const sources = running
    .map((share) => ({
      to: share.rank,
      source: rowSource(plan, stage, share.rank),
    }))
    .filter(({ to, source }) => to !== source);
  world.hop(recorder, 'stage', (step) => {
    const transfer = (peer: number): Transfer => ({ peer, regions: [rowsOf(x, stride, step.rows)] });
    return {
      sends: sources.filter(({ source }) => source === rank).map(({ to }) => transfer(to)),
      receives: sources.filter(({ to }) => to === rank).map(({ source }) => transfer(source)),
    };
  });
}
