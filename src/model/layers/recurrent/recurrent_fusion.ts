import { decodesBytes } from '../../../../shaders/linear/fast/fast.js';
import { canConvolve, linearConv } from '../../../../shaders/linear/linear_conv/index.js';
import { canStep, deltaStep } from '../../../../shaders/recurrent/delta_step/index.js';
import type { Device } from '../../../gpu/index.js';
import type { DeltaConfig, NormConfig } from '../../config/model_config.js';
import type { Matrix } from '../../weights/matrix.js';
import { fuses, fusesLoneNorm } from '../fusion.js';
import type { Role } from '../roles.js';
import { isAdapted, type StageRows } from '../rows.js';

/** Whether linear attention by the gated delta rule is one kernel behind its first projection. */
export const fusesDelta = (
  device: Device,
  { keyHeads, valueHeads, keyDim, valueDim }: DeltaConfig,
  role: Role,
): boolean =>
  role === 'generated' && canStep({ ratio: valueHeads / keyHeads, keyDim, valueDim }) && fuses(device, deltaStep);

/**
 * Whether a gated short convolution is in the projection before it: its channels' inputs stand in thirds of one matrix, and no sum is left
 * to add to the row.
 */
export const fusesConv = (
  device: Device,
  norm: NormConfig,
  input: Matrix,
  stageRows: Pick<StageRows, 'role' | 'rows' | 'residual' | 'adapters'>,
  channels: number,
): boolean => {
  const { type, shards, inFeatures } = input;
  const { role, rows, residual } = stageRows;
  return (
    shards.length === 1 &&
    !residual.other &&
    !isAdapted(stageRows, input) &&
    channels % 32 === 0 &&
    fusesLoneNorm(device, norm, role, rows, inFeatures) &&
    // It multiplies exactly.
    !decodesBytes(device.traits, type) &&
    canConvolve(inFeatures, device.traits) &&
    fuses(device, linearConv)
  );
};
