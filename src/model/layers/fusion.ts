import { attentionAppend, canAppend } from '../../../shaders/attention/attention_append/index.js';
import { canFuseNorm, linear } from '../../../shaders/linear/linear/index.js';
import { linearAddNorm } from '../../../shaders/linear/linear_add_norm/index.js';
import {
  canMerge,
  linearMerge,
  type MergedChunks,
  MOST_MERGED_CHUNKS,
  mostChunks,
} from '../../../shaders/linear/linear_merge/index.js';
import type { Device, Kernel, Tensor } from '../../gpu/index.js';
import type { GqaConfig, ModelConfig, NormConfig } from '../config/model_config.js';
import type { HeldSegments } from '../shape.js';
import type { Matrix } from '../weights/matrix.js';
import type { SpreadAttention } from './attention/spread_attention.js';
import type { StageContext } from './layer.js';
import type { Partials } from './linear/linear.js';
import { type Role, tileRows } from './roles.js';
import { isAdapted, type StageRows } from './rows.js';
import type { RankRecorder } from './world.js';

// Which kernels run a layer. On a GPU a lone row's norm, rotation, append and merge are done by the kernels before or behind them, of
// several rows rotation and append, and of a few the norm; a kernel that does the work of several gives their bits. The layers ask
// here and record what they are told.

/**
 * Whether this device runs a kernel for GPUs that does the work of two others: they run where it binds more buffers than the device
 * allows, and where it was found wrong.
 */
export function fuses(device: Device, { name, bindings }: Pick<Kernel, 'name' | 'bindings'>): boolean {
  const { software, limits } = device.traits;
  const fits = Object.keys(bindings).length <= limits.maxStorageBuffersPerShaderStage;
  return !software && fits && !device.traitsOf(name).software;
}

/** Whether rows of this role and number get their norm inside the projection: a lone one, or as many as its workgroups take at once. */
export function fusesNorm(
  device: Device,
  { kind }: Pick<NormConfig, 'kind'>,
  role: Role,
  rows: number,
  width: number,
): boolean {
  const some = rows === 1 || fuses(device, linear);
  return kind === 'rms' && role === 'generated' && some && canFuseNorm(width, device.traits, tileRows(rows));
}

/** Whether a lone row gets its norm inside whatever multiplies it. */
export const fusesLoneNorm = (...[device, norm, role, rows, width]: Parameters<typeof fusesNorm>): boolean =>
  rows === 1 && fusesNorm(device, norm, role, rows, width);

/**
 * Whether sums that are normalised behind halves are left to the projection that reads x next. The head has so many workgroups that each
 * of them adding would cost more than a dispatch, so the last sum of a stage isn't.
 */
export const fusesAdded = (
  device: Device,
  { norm, layers, hiddenSize }: Pick<ModelConfig, 'norm' | 'layers' | 'hiddenSize'>,
  role: Role,
  rows: number,
): boolean =>
  fusesNorm(device, norm, role, rows, hiddenSize) &&
  layers.every(({ norms }) => norms === 'behind' || norms === 'both') &&
  fuses(device, linearAddNorm);

/** Generated rows, whose sequences are all here. */
export const isOwn = ({ isLocal }: SpreadAttention, { role }: Pick<StageRows, 'role'>): boolean =>
  role === 'generated' && isLocal;

/** One such row: its steps take fewer kernels. */
export const isLone = (attention: SpreadAttention, rows: Pick<StageRows, 'role' | 'rows'>): boolean =>
  isOwn(attention, rows) && rows.rows === 1;

/**
 * What of grouped-query attention is done in one with what is before or behind it. Heads of a compressed cache differ in their chunks:
 * those are merged apart.
 */
export function fusedGqa(
  { device, cache }: StageContext,
  { headDim, sharesKv }: GqaConfig,
  rows: StageRows,
  attention: SpreadAttention,
) {
  const lone = isLone(attention, rows) && !cache.headTables;
  return {
    /** Rotation and append, with attention: of rows that don't attend to each other's keys. */
    appends:
      isOwn(attention, rows) &&
      rows.distinct &&
      !cache.headTables &&
      sharesKv === undefined &&
      canAppend(headDim) &&
      fuses(device, attentionAppend),
    /**
     * The merge of chunks, and the gate of what is merged, in the output projection, which must be one matrix of these segments: what it
     * reads then.
     */
    merges(
      [output, ...others]: readonly { readonly matrix: Matrix; readonly segments: HeldSegments }[],
      gate?: Tensor,
      gateOffset?: number,
    ): Partials | undefined {
      // What adapters read is merged apart.
      if (!lone || !output || others.length > 0 || isAdapted(rows, output.matrix) || !fuses(device, linearMerge))
        return undefined;
      const { start, end, count } = output.segments;
      if (!canMerge(end - start, count, device.traits)) return undefined;
      const { partials, input, target, shape } = attention;
      return {
        problem: { headDim, partials, slidingWindow: shape.slidingWindow, gateOffset },
        tensors: { ...target, row_info: input.rowInfo, gate },
      };
    },
  };
}

const isFew = (chunks: number): boolean => chunks <= MOST_MERGED_CHUNKS;
const isMany = (chunks: number): boolean => !isFew(chunks);

/** Records a projection that merges in steps of few chunks, and in others reads what was merged apart. */
export function recordMerging(
  recorder: RankRecorder,
  merged: MergedChunks,
  merging: () => void,
  plain: () => void,
): void {
  if (isFew(mostChunks(merged))) return merging();
  recorder.inSteps(isFew, merging);
  recorder.inSteps(isMany, plain);
}

/** Records a merge: in all steps, or, where the projection behind it does it (`merged`), in those of many chunks. */
export function recordMerge(recorder: RankRecorder, merged: MergedChunks | undefined, merge: () => void): void {
  if (!merged) merge();
  else if (isMany(mostChunks(merged))) recorder.inSteps(isMany, merge);
}
