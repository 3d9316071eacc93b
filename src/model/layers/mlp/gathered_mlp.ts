import { rmsNorm } from '../../../../shaders/norm/rms_norm/index.js';
import type { Buffer, Device } from '../../../gpu/index.js';
import { gatheredSegmentRoutes, gatherRoutes } from '../../../placement/index.js';
import type { RowBuffers } from '../../forward/forward.js';
import type { GatheredRows } from './gathered_rows.js';
import { recordSwiglu } from '../linear/record_linear.js';
import { allocateParts, type Parts, recordReduce } from '../linear/parts.js';
import { activationStride, DOWN_SEGMENTS, type Role } from '../roles.js';
import type { RankRecorder, RegionsOf, World } from '../world.js';

/** Weights of an MLP, of which a rank holds some segments. */
type MlpWeights = Parameters<typeof recordSwiglu>[2];

/**
 * An MLP whose segments are cut over ranks that each run rows of their own: every rank computes its segments of all rows, and each
 * row's segments go home to be added up in order.
 */
export class GatheredMlp {
  readonly #gateUp: Buffer | undefined;
  readonly #hidden: Buffer;
  /** This rank's segments of all ranks' rows. */
  readonly #computed: Parts;
  /** All segments of this rank's rows. */
  readonly parts: Parts;

  /** `rows`: the most of this rank. `width`: the most columns that it holds. */
  constructor(
    device: Device,
    readonly gathered: GatheredRows,
    readonly role: Role,
    shape: {
      readonly name: string;
      readonly rows: number;
      readonly hiddenSize: number;
      readonly width: number;
      /** This rank's segments. */
      readonly mlp: readonly number[];
    },
  ) {
    const { name, rows, hiddenSize, width, mlp } = shape;
    const all = gathered.rows;
    const floats = (what: string, count: number): Buffer => device.createBuffer(`${role} ${name} ${what}`, count * 4);
    this.#gateUp = role === 'prompt' ? floats('gate_up', all * 2 * activationStride(width)) : undefined;
    this.#hidden = floats('hidden', all * activationStride(width));
    this.#computed = allocateParts(device, role, `${name} computed parts`, mlp.length, all, hiddenSize, mlp[0]!);
    this.parts = allocateParts(device, role, `${name} parts`, DOWN_SEGMENTS.total, rows, hiddenSize);
  }

  /** This rank's segments of all rows; `x`: f32 [rows][xStride], gathered and normalised. */
  recordSegments(recorder: RankRecorder, weights: MlpWeights, x: Buffer, xStride: number): void {
    const { gathered, role } = this;
    const buffers = { role, rows: gathered.rows, normed: undefined, x };
    const io = { x, xStride, gateUp: this.#gateUp, hidden: this.#hidden, parts: this.#computed };
    recorder.viewing(gathered.rowsOf, () => recordSwiglu(recorder, buffers, weights, io));
  }

  get segmentsHome(): RegionsOf {
    return this.gathered.segmentsHome(this.#computed, this.parts);
  }
}

/** The whole of such an MLP, norm and residual included: two hops. */
export function recordGatheredMlp(
  recorder: RankRecorder,
  world: World,
  stage: number,
  buffers: RowBuffers,
  mlp: GatheredMlp,
  weights: MlpWeights,
  io: {
    readonly norm: { readonly weight: Buffer; readonly eps: number };
    /** [rows of all ranks][stride] */
    readonly gatheredX: Buffer;
    readonly width: number;
    readonly stride: number;
    readonly outScale?: number;
  },
): void {
  const { x, rows } = buffers;
  const { norm, gatheredX, width, stride, outScale } = io;
  const normed = buffers.normed!;
  const { gathered } = mlp;
  recorder.dispatch(
    rmsNorm,
    { rows, width, stride, eps: norm.eps, residual: false },
    { x, weight: norm.weight, out: normed },
  );
  world.exchangeRoutes(
    recorder,
    'rows',
    gatherRoutes(world.all, stage, false),
    gathered.gather([{ mine: normed, all: gatheredX, stride }]),
  );
  mlp.recordSegments(recorder, weights, gatheredX, stride);
  world.exchangeRoutes(recorder, 'down_proj', gatheredSegmentRoutes(world.all, stage), mlp.segmentsHome);
  recordReduce(recorder, mlp.parts, {
    width,
    bias: weights.downBias,
    out: x,
    outStride: stride,
    outScale,
    epilogue: 'residual',
  });
}
