/**
 * Room: the feed-forward half of a layer: a gated MLP (here), or a mixture of experts (experts.ts). gathered_rows.ts
 * brings rows together where each rank runs its own.
 */

import { outputGate } from '../../../../shaders/attention/output_gate/index.js';
import type { Buffer } from '../../../gpu/index.js';
import type { Activation, DenseMlpConfig } from '../../config/model_config.js';
import type { AlikeLayers, Half, MlpLayers, MlpProgram, StageContext } from '../layer.js';
import { type Norm, recordNorm } from '../norm.js';
import { inputOf, type Projection, recordLinear } from '../linear/linear.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import { activationStride, paddedName } from '../roles.js';
import { normedOf, type RowBuffers, type StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import { GatheredRows, gatheringPlaces } from './gathered_rows.js';
import type { Matrix } from '../../weights/matrix.js';
import type { DenseMlpWeights } from './mlp_weights.js';

export const heldColumns = ({ downSegments: { start, end } }: DenseMlpWeights): number => end - start;

/** Elements that a prompt row takes of the widest buffer of a dense MLP. */
export function denseWidestRow(stage: StageContext, width: number): number {
  const places = gatheringPlaces(stage.topology);
  return Math.max(activationStride(width) * Math.max(1, places), RowParallelLinear.widestRow(stage, 'mlp', places));
}

/** The dense layers of a stage: down(activation(gate x) * up x), or down(activation(up x)). */
export class DenseLayers implements MlpLayers {
  readonly sharesNormed: boolean;
  readonly widestRow: number;
  readonly #width: number;

  constructor(readonly alike: AlikeLayers<DenseMlpConfig, DenseMlpWeights>) {
    const { stage, weights } = alike;
    this.#width = Math.max(0, ...weights.map(heldColumns));
    this.sharesNormed = gatheringPlaces(stage.topology) > 0;
    this.widestRow = denseWidestRow(stage, this.#width);
  }

  program(rows: StageRows): MlpProgram {
    const { stage, suffix, config } = this.alike;
    const { activation } = config;
    return new DenseMlp(stage, rows, { name: `down${suffix}`, width: this.#width, activation });
  }
}

/** Elements between the gates of rows whose whole output has one. */
const GATE_STRIDE = activationStride(1);

/** `gate`: one row, by whose sigmoid the output is multiplied. */
type OpenedWeights = DenseMlpWeights & { readonly gate?: Matrix | undefined };

/** A dense MLP of some rows: of a dense layer, or shared experts. */
export class DenseMlp implements MlpProgram {
  readonly down: RowParallelLinear;
  /** Where places run rows of their own and share out its segments: whose rows `recordSegments` works on. */
  readonly gathered: GatheredRows | undefined;
  readonly #hidden: Buffer;
  /** f32 [rows][GATE_STRIDE]: of each row's output. */
  readonly #gates: Buffer | undefined;

  /**
   * `name`: of its buffers. `width`: the most columns that the rank holds. `activation`: of the gate. `opens`: its output has one.
   */
  constructor(
    readonly stage: StageContext,
    readonly rows: StageRows,
    readonly of: {
      readonly name: string;
      readonly width: number;
      readonly activation: Activation;
      readonly opens?: boolean;
    },
  ) {
    const { name, width, opens = false } = of;
    this.gathered = gatheringPlaces(stage.topology) > 0 ? new GatheredRows(stage, rows) : undefined;
    const most = this.gathered?.rows ?? rows.rows;
    const stride = activationStride(width);
    this.#hidden = this.#floats(paddedName(`${name} hidden`, width), most * stride);
    this.#gates = opens ? this.#floats(`${name} gates`, most * GATE_STRIDE) : undefined;
    this.down = new RowParallelLinear(stage, rows, {
      name,
      cut: 'mlp',
      gathered: this.gathered,
    });
  }

  #floats(what: string, count: number): Buffer {
    return this.rows.scratch.createBuffer(`${this.rows.role} ${what}`, count * 4);
  }

  /** The half of a dense layer. */
  record(recorder: RankRecorder, half: Half<DenseMlpWeights>): void {
    const { stage, rows, gathered, down } = this;
    const { weights, input = rows.x, before, behind } = half;
    // Nobody else may take what is left to the projection.
    const projects = !gathered && weights.gateUp !== undefined;
    if (!projects) rows.residual.settle(recorder);
    if (gathered) {
      const width = stage.config.hiddenSize;
      const normed = before ? normedOf(rows) : input;
      if (before) recordNorm(recorder, before, { rows: rows.rows, width, stride: stage.hiddenStride }, input, normed);
      gathered.recordGather(recorder, normed);
    }
    const from = projects ? inputOf(rows, half) : { x: gathered?.x ?? input };
    this.recordSegments(recorder, weights, from, behind);
    down.recordExchange(recorder, 'down_proj');
    down.recordSum(recorder, weights.downBias, behind);
  }

  /** This rank's part of it; nothing where the rank holds none of its columns. `x`: f32 [rows][hiddenStride]. */
  recordSegments(
    recorder: RankRecorder,
    weights: OpenedWeights,
    from: Pick<Projection, 'x' | 'adds' | 'norm'>,
    behind?: Norm,
  ): void {
    const { gathered, rows } = this;
    if (!gathered) return this.#record(recorder, rows, weights, from, behind);
    const all = { role: rows.role, rows: gathered.rows, normed: undefined, adapters: gathered.adapters };
    recorder.viewing(gathered.rowsOf, () => this.#record(recorder, all, weights, from, behind));
  }

  #record(
    recorder: RankRecorder,
    buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed' | 'adapters'>,
    { kind, gateUp, gateUpBias, down, downBias, downSegments, gate }: OpenedWeights,
    from: Pick<Projection, 'x' | 'adds' | 'norm'>,
    behind: Norm | undefined,
  ): void {
    if (!gateUp || !down) return;
    const width = downSegments.end - downSegments.start;
    const stride = activationStride(width);
    const hidden = this.#hidden;
    const { activation } = this.of;
    const input = { ...from, xStride: this.stage.hiddenStride };
    recordLinear(recorder, buffers, gateUp, {
      ...input,
      bias: gateUpBias,
      out: hidden,
      outStride: stride,
      ...(kind === 'plain' ? { epilogue: 'gelu' } : { epilogue: 'swiglu', outFeatures: width }),
      gates:
        kind === 'gated' && gateUp.shards.length > 1 ? this.#floats('gates of hidden', hidden.size / 4) : undefined,
      activation,
    });
    const gates = this.#gates;
    if (gate && gates) {
      // What it reads times the gate is as good as the output times it, and each rank has all of it.
      recordLinear(recorder, buffers, gate, { ...input, out: gates, outStride: GATE_STRIDE });
      const { rows } = buffers;
      recorder.dispatch(
        outputGate,
        { rows, width, stride, gateStride: GATE_STRIDE, gateOffset: 0, perRow: true },
        { gate: gates, x: hidden },
      );
    }
    const contraction = { matrix: down, segments: downSegments, x: hidden, xStride: stride };
    this.down.recordSegments(recorder, buffers, contraction, downBias, behind);
  }
}
