import { known } from '../../base/errors.js';
import { nth } from '../../base/lists.js';
import type { Buffer, Device, Tensor } from '../../gpu/index.js';
import { firstRowOf, stageRoutes, type StageTopology } from '../../placement/index.js';
import type { Adapters } from '../adapters/loaded_adapters.js';
import { rowsOf } from './linear/parts.js';
import type { Matrix } from '../weights/matrix.js';
import type { Residual } from './residual.js';
import { paddedName, type Role } from './roles.js';
import type { RankRecorder, World } from './world.js';

/**
 * Working buffers by name. Stages of a program run one after another on a rank, so a later one works in the buffers of those before,
 * where they are large enough: ask for the largest first.
 */
export class Scratch implements Pick<Device, 'createBuffer'> {
  readonly #buffers = new Map<string, Buffer>();

  constructor(readonly device: Pick<Device, 'createBuffer'>) {}

  /** At least `size` bytes. */
  createBuffer(label: string, size: number): Buffer {
    const made = this.#buffers.get(label);
    if (made && made.size >= size) return made;
    const buffer = this.device.createBuffer(label, size);
    this.#buffers.set(label, buffer);
    return buffer;
  }
}

/** Buffers that the forward program of some rows works in. `rows` is the most that a step may have. */
export interface RowBuffers {
  readonly role: Role;
  readonly rows: number;
  /** Rows of a step are of different slots. */
  readonly distinct: boolean;
  /**
   * u32 [blocks][rows]: token ids. Prompt rows have a block for each replica that rows are split over (`PlanTopology.rowPieces`),
   * this rank's own among them; generated rows one.
   */
  readonly tokens: Buffer;
  /** vec2<u32> [blocks][rows]: (position, slot); position 0xffffffff marks an inactive row. */
  readonly rowInfo: Buffer;
  /** f32 [rows][hiddenStride]: the residual stream of the own block; after the program, the last layer's output. */
  readonly x: Buffer;
  /** x while a program is recorded. */
  readonly residual: Residual;
  /** f32 [rows][hiddenStride], where a norm isn't fused into the projection that follows. */
  readonly normed: Buffer | undefined;
  readonly adapters?: RowAdapters | undefined;
}

/** How rows find their low-rank adapters. */
export interface RowAdapters {
  /** All that there are while a program is recorded, which it is anew when they change; undefined where there are none. */
  readonly loaded: () => Adapters | undefined;
  /** vec2<u32> [rows]: (position, slot), of the rows that the rank runs. */
  readonly rowInfo: Tensor;
  readonly scratch: Scratch;
}

/** The same as the layers of a stage see them. */
export interface StageRows extends RowBuffers {
  /** The most that all ranks together may have in a step, where every rank runs rows of its own; otherwise as `rows`. */
  readonly allRows: number;
  /** `rowInfo` of the rows that the rank attends for. */
  readonly attendedInfo: Buffer;
  /** For what stages may share. */
  readonly scratch: Scratch;
}

/** Whether adapters of rows add to the products of any of the matrices, which are computed apart from others then. */
export const isAdapted = (
  { adapters }: Pick<RowBuffers, 'adapters'>,
  ...matrices: readonly (Pick<Matrix, 'name'> | undefined)[]
): boolean => {
  const loaded = adapters?.loaded();
  return loaded !== undefined && matrices.some((matrix) => matrix && loaded.addsTo(matrix));
};

/** Where rows are normalised whose norm isn't fused. */
export const normedOf = ({ normed }: Pick<RowBuffers, 'normed'>): Buffer => known(normed, 'buffer of normalised rows');

/** f32 [rows][stride]: what a half of a layer gives where it is normalised before it is added. */
export const halfOf = ({ role, rows, scratch }: StageRows, width: number, stride: number): Buffer =>
  scratch.createBuffer(paddedName(`${role} half`, width), rows * stride * 4);

/** The block of the rows that this rank runs. */
export const ownBlock = (world: World, role: Role): number =>
  world.all.rowPieces[role] === 1 ? 0 : nth(world.topology.runs[role], 0);

/** A block of a buffer [blocks][rows] of `bytes` each; default: that of the rows that this rank runs. */
export function blockOf(
  world: World,
  { role, rows }: Pick<RowBuffers, 'role' | 'rows'>,
  buffer: Buffer,
  bytes: number,
  block = ownBlock(world, role),
): Tensor {
  const size = rows * bytes;
  return world.all.rowPieces[role] === 1 ? buffer : { buffer, offset: block * size, size };
}

export const ownRowInfo = (world: World, buffers: Pick<RowBuffers, 'role' | 'rowInfo' | 'rows'>): Tensor =>
  blockOf(world, buffers, buffers.rowInfo, 8);

/** Whether a rank runs rows of a stage, and doesn't only keep caches there. */
export const runsRows = (stage: StageTopology | undefined): boolean =>
  stage !== undefined && stage.holder === stage.share;

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

/** Where a rank's `attendedInfo` is: its rows' own, or a buffer of its place's rows where those aren't the first that it runs. */
export const attendedRowInfo = (
  { holder, share, apart }: StageTopology,
  { role, rows, rowInfo }: Pick<RowBuffers, 'role' | 'rowInfo' | 'rows'>,
  scratch: Scratch,
): Buffer => (holder === share && !apart ? rowInfo : scratch.createBuffer(`${role} own row_info`, rows * 8));

/** Before a stage's first layer, where a rank has such a buffer: which of the step's rows its place's are. */
export function recordAttendedRows(
  recorder: RankRecorder,
  { place }: StageTopology,
  { rowInfo, attendedInfo }: Pick<StageRows, 'rowInfo' | 'attendedInfo'>,
): void {
  if (attendedInfo === rowInfo) return;
  recorder.exchange({
    label: 'own rows',
    copy: (encoder, { rows }) => {
      const first = firstRowOf(place, [...rows.keys()], rows);
      const count = rows[place] ?? 0;
      if (count > 0) encoder.copyBufferToBuffer(rowInfo.gpu, first * 8, attendedInfo.gpu, 0, count * 8);
    },
  });
}
