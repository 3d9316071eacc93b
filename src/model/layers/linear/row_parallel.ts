import type { Buffer } from '../../../gpu/index.js';
import {
  gatheredSegmentRoutes,
  type Route,
  segmentPeers,
  segmentRoutes,
  type StageTopology,
} from '../../../placement/index.js';
import type { HeldSegments } from '../../shape.js';
import type { Matrix } from '../../weights/matrix.js';
import type { AlikeLayers, StageContext } from '../layer.js';
import type { GatheredRows } from '../mlp/gathered_rows.js';
import type { Norm } from '../norm.js';
import { halfOf, type RowBuffers, type StageRows } from '../rows.js';
import type { RankRecorder, RegionsOf } from '../world.js';
import { type Projection, recordLinear } from './linear.js';
import { allocateParts, headRegions, type Parts, partsFrom, recordReduce, segmentRegions } from './parts.js';

export interface RowParallelShape {
  /** Names its buffers. */
  readonly name: string;
  /** What ranks cut its contraction by. */
  readonly cut: 'heads' | 'mlp';
  /** Segments of the whole contraction. */
  readonly segments: number;
  /** Elements of the sum; default: hiddenSize. */
  readonly width?: number;
  /** True: the segments lie side by side also where the rank has all of them, for whoever sums them otherwise. */
  readonly apart?: boolean;
  /** Where places run rows of their own and share out the segments: the rows of all of them. */
  readonly gathered?: GatheredRows | undefined;
}

/** A run of the contraction that this rank holds, and its activations. */
export interface RowParallelInput extends Pick<Projection, 'x' | 'xStride' | 'xOffset' | 'merges'> {
  readonly matrix: Matrix;
  readonly segments: HeldSegments;
}

/** Other ranks hold other segments of a stage's contractions, of the same rows. */
const isCut = (stage: StageTopology, cut: RowParallelShape['cut']): boolean =>
  segmentPeers(stage, cut).length > 1 && stage.holder === stage.share;

/** Elements that a row takes of a sum's segments. */
const partsRow = ({ hiddenStride }: StageContext, segments: number): number => segments * (hiddenStride + 32);

/**
 * The last projection of a layer's half, whose contraction ranks may share out, and its residual. Each rank sums its own segments, every
 * rank that runs a row gets all of them and adds them up in order: reduce by all-gather, with the bits of one rank.
 *
 * Where places run rows of their own and share out the segments, each rank sums its segments of all rows, and they go home (`gathered`).
 */
export class RowParallelLinear {
  readonly #parts: Parts | undefined;
  /** Where places run rows of their own: what this rank sums. */
  readonly #gathered: Parts | undefined;

  constructor(
    readonly stage: StageContext,
    readonly rows: StageRows,
    readonly shape: RowParallelShape,
  ) {
    const { config, topology } = stage;
    const { role, scratch } = rows;
    const { name, cut, segments, gathered, apart = false, width = config.hiddenSize } = shape;
    if (!gathered && !apart && !isCut(topology, cut)) return;
    this.#parts = allocateParts(scratch, role, `${name} parts`, segments, rows.rows, width);
    if (!gathered) return;
    const [first = 0] = topology.share.mlp;
    // Segments that are empty stay zero, so other segments don't go to their place.
    const own = `${name} parts from ${first}`;
    this.#gathered = allocateParts(scratch, role, own, topology.share.mlp.length, gathered.rows, width, first);
  }

  /** All segments of this rank's rows; undefined where it holds the whole contraction, and no adapter adds to its segments. */
  get parts(): Parts | undefined {
    const { rows, shape, stage } = this;
    if (this.#parts || !rows.adapters?.loaded()?.splits(shape.cut)) return this.#parts;
    const { name, segments, width = stage.config.hiddenSize } = shape;
    return allocateParts(rows.scratch, rows.role, `${name} parts`, segments, rows.rows, width);
  }

  get #own(): Parts | undefined {
    return this.#gathered ?? this.parts;
  }

