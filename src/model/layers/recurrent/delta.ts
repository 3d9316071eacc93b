import { causalConv } from '../../../../shaders/recurrent/causal_conv/index.js';
import { deltaHeads } from '../../../../shaders/recurrent/delta_heads/index.js';
import { deltaRule } from '../../../../shaders/recurrent/delta_rule/index.js';
import type { DeltaShape } from '../../../../shaders/recurrent/shape.js';
import { gatedNorm } from '../../../../shaders/recurrent/gated_norm/index.js';
import type { Buffer } from '../../../gpu/index.js';
import type { DeltaConfig } from '../../config/model_config.js';
import type { LayerCache } from '../attention/cache.js';
import type { AlikeLayers, AttentionLayers, AttentionProgram, Half } from '../layer.js';
import { recordFirst } from '../linear/linear.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import { activationStride, paddedName } from '../roles.js';
import { ownRowInfo, type StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import type { DeltaWeights } from './delta_weights.js';
import { allocateStates, heldHeads } from './states.js';

/** Linear attention by the gated delta rule, of alike layers of a stage. */
export class DeltaLayers implements AttentionLayers {
  readonly heads = 0;
  readonly caches: readonly LayerCache[];
  readonly widestRow: number;
  /** The rank's heads; none on a rank that has none of the layers. */
  readonly shape: DeltaShape;
  /** Elements of q, k and v, and of v. */
  readonly channels: number;
  readonly values: number;
  /** Elements of q, k, v, z, b and a. */
  readonly projected: number;

  /** Allocates the states. @throws SplitkvError `limit` when a layer's exceed one binding. */
  constructor(readonly alike: AlikeLayers<DeltaConfig, DeltaWeights>) {
    const { stage, config, layers, weights } = alike;
    const { keyDim, valueDim } = config;
    const held = weights[0] && heldHeads(config, weights[0].held);
    const keyHeads = held ? held.keys[1] - held.keys[0] : 0;
    const ratio = config.valueHeads / config.keyHeads;
    this.shape = { keyHeads, ratio, keyDim, valueDim };
    this.values = keyHeads * ratio * valueDim;
    this.channels = 2 * keyHeads * keyDim + this.values;
    this.projected = this.channels + this.values + 2 * keyHeads * ratio;
    const lengths = { conv: (config.taps - 1) * this.channels, delta: keyDim * this.values };
    this.caches = layers.map((layer) => allocateStates(stage, layer, lengths));
    this.widestRow = Math.max(activationStride(this.projected), RowParallelLinear.widestRow(stage, config.segments));
  }

  program(rows: StageRows): AttentionProgram {
    return new DeltaProgram(this, rows);
  }
}

class DeltaProgram implements AttentionProgram {
  readonly #projected: Buffer;
  /** q, k and v as the delta rule takes them. */
  readonly #qkv: Buffer;
  readonly #gates: Buffer;
  readonly #mixed: Buffer;
  readonly #output: RowParallelLinear;

  constructor(
    readonly of: DeltaLayers,
    readonly rows: StageRows,
  ) {
    const { config } = of.alike;
    const { role, scratch } = rows;
    const floats = (name: string, width: number): Buffer =>
      scratch.createBuffer(`${role} ${paddedName(name, width)}`, rows.rows * activationStride(Math.max(1, width)) * 4);
    const { keyHeads, ratio } = of.shape;
    this.#projected = floats('delta projected', of.projected);
    this.#qkv = floats('delta qkv', of.channels);
    this.#gates = floats('delta gates', 2 * keyHeads * ratio);
    this.#mixed = floats('delta mixed', of.values);
    this.#output = RowParallelLinear.ofHeads(of.alike, rows, config.segments);
  }

  record(recorder: RankRecorder, cache: LayerCache, half: Half<DeltaWeights> | undefined): void {
    if (!half) return;
    if (half.weights.input) this.#recordMixer(recorder, cache, half);
    const { output, held } = half.weights;
    const xStride = activationStride(this.of.values);
    const inputs = output ? [{ matrix: output, segments: held, x: this.#mixed, xStride }] : [];
    this.#output.record(recorder, inputs, undefined, half.behind);
  }

  #recordMixer(recorder: RankRecorder, { states }: LayerCache, half: Half<DeltaWeights>): void {
    const { rows: stageRows, of } = this;
    const { shape, channels, values } = of;
    const { stage, config } = of.alike;
    const { rows, role } = stageRows;
    const { eps } = stage.config.norm;
    const [inputStride, stride, outStride] = [of.projected, channels, values].map(activationStride) as [
      number,
      number,
      number,
    ];
    const [convState, deltaState] = states!;
    const oneRun = role === 'prompt';
    const run = { row_info: ownRowInfo(stage.world, stageRows), places: stage.cache.states.places };
    const { weights } = half;
    recordFirst(recorder, stage, stageRows, half, weights.input!, { out: this.#projected, outStride: inputStride });
    recorder.dispatch(
      causalConv,
      { rows, oneRun, width: channels, taps: config.taps, gated: false, xStride: inputStride, outStride: stride },
      { ...run, x: this.#projected, weight: weights.taps, state: convState!.buffer, out: this.#qkv },
    );
    recorder.dispatch(
      deltaHeads,
      { rows, ...shape, stride, inputStride, bOffset: channels + values },
      {
        inputs: this.#projected,
        rates: weights.rates,
        dt_bias: weights.dtBias,
        qkv: this.#qkv,
        gates: this.#gates,
      },
    );
    recorder.dispatch(
      deltaRule,
      { rows, oneRun, ...shape, stride, outStride },
      { ...run, qkv: this.#qkv, gates: this.#gates, state: deltaState!.buffer, out: this.#mixed },
    );
    recorder.dispatch(
      gatedNorm,
      {
        rows,
        heads: shape.keyHeads * shape.ratio,
        width: shape.valueDim,
        stride: outStride,
        gateStride: inputStride,
        gateOffset: channels,
        eps,
      },
      { gate: this.#projected, weight: weights.norm, x: this.#mixed },
    );
  }
}
