/**
 * Room: mixers whose memory of a sequence has a fixed size, its state: short convolutions and linear attention. A state is of the slot
 * that the sequence is in, and rows run through it in the order of their positions. Read states.ts next.
 */

import { linearConv } from '../../../../shaders/linear/linear_conv/index.js';
import { causalConv } from '../../../../shaders/recurrent/causal_conv/index.js';
import { deltaHeads } from '../../../../shaders/recurrent/delta_heads/index.js';
import { deltaRule } from '../../../../shaders/recurrent/delta_rule/index.js';
import { deltaStep } from '../../../../shaders/recurrent/delta_step/index.js';
import { gatedNorm } from '../../../../shaders/recurrent/gated_norm/index.js';
import type { Buffer } from '../../../gpu/index.js';
import type { DeltaConfig, RecurrentConfig } from '../../config/model_config.js';
import type { MatrixShard } from '../../weights/matrix.js';
import type { LayerCache } from '../attention/cache.js';
import type { AlikeLayers, AttentionLayers, AttentionProgram, Half } from '../layer.js';
import { inputOf, recordFirst } from '../linear/linear.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import { activationStride, paddedName } from '../roles.js';
import { ownRowInfo, type StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import { fusesConv, fusesDelta } from './recurrent_fusion.js';
import type { RecurrentWeights } from './recurrent_weights.js';
import { allocateStates, mixerWidths } from './states.js';

/** Gated short convolutions, or linear attention by the gated delta rule, of alike layers of a stage. */
export class RecurrentLayers implements AttentionLayers {
  readonly heads = 0;
  readonly caches: readonly LayerCache[];
  readonly widestRow: number;
  /** None on a rank that has none of the layers. */
  readonly widths: ReturnType<typeof mixerWidths>;

  /** Allocates the states. @throws SplitkvError `limit` when a layer's exceed one binding. */
  constructor(readonly alike: AlikeLayers<RecurrentConfig, RecurrentWeights>) {
    const { stage, config, layers, weights } = alike;
    this.widths = mixerWidths(config, weights[0]?.held);
    const { projected, channels, memory } = this.widths;
    const lengths = { conv: (config.taps - 1) * channels, delta: memory };
    this.caches = layers.map((layer) => allocateStates(stage, layer, lengths));
    this.widestRow = Math.max(activationStride(projected), RowParallelLinear.widestRow(stage, 'heads'));
  }

  program(rows: StageRows): AttentionProgram {
    return new RecurrentProgram(this, rows);
  }
}

class RecurrentProgram implements AttentionProgram {
  /** B, C and x; or q, k, v, z, b and a. */
  readonly #projected: Buffer;
  readonly #mixed: Buffer;
  readonly #output: RowParallelLinear;
  readonly #delta: DeltaConfig | undefined;
  /** Of linear attention that isn't one kernel: q, k and v as the delta rule takes them. */
  readonly #apart: { readonly qkv: Buffer; readonly gates: Buffer } | undefined;

  constructor(
    readonly of: RecurrentLayers,
    readonly rows: StageRows,
  ) {
    const { config } = of.alike;
    const { projected, channels, values, valueHeads } = of.widths;
    const { role, scratch } = rows;
    const { device } = of.alike.stage;
    const floats = (what: string, width: number): Buffer => {
      const name = `${role} ${paddedName(`${config.kind} ${what}`, width)}`;
      return scratch.createBuffer(name, rows.rows * activationStride(Math.max(1, width)) * 4);
    };
    this.#projected = floats('projected', projected);
    this.#delta = config.kind === 'delta' ? config : undefined;
    if (this.#delta && !fusesDelta(device, this.#delta, role))
      this.#apart = { qkv: floats('qkv', channels), gates: floats('gates', 2 * valueHeads) };
    this.#mixed = floats('mixed', values);
    this.#output = RowParallelLinear.ofHeads(of.alike, rows);
  }

  record(recorder: RankRecorder, cache: LayerCache, half: Half<RecurrentWeights> | undefined): void {
    if (!half) return;
    if (half.weights.input) this.#recordMixer(recorder, cache, half, half.weights.input);
    const { output, held } = half.weights;
    const xStride = activationStride(this.of.widths.values);
    const inputs = output ? [{ matrix: output, segments: held, x: this.#mixed, xStride }] : [];
    this.#output.record(recorder, inputs, undefined, half.behind);
  }

  #recordMixer(
    recorder: RankRecorder,
    { states = [] }: LayerCache,
    half: Half<RecurrentWeights>,
    input: NonNullable<RecurrentWeights['input']>,
  ): void {
    const { rows: stageRows, of } = this;
    const { stage, config } = of.alike;
    const { projected, channels, values, valueHeads } = of.widths;
    const [x, out, delta, apart] = [this.#projected, this.#mixed, this.#delta, this.#apart];
    const [inputStride, stride] = [activationStride(projected), activationStride(channels)];
    const outStride = activationStride(values);
    const { rows } = stageRows;
    const common = { rows, oneRun: stageRows.role === 'prompt' };
    const run = { row_info: ownRowInfo(stage.world, stageRows), places: stage.cache.states.places };
    const [conv, memory] = states.map(({ buffer }) => buffer);
    const { taps: weight, rates, dtBias, norm } = half.weights;
    const { taps } = config;
    const { eps } = stage.config.norm;
    const { before } = half;
    if (!delta && before && fusesConv(recorder.device, before.config, input, stageRows, channels)) {
      const { inFeatures, type, shards } = input;
      const { x: row } = inputOf(stageRows, half);
      const [{ weight: matrix, scale }] = shards as [MatrixShard];
      recorder.dispatch(
        linearConv,
        { inFeatures, width: channels, taps, type, xStride: stage.hiddenStride, eps: before.config.eps },
        { ...run, x: row, weight: matrix, scale, norm_weight: before.weight, taps: weight, state: conv, out },
      );
      return;
    }
    recordFirst(recorder, stage, stageRows, half, input, { out: x, outStride: inputStride });
    const ratio = delta ? delta.valueHeads / delta.keyHeads : 1;
    const shape = delta && { keyHeads: valueHeads / ratio, ratio, keyDim: delta.keyDim, valueDim: delta.valueDim };
    if (shape && !apart) {
      recorder.dispatch(
        deltaStep,
        { rows, ...shape, taps, xStride: inputStride, outStride, eps },
        { ...run, x, taps: weight, rates, dt_bias: dtBias, norm, conv_state: conv, memory, out },
      );
      return;
    }
    recorder.dispatch(
      causalConv,
      { ...common, width: channels, taps, gated: !delta, xStride: inputStride, outStride: stride },
      { ...run, x, weight, state: conv, out: apart?.qkv ?? out },
    );
    if (!shape || !apart) return;
    const { qkv, gates } = apart;
    recorder.dispatch(
      deltaHeads,
      { rows, ...shape, stride, inputStride, bOffset: channels + values },
      { inputs: x, rates, dt_bias: dtBias, qkv, gates },
    );
    recorder.dispatch(
      deltaRule,
      { ...common, ...shape, stride, outStride },
      { ...run, qkv, gates, state: memory, out },
    );
    recorder.dispatch(
      gatedNorm,
      {
        rows,
        heads: valueHeads,
        width: shape.valueDim,
        stride: outStride,
        gateStride: inputStride,
        gateOffset: channels,
        eps,
      },
      { gate: x, weight: norm, x: out },
    );
  }
}
