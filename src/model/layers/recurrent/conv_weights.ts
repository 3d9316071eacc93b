import type { ConvConfig } from '../../config/model_config.js';
import type { ConvNames } from '../../config/tensor_names.js';
import type { HeldSegments } from '../../shape.js';
import { allRows, type Loaded, type MatrixSpec, someRows, type VectorSpec } from '../../weights/weight_map.js';
import { type Bytes, type CutBytes, type LayerContext, matrixSpec, vectorSpec } from '../layer_weights.js';
import { heldSegments } from './states.js';

/** Which tensors make a rank's slice of a gated short convolution: of its channels. Undefined: it has none. */
export interface ConvSpecs {
  readonly kind: 'conv';
  /** Channels. */
  readonly held: HeldSegments;
  /** Rows of B, of C and of x. */
  readonly input: MatrixSpec | undefined;
  /** [channels][taps]. */
  readonly taps: VectorSpec | undefined;
  readonly output: MatrixSpec | undefined;
}

/** The same on a device. */
export type ConvWeights = Loaded<ConvSpecs>;

export function convSpecs(context: LayerContext, config: ConvConfig, names: ConvNames): ConvSpecs {
  const { hiddenSize, slice } = context;
  const { width, taps } = config;
  const held = heldSegments(config, slice);
  const { start, end } = held;
  if (start === end) return { kind: 'conv', held, input: undefined, taps: undefined, output: undefined };
  return {
    kind: 'conv',
    held,
    input: matrixSpec(
      context,
      'conv_in',
      hiddenSize,
      [0, 1, 2].map((part) => someRows(names.input, 3 * width, [part * width + start, part * width + end])),
    ),
    taps: vectorSpec(context, 'conv_taps', [someRows(`${names.taps}.weight`, width, [start, end])], { columns: taps }),
    output: matrixSpec(context, 'conv_out', width, [allRows(names.output, hiddenSize)], { segments: held }),
  };
}

export const convBytes = (specs: ConvSpecs, bytes: Bytes): CutBytes => ({ cut: bytes(specs), shared: 0 });