  /** The output's of attention, or of what stands in its place. */
  static ofHeads(
    { stage, suffix }: AlikeLayers<unknown, unknown>,
    rows: StageRows,
    segments: number,
  ): RowParallelLinear {
    return new RowParallelLinear(stage, rows, { name: `o${suffix}`, cut: 'heads', segments });
  }

  /** Elements that a prompt row takes of the widest buffer. */
  static widestRow(
    stage: StageContext,
    { cut, segments }: Pick<RowParallelShape, 'cut' | 'segments'>,
    gatheredPlaces = 0,
  ): number {
    const { topology } = stage;
    if (gatheredPlaces > 0) return partsRow(stage, Math.max(segments, gatheredPlaces * topology.share.mlp.length));
    return isCut(topology, cut) ? partsRow(stage, segments) : 0;
  }

  /** The whole of attention's output. */
  record(recorder: RankRecorder, inputs: readonly RowParallelInput[], bias: Buffer | undefined, behind?: Norm): void {
    for (const input of inputs) this.recordSegments(recorder, this.rows, input, bias, behind);
    this.recordExchange(recorder, 'o_proj');
    this.recordSum(recorder, bias, behind);
  }

  /** This rank's segments of `buffers`' rows; added to x, or normalised first, where it holds the whole contraction. */
  recordSegments(
    recorder: RankRecorder,
    buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed' | 'adapters'>,
    { matrix, ...input }: RowParallelInput,
    bias: Buffer | undefined,
    behind?: Norm,
  ): void {
    const own = this.#own;
    if (own) {
      recordLinear(recorder, buffers, matrix, {
        ...input,
        out: partsFrom(own, input.segments.first),
        outStride: own.stride,
        output: 'segments',
      });
      return;
    }
    recordLinear(recorder, buffers, matrix, { ...input, bias, ...this.#sumTo(recorder, behind) });
    this.#addNormed(recorder, behind);
  }

  /** Where the sum goes: x, or what is normalised before it is added to x. */
  #sum(behind: Norm | undefined): Buffer {
    return behind ? halfOf(this.rows, this.stage.config.hiddenSize, this.stage.hiddenStride) : this.rows.x;
  }

  #sumTo(recorder: RankRecorder, behind: Norm | undefined) {
    this.rows.residual.settle(recorder);
    const { hiddenStride: outStride, config } = this.stage;
    const epilogue = behind ? ('none' as const) : ('residual' as const);
    return { out: this.#sum(behind), outStride, outScale: config.residualScale, epilogue };
  }

  #addNormed(recorder: RankRecorder, behind: Norm | undefined): void {
    if (behind) this.rows.residual.add(recorder, this.#sum(behind), behind);
  }

  /** Brings the other ranks' segments here. */
  recordExchange(recorder: RankRecorder, label: string): void {
    const { exchange } = this;
    if (exchange) this.stage.world.exchangeRoutes(recorder, label, exchange.routes, exchange.regions);
  }

  /** What brings the other ranks' segments here; undefined where there are none. */
  get exchange(): { readonly routes: readonly Route[]; readonly regions: RegionsOf } | undefined {
    const parts = this.parts;
    const own = this.#own;
    const { cut, gathered } = this.shape;
    if (!parts || !own || !(gathered || isCut(this.stage.topology, cut))) return undefined;
    const { world, topology, cache } = this.stage;
    const { role } = this.rows;
    const { index } = topology;
    if (gathered) {
      return { routes: gatheredSegmentRoutes(world.all, index), regions: gathered.segmentsHome(own, parts) };
    }
    const owners = cut === 'heads' ? cache.copyOwners : undefined;
    return {
      routes: segmentRoutes(world.all, index, role, cut),
      regions: owners ? headRegions(index, parts, owners) : segmentRegions(world, role, parts),
    };
  }

  /** All segments, in order, onto x, or normalised first; nothing where they are there already. */
  recordSum(recorder: RankRecorder, bias: Buffer | undefined, behind?: Norm): void {
    if (!this.parts) return;
    recordReduce(recorder, this.parts, { width: this.stage.config.hiddenSize, bias, ...this.#sumTo(recorder, behind) });
    this.#addNormed(recorder, behind);
  }
}
