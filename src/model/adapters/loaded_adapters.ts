import type { LinearGroupedProblem } from '../../../shaders/linear/linear_grouped/index.js';
import { SEGMENT_SHIFT } from '../../base/kv_units.js';
import { lowRank, type LowRankProblem, NO_PLACE } from '../../../shaders/linear/low_rank/index.js';
import { known, limitError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import { alignUp, formatBytes } from '../../base/math.js';
import type { Buffer, Device, Tensor } from '../../gpu/index.js';
import type { Projection } from '../layers/linear/linear.js';
import { recordNorm } from '../layers/norm.js';
import { ONE_SEGMENT } from '../layers/roles.js';
import { type RowAdapters, type RowBuffers, Scratch } from '../layers/rows.js';
import type { RankRecorder } from '../layers/world.js';
import type { Matrix } from '../weights/matrix.js';
import type { MatrixSpec } from '../weights/weight_map.js';
import { EMBEDDED, type LowRankPair, packPairs } from './targets.js';

/** What tells rows their adapters, of the whole rank. */
export interface SlotsOfRows {
  /** u32: by slot its adapter's. */
  readonly places: Buffer;
  /** vec2<u32>: the slot, twice, of each row of the head in programs that aren't of all slots. */
  readonly headInfo: Buffer;
}

/** Rows whose adapters are recorded. */
export type AdaptedRows = Pick<RowBuffers, 'role' | 'rows' | 'normed'> & { readonly adapters: RowAdapters };

/** Of `linear_grouped`. `sharedUp`: of a pair b a all groups have the same b, and an a each; or the same a, and a b each. */
export interface Grouped extends Pick<
  LinearGroupedProblem,
  'groups' | 'inFeatures' | 'outFeatures' | 'xStride' | 'xGroupStride' | 'outStride' | 'outGroupStride'
> {
  readonly x: Buffer;
  readonly out: Tensor;
  readonly sharedUp: boolean;
}

/** Rows of tokens, as they are embedded without adapters: f32 [rows][outStride]. */
interface Embedded extends Pick<LowRankProblem, 'outFeatures' | 'outStride'> {
  readonly tokens: Tensor;
  readonly vocabSize: number;
  readonly out: Buffer;
}

/** Of the rows of an expert, with their padding. */
interface OfExperts extends Required<Pick<LowRankProblem, 'xStride' | 'outFeatures' | 'experts'>> {
  readonly x: Buffer;
  readonly inFeatures: number;
  readonly ids: Buffer;
  /** [experts here][outFeatures] */
  readonly bias: Buffer | undefined;
}

interface AdaptedMatrix {
  readonly factors: Buffer;
  readonly table: Buffer;
  readonly width: number;
}

/**
 * Adapters on a rank, beside its slices of the matrices that they change. A matrix has those of all in one buffer, so that rows of
 * different adapters, or of none, run together. What rows without one get is what they get without any, to the bit.
 *
 * Column-parallel: each rank has all of A and its rows of B, and the matrix adds B A x as a row's bias. Row-parallel: each has A's
 * columns of its segments and all of B, and a segment's sum gets B A x of the segment, before they are added in order. Embedding: each
 * that runs rows of the first layer has all of both, and adds to a row once it is embedded.
 */
export class LoadedAdapters {
  readonly #matrices: ReadonlyMap<string, AdaptedMatrix>;
  /** Of rows of the head. */
  readonly #headBuffers: Buffer[] = [];

  private constructor(
    readonly device: Device,
    matrices: readonly (readonly [string, AdaptedMatrix])[],
    readonly slots: SlotsOfRows,
  ) {
    this.#matrices = new Map(matrices);
  }

  /**
   * @param adapters by place
   * @throws SplitkvError `limit`
   */
  static async load(
    device: Device,
    targets: readonly MatrixSpec[],
    adapters: ReadonlyMap<number, readonly LowRankPair[]>,
    slots: SlotsOfRows,
  ): Promise<LoadedAdapters> {
    const byTensor = new Map(
      [...adapters].map(([place, pairs]) => [place, new Map(pairs.map((pair) => [pair.tensor, pair]))]),
    );
    const limit = device.traits.limits.maxStorageBufferBindingSize;
    const made: Buffer[] = [];
    const buffer = (name: string, data: ArrayBufferView): Buffer => {
      if (data.byteLength > limit)
        throw limitError(
          `adapters: those of ${name} take ${formatBytes(data.byteLength)}, more than this adapter binds (${formatBytes(limit)})`,
        );
      const own = device.createBuffer(name, data.byteLength);
      made.push(own);
      device.write(own, 0, data);
      return own;
    };
    try {
      return await device.checked('loading adapters', () => {
        const matrices = targets
          .flatMap((spec) => packPairs(spec, byTensor))
          .map(({ name, factors, table, width }): [string, AdaptedMatrix] => {
            const own = { factors: buffer(`${name} adapters`, factors), table: buffer(`${name} table`, table) };
            return [name, { width, ...own }];
          });
        return new LoadedAdapters(device, matrices, slots);
      });
    } catch (error) {
      for (const each of made) each.dispose();
      throw error;
    }
  }

  get bytes(): number {
    return sum([...this.#matrices.values()].map(({ factors, table }) => factors.size + table.size));
  }

  /** Whether any adds to the products of a matrix. */
  addsTo({ name }: Pick<Matrix, 'name'>): boolean {
    return this.#matrices.has(name);
  }

  /** How rows of the head find theirs: their slots are those from `firstSlot` on; undefined: `headInfo` says them. */
  ofHead(rows: number, firstSlot: number | undefined): RowAdapters {
    const createBuffer = (name: string, size: number): Buffer => {
      const made = this.device.createBuffer(name, size);
      this.#headBuffers.push(made);
      return made;
    };
    let rowInfo = this.slots.headInfo;
    if (firstSlot !== undefined) {
      rowInfo = createBuffer('head row_info', rows * 8);
      const slots = Uint32Array.from({ length: 2 * rows }, (_, i) => firstSlot + (i >> 1));
      this.device.write(rowInfo, 0, slots);
    }
    return { loaded: () => this, rowInfo, scratch: new Scratch({ createBuffer }) };
  }

  /** Records a projection by a matrix (`plain`) with what its rows' adapters add to it. */
  record(
    recorder: RankRecorder,
    buffers: AdaptedRows,
    matrix: Matrix,
    io: Projection,
    plain: (io: Projection) => void,
  ): void {
    const own = this.#matrices.get(matrix.name);
    if (!own) return plain(io);
    const { role, rows, adapters } = buffers;
    const apart = io.output === 'segments';
    const of = apart ? io : settled(recorder, buffers, matrix, io);
    const { outFeatures } = matrix;
    const whole = { ...ONE_SEGMENT, first: 0, count: 1, modelInFeatures: matrix.inFeatures };
    const { x, xStride, xOffset = 0, outStride, segments = whole } = of;
    const shared = { segments, modelInFeatures: segments.modelInFeatures };
    const up = this.#recordDown(recorder, buffers, own, shared, { xStride, xOffset }, { x }, segments.count);
    if (apart) {
      plain(of);
      up({ part: 'add', outFeatures, outStride }, { out: of.out });
      return;
    }
    const biasStride = alignUp(outFeatures, 32);
    const bias = adapters.scratch.createBuffer(`${role} adapters bias`, rows * biasStride * 4);
    const has = of.bias !== undefined;
    up({ part: 'bias', outFeatures, outStride: biasStride, bias: has }, { bias: of.bias, out: bias });
    plain({ ...of, bias, biasStride });
  }

  /** Records x by A, so many pieces of each row. Records that by B when it is called. */
  #recordDown(
    recorder: RankRecorder,
    { role, rows, adapters }: AdaptedRows,
    { width, factors, table }: AdaptedMatrix,
    shared: Pick<LowRankProblem, 'segments' | 'modelInFeatures' | 'experts'>,
    of: Pick<LowRankProblem, 'xStride' | 'xOffset' | 'groups' | 'lookup'>,
    { x, ids }: { readonly x?: Buffer; readonly ids?: Tensor },
    pieces: number,
  ) {
    const down = adapters.scratch.createBuffer(`${role} adapters down`, pieces * rows * width * 4);
    const tensors = { factors, table, row_info: adapters.rowInfo, places: this.slots.places, ids };
    const first = { ...shared, ...of, rows, part: 'down', outFeatures: width, outStride: width } as const;
    recorder.dispatch(lowRank, first, { ...tensors, x, out: down });
    return (
      up: Pick<LowRankProblem, 'part' | 'outFeatures' | 'outStride' | 'bias' | 'groups'>,
      to: { readonly bias?: Buffer | undefined; readonly out: Tensor },
    ): void => recorder.dispatch(lowRank, { ...shared, ...up, rows, xStride: width }, { ...tensors, ...to, x: down });
  }

  /** Records what rows' adapters add to the products of a matrix of a group each. */
  recordGrouped(recorder: RankRecorder, buffers: AdaptedRows, { name }: Matrix, io: Grouped): void {
    const own = this.#matrices.get(name);
    if (!own) return;
    const { x, xStride, groups: count, inFeatures: modelInFeatures, outFeatures, outStride, out, sharedUp } = io;
    const groups = { count, stride: io.xGroupStride, shared: !sharedUp };
    const shared = { segments: ONE_SEGMENT, modelInFeatures };
    const up = this.#recordDown(recorder, buffers, own, shared, { xStride, groups }, { x }, count);
    const ofOut = { count, stride: io.outGroupStride, shared: sharedUp };
    up({ part: 'add', outFeatures, outStride, groups: ofOut }, { out });
  }

  /** What rows' adapters add to the outputs of their experts, and the biases of these: f32 [rows][topK][outFeatures]. */
  biasOfExperts(recorder: RankRecorder, buffers: AdaptedRows, name: string, io: OfExperts): Buffer {
    const own = known(this.#matrices.get(name), 'adapted experts');
    const { x, xStride, inFeatures: modelInFeatures, outFeatures, experts, ids, bias } = io;
    const { role, rows, adapters } = buffers;
    const out = adapters.scratch.createBuffer(`${role} expert biases`, rows * experts.topK * outFeatures * 4);
    const shared = { segments: ONE_SEGMENT, modelInFeatures, experts };
    const up = this.#recordDown(recorder, buffers, own, shared, { xStride }, { x, ids }, experts.topK);
    up({ part: 'bias', outFeatures, outStride: outFeatures, bias: bias !== undefined }, { bias, out });
    return out;
  }

  /** Records what rows' adapters add to what their tokens are embedded as. */
  recordEmbedded(recorder: RankRecorder, buffers: AdaptedRows, embedded: Embedded): void {
    const own = this.#matrices.get(EMBEDDED);
    if (!own) return;
    const { tokens: ids, vocabSize: modelInFeatures, out, ...shape } = embedded;
    const of = { xStride: 1, lookup: { mask: (1 << SEGMENT_SHIFT) - 1 } };
    const up = this.#recordDown(recorder, buffers, own, { segments: ONE_SEGMENT, modelInFeatures }, of, { ids }, 1);
    up({ part: 'add', ...shape }, { out });
  }

  dispose(): void {
    for (const buffer of this.#headBuffers) buffer.dispose();
    for (const { factors, table } of this.#matrices.values()) for (const buffer of [factors, table]) buffer.dispose();
  }
}

/** What a program records in place of matrices alone. */
export type Adapters = Pick<LoadedAdapters, 'addsTo' | 'record'> &
  Partial<Pick<LoadedAdapters, 'ofHead' | 'recordGrouped' | 'recordEmbedded' | 'biasOfExperts' | 'dispose'>>;

/** The projection of what is added and normalised before it: others than the matrix read that. */
export function settled(
  recorder: RankRecorder,
  { role, rows, normed, adapters }: AdaptedRows,
  { inFeatures: width }: Pick<Matrix, 'inFeatures'>,
  { adds, norm, ...io }: Projection,
): Projection {
  const { xStride: stride } = io;
  const shape = { rows, width, stride };
  if (adds) recordNorm(recorder, adds.norm, shape, adds.sum, adds.to, io.x);
  const x = adds?.to ?? io.x;
  if (!norm) return { ...io, x };
  const out = normed ?? adapters.scratch.createBuffer(`${role} adapted x`, rows * stride * 4);
  recordNorm(recorder, norm, shape, x, out);
  return { ...io, x: out };
}

export function noPlaces(device: Device, slots: number): Buffer {
  const places = new Uint32Array(slots).fill(NO_PLACE);
  const buffer = device.createBuffer('places of adapters', places.byteLength);
  device.write(buffer, 0, places);
  return buffer;
}
