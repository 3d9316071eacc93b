/**
 * Room: mixers whose memory of a sequence has a fixed size, its state: short convolutions (here), linear attention (delta.ts). A state
 * is of the slot that the sequence is in, and rows run through it in the order of their positions. Read states.ts next.
 */

import { causalConv } from '../../../../shaders/recurrent/causal_conv/index.js';
import type { Buffer } from '../../../gpu/index.js';
import type { ConvConfig } from '../../config/model_config.js';
import type { LayerCache } from '../attention/cache.js';
import type { AlikeLayers, AttentionLayers, AttentionProgram, Half } from '../layer.js';
import { recordFirst } from '../linear/linear.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import { activationStride, paddedName } from '../roles.js';
import { ownRowInfo, type StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import type { ConvWeights } from './conv_weights.js';
import { allocateStates } from './states.js';

/** Gated short convolutions of alike layers of a stage. */
export class ConvLayers implements AttentionLayers {
  readonly heads = 0;
  readonly caches: readonly LayerCache[];
  readonly widestRow: number;
  /** Channels that the rank has. */
  readonly channels: number;

  /** Allocates the states. @throws SplitkvError `limit` when a layer's exceed one binding. */
  constructor(readonly alike: AlikeLayers<ConvConfig, ConvWeights>) {
    const { stage, config, layers, weights } = alike;
    const { start = 0, end = 0 } = weights[0]?.held ?? {};
    this.channels = end - start;
    const kept = (config.taps - 1) * this.channels;
    this.caches = layers.map((layer) => allocateStates(stage, layer, { conv: kept }));
    this.widestRow = Math.max(activationStride(3 * this.channels), RowParallelLinear.widestRow(stage, config.segments));
  }

  program(rows: StageRows): AttentionProgram {
    return new ConvProgram(this, rows);
  }
}

class ConvProgram implements AttentionProgram {
  /** B, C and x. */
  readonly #projected: Buffer;
  readonly #mixed: Buffer;
  readonly #output: RowParallelLinear;

  constructor(
    readonly of: ConvLayers,
    readonly rows: StageRows,
  ) {
    const { channels, alike } = of;
    const { config } = alike;
    const { role, scratch } = rows;
    const floats = (name: string, width: number): Buffer =>
      scratch.createBuffer(`${role} ${paddedName(name, width)}`, rows.rows * activationStride(width) * 4);
    this.#projected = floats('conv projected', Math.max(1, 3 * channels));
    this.#mixed = floats('conv mixed', Math.max(1, channels));
    this.#output = RowParallelLinear.ofHeads(of.alike, rows, config.segments);
  }

  record(recorder: RankRecorder, cache: LayerCache, half: Half<ConvWeights> | undefined): void {
    if (!half) return;
    const { input, taps, output, held } = half.weights;
    const { rows, of } = this;
    const { stage, config } = of.alike;
    const [width, xStride] = [of.channels, activationStride(of.channels)];
    if (input) {
      const stride = activationStride(3 * width);
      recordFirst(recorder, stage, rows, half, input, { out: this.#projected, outStride: stride });
      recorder.dispatch(
        causalConv,
        {
          rows: rows.rows,
          oneRun: rows.role === 'prompt',
          width,
          taps: config.taps,
          gated: true,
          xStride: stride,
          outStride: xStride,
        },
        {
          x: this.#projected,
          weight: taps,
          row_info: ownRowInfo(stage.world, rows),
          places: stage.cache.states.places,
          state: cache.states![0]!.buffer,
          out: this.#mixed,
        },
      );
    }
    const inputs = output ? [{ matrix: output, segments: held, x: this.#mixed, xStride }] : [];
    this.#output.record(recorder, inputs, undefined, half.behind);
  }
}
