import {
  type BlockRows,
  emptyTiles,
  type MatrixType,
  packedLayout,
  type PackedTiles,
  packRows,
} from '../../../shaders/linear/pack.js';
import { keepsBlocks, packBlocks } from '../../../shaders/linear/pack_blocks.js';
import { known, limitError } from '../../base/errors.js';
import { ceilDiv, grouped } from '../../base/math.js';
import type { Buffer, Device, Tensor } from '../../gpu/index.js';
import { storedBlocks, type TensorReader } from '../../loader/index.js';
import { spanLength } from '../shape.js';
import { type MatrixSpec, packedColumns, paddedRows, type Part, specRows } from './weight_map.js';

/** Rows of a packed weight come in tiles of 32 (shaders/linear/pack.ts). */
const TILE = 32;

/** Output rows [firstRow, firstRow + rows) of a matrix, in buffers that fit one binding. */
export interface MatrixShard {
  readonly firstRow: number;
  readonly rows: number;
  readonly type: MatrixType;
  readonly weight: Buffer;
  readonly scale: Buffer | undefined;
  /** 16-byte units of `weight` before its own, with their scales before its own: those of the matrix that it lies behind. */
  readonly firstUnit: number;
}

/** What a kernel binds that reads this shard alone. */
export function shardTensors({ type, weight, scale, firstUnit }: MatrixShard) {
  const from = (buffer: Buffer, offset: number): Tensor =>
    offset === 0 ? buffer : { buffer, offset, size: buffer.size - offset };
  return { weight: from(weight, firstUnit * 16), scale: scale && from(scale, scaleOffset(type, firstUnit)) };
}

/** Bytes of the scales of so many units, whole tiles. */
function scaleOffset(type: MatrixType, units: number): number {
  const { tileWeightBytes, tileScaleBytes } = packedLayout(type, 1, 1);
  return (units * 16 * tileScaleBytes) / tileWeightBytes;
}

/** A packed weight matrix [outFeatures, inFeatures] on a device. */
export interface Matrix {
  readonly name: string;
  /** Of its first shard: others may have another one (`typedRuns`). */
  readonly type: MatrixType;
  readonly outFeatures: number;
  /** Elements of a row of activations. A slice of a split contraction packs its columns widened to whole blocks. */
  readonly inFeatures: number;
  readonly shards: readonly MatrixShard[];
}

const layoutOf = (spec: MatrixSpec, type: MatrixType) =>
  packedLayout(type, specRows(spec), spanLength(packedColumns(spec, type)));

/** Where the second of two matrices begins that lie in the same buffers: its first 16-byte unit. Undefined where they don't. */
export function besideAt(first: Matrix | undefined, second: Matrix | undefined): number | undefined {
  const [one, ...others] = first?.shards ?? [];
  const [beside] = second?.shards ?? [];
  return one && others.length === 0 && one.weight === beside?.weight ? beside.firstUnit : undefined;
}

/**
 * Two matrices of one type side by side in the same buffers, so that one dispatch reads both. Undefined where a binding has no room for
 * both, or can't begin where the second does.
 */
export function allocateBeside(
  device: Device,
  [spec, beside]: readonly [MatrixSpec, MatrixSpec],
  type: MatrixType,
): readonly [Matrix, Matrix] | undefined {
  const alignment = device.traits.limits.minStorageBufferOffsetAlignment;
  const [first, second] = [layoutOf(spec, type), layoutOf(beside, type)];
  const { weightBytes, scaleBytes } = first;
  if (weightBytes + second.weightBytes > device.bindingLimit) return undefined;
  if (weightBytes % alignment > 0 || scaleBytes % alignment > 0) return undefined;
  const buffer = (name: string, bytes: number): Buffer | undefined =>
    bytes > 0 ? device.createBuffer(name, bytes) : undefined;
  const weight = known(buffer(spec.name, weightBytes + second.weightBytes), 'buffer of weights');
  const scale = buffer(`${spec.name} scale`, scaleBytes + second.scaleBytes);
  const matrixOf = (of: MatrixSpec, firstUnit: number): Matrix =>
    matrix(of, type, [{ firstRow: 0, rows: specRows(of), type, weight, scale, firstUnit }]);
  return [matrixOf(spec, 0), matrixOf(beside, weightBytes / 16)];
}

