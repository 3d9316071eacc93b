import { known } from '../../../base/errors.js';
import { nth } from '../../../base/lists.js';
import type { Buffer } from '../../../gpu/index.js';
import {
  gatheredSegmentRoutes,
  type Route,
  segmentPeers,
  segmentRoutes,
  type SegmentSum,
  stageSums,
  type StageSums,
  type StageTopology,
  sumsApart,
} from '../../../placement/index.js';
import type { HeldSegments } from '../../shape.js';
import type { Matrix } from '../../weights/matrix.js';
import type { AlikeLayers, StageContext } from '../layer.js';
import type { GatheredRows } from '../mlp/gathered_rows.js';
import type { Norm } from '../norm.js';
import { halfOf, isAdapted, type RowBuffers, type StageRows } from '../rows.js';
import type { RankRecorder, RegionsOf } from '../world.js';
import { type Projection, recordLinear } from './linear.js';
import { allocateParts, headRegions, type Parts, partsFrom, recordReduce, segmentRegions, sumNumber } from './parts.js';

export interface RowParallelShape {
  /** Names its buffers. */
  readonly name: string;
  /** What ranks cut its contraction by. */
  readonly cut: 'heads' | 'mlp';
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

const sumsOf = ({ world, topology }: StageContext, cut: RowParallelShape['cut'], apart = false): StageSums =>
  stageSums(topology, cut, apart || sumsApart(world.plan, cut));

/**
 * The last projection of a layer's half, whose contraction ranks may share out, and its residual. Each rank adds up its own segments as
 * far as they are subtrees, every rank that runs a row gets all sums and adds them up: reduce by all-gather, with the bits of one rank.
 *
 * Where places run rows of their own and share out the segments, each rank sums its segments of all rows, and they go home (`gathered`).
 */
export class RowParallelLinear {
  /** All sums of this rank's rows; undefined where it holds the whole contraction. */
  readonly parts: Parts | undefined;
  /** Where places run rows of their own: what this rank sums. */
  readonly #gathered: Parts | undefined;
  readonly #sums: StageSums;

  constructor(
    readonly stage: StageContext,
    readonly rows: StageRows,
    readonly shape: RowParallelShape,
  ) {
    const { config, topology } = stage;
    const { role, scratch } = rows;
    const { name, cut, gathered, apart = false, width = config.hiddenSize } = shape;
    this.#sums = sumsOf(stage, cut, apart);
    if (!gathered && !apart && !isCut(topology, cut)) return;
    // Sums that are empty stay zero, so others don't go to their place.
    const place = (sums: readonly SegmentSum[]): string => sums.map((each) => each.join('-')).join(' ');
    const { all } = this.#sums;
    this.parts = {
      ...allocateParts(scratch, role, `${name} parts ${place(all)}`, all.length, rows.rows, width),
      sums: all,
    };
    if (!gathered) return;
    const own = this.#sums.of(topology.share);
    const first = own[0] ? sumNumber(all, own[0]) : 0;
    const ownName = `${name} own parts ${place(own)}`;
    this.#gathered = allocateParts(scratch, role, ownName, own.length, gathered.rows, width, first);
  }

  /** The output's of attention, or of what stands in its place. */
  static ofHeads({ stage, suffix }: AlikeLayers<unknown, unknown>, rows: StageRows): RowParallelLinear {
    return new RowParallelLinear(stage, rows, { name: `o${suffix}`, cut: 'heads' });
  }

  /** Sums of squares for a norm over all heads, which are added up in order: two by attention segment. */
  static ofSquares({ stage, suffix }: AlikeLayers<unknown, unknown>, rows: StageRows): RowParallelLinear {
    return new RowParallelLinear(stage, rows, { name: `squares${suffix}`, cut: 'heads', width: 2, apart: true });
  }

  /** Elements that a prompt row takes of the widest buffer. */
  static widestRow(stage: StageContext, cut: RowParallelShape['cut'], gatheredPlaces = 0): number {
    const { topology, hiddenStride } = stage;
    if (gatheredPlaces === 0 && !isCut(topology, cut)) return 0;
    const sums = sumsOf(stage, cut).all.length;
    return Math.max(sums, Math.max(1, gatheredPlaces) * topology.share[cut].length) * (hiddenStride + 32);
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
    const own = this.#gathered ?? this.parts;
    // Adapters add to each segment before segments are added up.
    const splits = isAdapted(buffers, matrix);
    if (!own && !splits) {
      recordLinear(recorder, buffers, matrix, { ...input, bias, ...this.#sumTo(recorder, behind) });
      this.#addNormed(recorder, behind);
      return;
    }
    const { first, count } = input.segments;
    const sums = this.#sums.all.filter(([from, end]) => from >= first && end <= first + count);
    const numberOf = (each: SegmentSum): number => sumNumber(this.#sums.all, each);
    const isEach = sums.length === count;
    if (own && (isEach || (sums.length === 1 && !splits))) {
      const to = { out: partsFrom(own, numberOf(nth(sums, 0))), outStride: own.stride };
      recordLinear(recorder, buffers, matrix, { ...input, ...to, output: isEach ? 'segments' : 'sum' });
      return;
    }
    const { name, width = this.stage.config.hiddenSize } = this.shape;
    const { scratch } = this.rows;
    const apart = allocateParts(scratch, buffers.role, `${name} segments`, count, buffers.rows, width, first);
    const { stride: outStride, buffer } = apart;
    recordLinear(recorder, buffers, matrix, { ...input, out: buffer, outStride, output: 'segments' });
    if (!own) {
      recordReduce(recorder, apart, { width, bias, ...this.#sumTo(recorder, behind) });
      this.#addNormed(recorder, behind);
      return;
    }
    for (const each of sums) {
      const out = partsFrom(own, numberOf(each));
      const to = { width, from: each[0], count: each[1] - each[0], out, outStride: own.stride };
      recordReduce(recorder, apart, { ...to, epilogue: 'none' });
    }
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

  /** Brings the other ranks' sums here. */
  recordExchange(recorder: RankRecorder, label: string): void {
    const { exchange } = this;
    if (exchange) this.stage.world.exchangeRoutes(recorder, label, exchange.routes, exchange.regions);
  }

  /** What brings the other ranks' sums here; undefined where there are none. */
  get exchange(): { readonly routes: readonly Route[]; readonly regions: RegionsOf } | undefined {
    const { parts } = this;
    const { cut, gathered, apart } = this.shape;
    if (!parts || !(gathered || isCut(this.stage.topology, cut))) return undefined;
    const { world, topology, cache } = this.stage;
    const { role } = this.rows;
    const { index } = topology;
    const { all } = this.#sums;
    if (gathered) {
      const regions = gathered.segmentsHome(known(this.#gathered, 'parts of all rows'), parts, all);
      return { routes: gatheredSegmentRoutes(world.all, index), regions };
    }
    const owners = cut === 'heads' ? cache.copyOwners : undefined;
    return {
      routes: segmentRoutes(world.all, index, role, cut, apart),
      regions: owners ? headRegions(index, parts, owners) : segmentRegions(world, role, parts, all),
    };
  }

  /** All sums added up, onto x, or normalised first; nothing where that is done. */
  recordSum(recorder: RankRecorder, bias: Buffer | undefined, behind?: Norm): void {
    if (!this.parts) return;
    recordReduce(recorder, this.parts, { width: this.stage.config.hiddenSize, bias, ...this.#sumTo(recorder, behind) });
    this.#addNormed(recorder, behind);
  }
}
