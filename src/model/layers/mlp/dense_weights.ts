import type { DenseMlpConfig } from '../../config/model_config.js';
import { DOWN_SEGMENTS } from '../roles.js';
import { type HeldSegments, holdSegments, type Span, spanLength } from '../../shape.js';
import type { GatedMlpNames, PlainMlpNames } from '../../config/tensor_names.js';
import { allRows, type Loaded, type MatrixSpec, someRows, type VectorSpec } from '../../weights/weight_map.js';
import { biasSpec, type Bytes, type CutBytes, type LayerContext, layerVector, matrixSpec } from '../layer_weights.js';

/** Gate and up tiles must not share a 32-row tile: the fused SwiGLU reads tile t of each. */
export const GATE_UP_PAD = 32;

/** Which tensors make a rank's slice of a dense MLP. Undefined: the model has none, or the rank none of it. */
export interface DenseMlpSpecs {
  readonly kind: 'gated' | 'plain';
  /**
   * Gate rows, then up rows, each padded to 32; of a plain MLP the up rows alone: [downSegments.start, downSegments.end) of the
   * intermediate size.
   */
  readonly gateUp: MatrixSpec | undefined;
  readonly gateUpBias: VectorSpec | undefined;
  readonly down: MatrixSpec | undefined;
  readonly downSegments: HeldSegments;
  /** For whoever adds up all segments. */
  readonly downBias: VectorSpec | undefined;
}

/** The same on a device. */
export type DenseMlpWeights = Loaded<DenseMlpSpecs>;

/** @param part before the names of its matrices, where the layer has another dense MLP */
export function denseMlpSpecs(
  context: LayerContext,
  { kind, width, bias }: DenseMlpConfig,
  names: GatedMlpNames | PlainMlpNames,
  part = '',
): DenseMlpSpecs {
  const { hiddenSize } = context;
  const downSegments = holdSegments(width, DOWN_SEGMENTS, context.slice.mlp);
  const hidden: Span = [downSegments.start, downSegments.end];
  const held = spanLength(hidden) > 0;
  const { gate, gateUp } = { gate: undefined, gateUp: undefined, ...names };
  const pad = gate === undefined ? undefined : { padTo: GATE_UP_PAD };
  const halves = [...(gate === undefined ? [] : [gate]), names.up].map((tensor, half) =>
    gateUp === undefined
      ? someRows(tensor, width, hidden, pad)
      : someRows(gateUp, 2 * width, [half * width + hidden[0], half * width + hidden[1]], pad),
  );
  return {
    kind,
    // Gate and up tiles are read together.
    gateUp: held ? matrixSpec(context, `${part}gate_up`, hiddenSize, halves, { whole: true }) : undefined,
    gateUpBias: held && bias ? biasSpec(context, `${part}gate_up_bias`, halves) : undefined,
    down: held
      ? matrixSpec(context, `${part}down`, width, [allRows(names.down, hiddenSize)], { segments: downSegments })
      : undefined,
    downSegments,
    downBias: bias ? layerVector(context, `${part}down_bias`, `${names.down}.bias`, hiddenSize) : undefined,
  };
}

export const denseMlpBytes = ({ gateUp, gateUpBias, down, downBias }: DenseMlpSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(gateUp, gateUpBias, down),
  shared: bytes(downBias),
});