/** Its features are its segments' own elements, not the widened columns. */
function matrix(spec: MatrixSpec, type: MatrixType, shards: readonly MatrixShard[]): Matrix {
  const { start, end } = spec.segments ?? { start: 0, end: spec.inFeatures };
  return { name: spec.name, type, outFeatures: specRows(spec), inFeatures: end - start, shards };
}

/**
 * Allocates the buffers of a matrix, in as many shards as one binding's limit asks for. Contents are zero until `fillMatrix`.
 * @throws SplitkvError `limit` when not even one granule fits, or when `whole` is asked for and the matrix doesn't fit one binding.
 */
export function allocateMatrix(device: Device, spec: MatrixSpec, type: MatrixType): Matrix {
  const { whole = false, granule = 2 } = spec;
  const outFeatures = specRows(spec);
  const limit = device.bindingLimit;
  const { tileWeightBytes, tileScaleBytes, tiles } = layoutOf(spec, type);
  const tilesThatFit = Math.floor(limit / Math.max(tileWeightBytes, tileScaleBytes) / granule) * granule;
  const tilesPerShard = Math.min(tiles, tilesThatFit);
  if (tilesPerShard === 0 || (whole && tilesPerShard < tiles)) {
    throw limitError(
      `${spec.name}: ${grouped(tiles * tileWeightBytes)} bytes of ${type} weights exceed this adapter's ` +
        `maxStorageBufferBindingSize of ${grouped(limit)} (${device.name}); use --weights q8 or q4, or another adapter`,
    );
  }
  const shards: MatrixShard[] = [];
  for (let tile = 0; tile < tiles; tile += tilesPerShard) {
    const count = Math.min(tilesPerShard, tiles - tile);
    const label = tilesPerShard < tiles ? `${spec.name} shard ${shards.length}` : spec.name;
    shards.push({
      firstRow: tile * TILE,
      rows: Math.min(count * TILE, outFeatures - tile * TILE),
      type,
      weight: device.createBuffer(label, count * tileWeightBytes),
      scale: tileScaleBytes > 0 ? device.createBuffer(`${label} scale`, count * tileScaleBytes) : undefined,
      firstUnit: 0,
    });
  }
  return matrix(spec, type, shards);
}

export interface FillOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onBytes: (bytes: number, tensor: string) => void;
  /** Called after each piece with the bytes written; lets the queue catch up. */
  readonly flush: (bytes: number) => Promise<void>;
}

/** Rows of a matrix, one behind the other: f32, or blocks that its type keeps as they are. */
type Rows = Float32Array | BlockRows;

/** Packs rows of a matrix and writes them, one behind the other. */
export class MatrixWriter {
  #carry: PackedTiles;
  #carried = 0;
  #tile = 0;

  /** `width`: columns that are packed. */
  constructor(
    readonly device: Device,
    readonly matrix: Matrix,
    readonly width: number,
    readonly flush: FillOptions['flush'],
  ) {
    // Tensors needn't end on a tile: the rows of an unfinished tile wait here for the next tensor's.
    this.#carry = emptyTiles(matrix.type, TILE, width);
  }

