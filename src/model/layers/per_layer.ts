import { outputGate } from '../../../shaders/attention/output_gate/index.js';
import { rmsNorm } from '../../../shaders/norm/rms_norm/index.js';
import type { Buffer, Device } from '../../gpu/index.js';
import { type ModelConfig, perLayerWidth } from '../config/model_config.js';
import type { Loaded } from '../weights/weight_map.js';
import { recordLinear } from './linear/linear.js';
import type { PerLayerHalfSpecs, PerLayerSpecs } from './per_layer_weights.js';
import { halfOf, type RowBuffers, type StageRows } from './rows.js';
import type { RankRecorder } from './world.js';

/** Inputs that the layers have of their own, of some rows: computed once, before the first layer. */
export class PerLayerInputs {
  readonly #width: number;
  /**
   * f32 [rows][layers][width]: rows of the tokens' table, which the host writes before each step. What is projected of the step's rows
   * is added to it; all times sqrt(2).
   */
  readonly #inputs: Buffer;
  readonly #projected: Buffer;

  /** @param like of more rows, of which these are the first ones */
  constructor(
    readonly device: Device,
    readonly config: ModelConfig,
    readonly weights: Loaded<PerLayerSpecs>,
    readonly buffers: RowBuffers,
    readonly hiddenStride: number,
    like?: PerLayerInputs,
  ) {
    const { role, rows } = buffers;
    this.#width = perLayerWidth(config) ?? 0;
    const floats = (name: string): Buffer => device.createBuffer(`${role} ${name}`, rows * this.#all * 4);
    this.#inputs = like ? like.#inputs : floats('per-layer inputs');
    this.#projected = like ? like.#projected : floats('per-layer projected');
  }

  get #all(): number {
    return this.#width * this.config.layers.length;
  }

  /** Rows of the tokens' table, those of `firstRow` and of the rows behind it. */
  write(firstRow: number, rows: Float32Array): void {
    this.device.write(this.#inputs, firstRow * this.#all * 4, rows);
  }

  /** As a step of so many rows has them whose tokens have no rows of a table. */
  clear(rows: number): void {
    this.write(0, new Float32Array(rows * this.#all));
  }

  record(recorder: RankRecorder): void {
    const { config, weights, buffers, hiddenStride } = this;
    const [width, pieces] = [this.#width, config.layers.length];
    recordLinear(recorder, buffers, weights.projection, {
      x: buffers.x,
      xStride: hiddenStride,
      out: this.#projected,
      outStride: pieces * width,
      outScale: config.hiddenSize ** -0.5,
    });
    recorder.dispatch(
      rmsNorm,
      { rows: buffers.rows, pieces, width, stride: width, eps: config.norm.eps, residual: true },
      { x: this.#projected, weight: weights.norm, out: this.#inputs },
    );
  }

  recordHalf(
    recorder: RankRecorder,
    layer: number,
    { gate, project, behind }: Loaded<PerLayerHalfSpecs>,
    rows: StageRows,
  ): void {
    const { config, hiddenStride } = this;
    const width = this.#width;
    const hidden = rows.scratch.createBuffer(`${rows.role} per-layer hidden`, rows.rows * width * 4);
    recordLinear(recorder, rows, gate, {
      ...rows.residual.take(),
      xStride: hiddenStride,
      out: hidden,
      outStride: width,
      epilogue: 'gelu',
    });
    const gateStride = config.layers.length * width;
    recorder.dispatch(
      outputGate,
      { rows: rows.rows, width, stride: width, gateStride, gateOffset: layer * width, open: true },
      { gate: this.#inputs, x: hidden },
    );
    const out = halfOf(rows, config.hiddenSize, hiddenStride);
    recordLinear(recorder, rows, project, {
      x: hidden,
      xStride: width,
      out,
      outStride: hiddenStride,
      outScale: Math.SQRT1_2,
    });
    rows.residual.add(recorder, out, behind);
  }
}
