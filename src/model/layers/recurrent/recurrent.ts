/**
 * Room: mixers whose memory of a sequence has a fixed size, its state: short convolutions and linear attention. A state is of the slot
 * that the sequence is in, and rows run through it in the order of their positions. Read states.ts next.
 */

import { linearConv } from '../../../../shaders/linear/linear_conv/index.js';
import { scaleHeads } from '../../../../shaders/norm/scale_heads/index.js';
import { causalConv } from '../../../../shaders/recurrent/causal_conv/index.js';
import { deltaHeads } from '../../../../shaders/recurrent/delta_heads/index.js';
import { deltaRule } from '../../../../shaders/recurrent/delta_rule/index.js';
import { deltaStep } from '../../../../shaders/recurrent/delta_step/index.js';
import { gatedNorm } from '../../../../shaders/recurrent/gated_norm/index.js';
import type { DeltaShape } from '../../../../shaders/recurrent/shape.js';
import { gatedSquares } from '../../../../shaders/recurrent/gated_squares/index.js';
import { known } from '../../../base/errors.js';
import type { Buffer } from '../../../gpu/index.js';
import type { RecurrentConfig } from '../../config/model_config.js';
import { spanLength } from '../../shape.js';
import type { MatrixShard } from '../../weights/matrix.js';
import type { LayerCache } from '../attention/cache.js';
import type { AlikeLayers, AttentionLayers, AttentionProgram, Half } from '../layer.js';
import { inputOf, recordFirst } from '../linear/linear.js';
import { partsFrom } from '../linear/parts.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import { activationStride, paddedName } from '../roles.js';
import { ownRowInfo, type StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import { fusesConv, fusesDelta } from './recurrent_fusion.js';
import type { RecurrentWeights } from './recurrent_weights.js';
import { allocateStates, mixerWidths } from './states.js';

/** Gated short convolutions, or linear attention by the gated delta rule or Mamba-2's, of alike layers of a stage. */
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
  /** B, C and x; or q, k, v, z, b (Mamba-2: none) and a. */
  readonly #projected: Buffer;
  readonly #mixed: Buffer;
  readonly #output: RowParallelLinear;
  /** Of linear attention that isn't one kernel: q, k and v as it takes them. */
  readonly #apart: { readonly qkv: Buffer; readonly gates: Buffer } | undefined;
  /** Of a norm over all value heads, of all ranks. */
  readonly #squares: RowParallelLinear | undefined;

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
    const fused = config.kind === 'delta' && fusesDelta(device, config, role);
    if (config.kind !== 'conv' && !fused)
      this.#apart = { qkv: floats('qkv', channels), gates: floats('gates', 2 * valueHeads) };
    this.#mixed = floats('mixed', values);
    if (config.kind === 'mamba') this.#squares = RowParallelLinear.ofSquares(of.alike, rows);
    this.#output = RowParallelLinear.ofHeads(of.alike, rows);
  }

  record(recorder: RankRecorder, cache: LayerCache, half: Half<RecurrentWeights> | undefined): void {
    if (!half) return;
    if (half.weights.input) this.#recordMixer(recorder, cache, half, half.weights.input);
    else this.#squares?.recordExchange(recorder, 'norm');
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
    const { projected, channels } = of.widths;
    const [x, out, shape, apart] = [this.#projected, this.#mixed, this.#shape, this.#apart];
    const [inputStride, stride] = [activationStride(projected), activationStride(channels)];
    const outStride = activationStride(of.widths.values);
    const { rows } = stageRows;
    const common = { rows, oneRun: stageRows.role === 'prompt' };
    const run = { row_info: ownRowInfo(stage.world, stageRows), places: stage.cache.states.places };
    const [conv, memory] = states.map(({ buffer }) => buffer);
    const { taps: weight, convBias, rates, dtBias, norm } = half.weights;
    const { taps } = config;
    const { eps } = stage.config.norm;
    const { before } = half;
    if (!shape && before && fusesConv(recorder.device, before.config, input, stageRows, channels)) {
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
      {
        ...common,
        width: channels,
        taps,
        gated: !shape,
        bias: convBias !== undefined,
        xStride: inputStride,
        outStride: stride,
      },
      { ...run, x, weight, bias: convBias, state: conv, out: apart?.qkv ?? out },
    );
    if (!shape || !apart) return;
    const { qkv, gates } = apart;
    const bOffset = channels + of.widths.values;
    recorder.dispatch(
      deltaHeads,
      { rows, ...shape, stride, inputStride, bOffset },
      { inputs: x, rates, dt_bias: dtBias, qkv, gates },
    );
    recorder.dispatch(
      deltaRule,
      { ...common, ...shape, stride, outStride },
      { ...run, qkv, gates, state: memory, out },
    );
    this.#recordNorm(recorder, half.weights, shape, qkv);
  }

  /** The heads of linear attention. */
  get #shape(): DeltaShape | undefined {
    const { config } = this.of.alike;
    if (config.kind === 'conv') return undefined;
    const { keys, valueHeads } = this.of.widths;
    const { kind, keyDim, valueDim } = config;
    const keyHeads = spanLength(keys) / keyDim;
    return { keyHeads, ratio: valueHeads / keyHeads, keyDim, valueDim, plain: kind === 'mamba' };
  }

  /**
   * What linear attention reads, normalised and gated by z: head by head; or Mamba-2's, gated first, over the value heads of all ranks.
   * @param qkv with v as the heads took it, which Mamba-2 adds
   */
  #recordNorm(recorder: RankRecorder, weights: RecurrentWeights, { valueDim }: DeltaShape, qkv: Buffer): void {
    const { projected, channels, values, keys, valueHeads } = this.of.widths;
    const { eps } = this.of.alike.stage.config.norm;
    const { held, norm, skip } = weights;
    const [x, gate, squares] = [this.#mixed, this.#projected, this.#squares];
    const stride = activationStride(values);
    const common = {
      rows: this.rows.rows,
      stride,
      gateStride: activationStride(projected),
      gateOffset: channels,
    };
    if (!squares) {
      recorder.dispatch(gatedNorm, { ...common, heads: valueHeads, width: valueDim, eps }, { gate, weight: norm, x });
      return;
    }
    const parts = known(squares.parts, 'sums of squares');
    const { modelInFeatures, first } = held;
    const v = { vStride: activationStride(channels), vOffset: 2 * spanLength(keys) };
    const of = { headDim: valueDim, segments: held, modelWidth: modelInFeatures, squaresStride: parts.stride };
    recorder.dispatch(
      gatedSquares,
      { ...common, ...v, ...of },
      { v: qkv, gate, skip, x, squares: partsFrom(parts, first) },
    );
    squares.recordExchange(recorder, 'norm');
    const all = { segments: held.total, squaresStride: parts.stride, qTotal: modelInFeatures, kTotal: 1 };
    recorder.dispatch(
      scaleHeads,
      { rows: common.rows, ...all, width: values, kStart: values, stride, eps },
      { squares: parts.buffer, weight: norm, x },
    );
  }
}