  async append(data: Rows, rows: number): Promise<void> {
    const { matrix, width } = this;
    let used = 0;
    if (this.#carried > 0) {
      used = Math.min(rows, TILE - this.#carried);
      this.#pack(this.#carry, this.#carried, data, 0, used);
      this.#carried += used;
      if (this.#carried < TILE) return;
      await this.end();
    }
    const whole = Math.floor((rows - used) / TILE) * TILE;
    if (whole > 0) {
      const tiles = emptyTiles(matrix.type, whole, width);
      this.#pack(tiles, 0, data, used, whole);
      await this.#write(tiles, whole);
    }
    used += whole;
    this.#pack(this.#carry, 0, data, used, rows - used);
    this.#carried = rows - used;
  }

  async end(): Promise<void> {
    if (this.#carried === 0) return;
    await this.#write(this.#carry, this.#carried);
    this.#carry = emptyTiles(this.matrix.type, TILE, this.width);
    this.#carried = 0;
  }

  /** Rows [first, first + count) of the data to rows from `at` on. */
  #pack(tiles: PackedTiles, at: number, data: Rows, first: number, count: number): void {
    const { matrix, width } = this;
    if (data instanceof Float32Array) {
      packRows(matrix.type, tiles, at, data.subarray(first * width), count, width);
      return;
    }
    const bytes = data.bytes.subarray(first * data.rowBytes);
    packBlocks(matrix.type, tiles, at, { ...data, bytes }, count, width);
  }

  async #write(packed: PackedTiles, count: number): Promise<void> {
    const { device, matrix, width } = this;
    const { tileWeightBytes, tileScaleBytes } = packedLayout(matrix.type, matrix.outFeatures, width);
    const tiles = ceilDiv(count, TILE);
    for (let done = 0; done < tiles;) {
      const row = (this.#tile + done) * TILE;
      const shard = known(
        matrix.shards.findLast((candidate) => candidate.firstRow <= row),
        'shard of this row',
      );
      const first = (row - shard.firstRow) / TILE;
      const fit = Math.min(tiles - done, ceilDiv(shard.rows, TILE) - first);
      const slice = (array: Uint32Array, tileBytes: number): Uint32Array =>
        array.subarray((done * tileBytes) / 4, ((done + fit) * tileBytes) / 4);
      const before = shard.firstUnit * 16;
      device.write(shard.weight, before + first * tileWeightBytes, slice(packed.weight, tileWeightBytes));
      if (shard.scale && packed.scale) {
        const at = scaleOffset(matrix.type, shard.firstUnit) + first * tileScaleBytes;
        device.write(shard.scale, at, slice(packed.scale, tileScaleBytes));
      }
      done += fit;
    }
    this.#tile += tiles;
    await this.flush(packed.weight.byteLength);
  }
}

/** Streams a matrix from the checkpoint: read a piece, pack it, write it; host memory stays at a few pieces. */
export async function fillMatrix(
  device: Device,
  matrix: Matrix,
  spec: MatrixSpec,
  reader: TensorReader,
  options: FillOptions,
): Promise<void> {
  const columns = packedColumns(spec, matrix.type);
  const width = spanLength(columns);
  const writer = new MatrixWriter(device, matrix, width, options.flush);
  const zeros = (rows: number): Promise<void> => writer.append(new Float32Array(rows * width), rows);
  for (const part of spec.parts) {
    const { tensor, firstRow, rows, order } = part;
    if (tensor === undefined) {
      await zeros(paddedRows(part));
      continue;
    }
    const wanted = {
      rowStart: firstRow,
      rowEnd: firstRow + rows,
      columns,
      tileRows: order?.length ?? TILE,
      signal: options.signal,
      onBytes: (bytes: number) => options.onBytes(bytes, tensor),
    };
    const ordered = <T extends Float32Array | Uint8Array>(data: T, count: number, size: number): T =>
      order ? reorderRows(data, order, count, size) : data;
    const stored = storedBlocks(reader.entry(tensor));
    if (stored && keepsBlocks(matrix.type, stored)) {
      for await (const { data, rows: count, blocks, factor } of reader.streamBlocks(tensor, wanted)) {
        const { type, rowBytes } = blocks;
        await writer.append({ blocks: type, bytes: ordered(data, count, rowBytes), rowBytes, factor }, count);
      }
    } else {
      for await (const { data, rows: count } of reader.streamRows(tensor, wanted))
        await writer.append(ordered(data, count, width), count);
    }
    if (paddedRows(part) > rows) await zeros(paddedRows(part) - rows);
  }
  await writer.end();
}

/** Rows of each group of `order.length` rows in that order. */
export function reorderRows<T extends Float32Array | Uint8Array>(
  data: T,
  order: NonNullable<Part['order']>,
  rows: number,
  width: number,
): T {
  const out = data.slice(0, rows * width) as T;
  for (let row = 0; row < rows; row++) {
    const group = row - (row % order.length);
    const from = (group + order[row % order.length]!) * width;
    out.set(data.subarray(from, from + width), row * width);
  }
  return out;
}
