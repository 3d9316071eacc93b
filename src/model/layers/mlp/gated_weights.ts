import type { Buffer } from '../../../gpu/index.js';
import type { GatedMlpConfig } from '../../config/model_config.js';
import type { Matrix } from '../../weights/matrix.js';
import { DOWN_SEGMENTS } from '../roles.js';
import { type HeldSegments, holdSegments, type Span, spanLength } from '../../shape.js';
import type { GatedMlpNames } from '../../config/tensor_names.js';
import type { WeightLoader } from '../../weights/weight_loader.js';
import { allRows, type MatrixSpec, someRows, type Spec, type VectorSpec } from '../../weights/weight_map.js';
import { type Bytes, type CutBytes, type LayerContext, layerVector, partName } from '../layer_weights.js';

/** Gate and up tiles must not share a 32-row tile: the fused SwiGLU reads tile t of each. */
export const GATE_UP_PAD = 32;

/** Which tensors make a rank's slice of a gated MLP. Undefined: the model has none, or the rank none of it. */
export interface GatedMlpSpecs {
  readonly kind: 'gated';
  /** Gate rows, then up rows, each padded to 32. */
  readonly gateUp: MatrixSpec | undefined;
  readonly gateUpBias: VectorSpec | undefined;
  readonly down: MatrixSpec | undefined;
  readonly downSegments: HeldSegments;
  readonly downBias: VectorSpec | undefined;
}

/** The same on a device. */
export interface GatedMlpWeights {
  readonly kind: 'gated';
  /** Gate and up rows [downSegments.start, downSegments.end) of the intermediate size. */
  readonly gateUp: Matrix | undefined;
  readonly gateUpBias: Buffer | undefined;
  readonly down: Matrix | undefined;
  readonly downSegments: HeldSegments;
  /** For whoever adds up all segments. */
  readonly downBias: Buffer | undefined;
}

/** @param part before the names of its matrices, where the layer has another gated MLP */
export function gatedMlpSpecs(
  context: LayerContext,
  { width, bias }: Pick<GatedMlpConfig, 'width' | 'bias'>,
  names: GatedMlpNames,
  part = '',
): GatedMlpSpecs {
  const { hiddenSize } = context;
  const downSegments = holdSegments(width, DOWN_SEGMENTS, context.slice.mlp);
  const hidden: Span = [downSegments.start, downSegments.end];
  const held = spanLength(hidden) > 0;
  const { gateUp } = names;
  const halves = [names.gate, names.up].map((tensor, half) =>
    gateUp === undefined
      ? { tensor, all: width, rows: hidden }
      : { tensor: gateUp, all: 2 * width, rows: [half * width + hidden[0], half * width + hidden[1]] as Span },
  );
  return {
    kind: 'gated',
    gateUp: held
      ? {
          name: partName(context, `${part}gate_up`),
          inFeatures: hiddenSize,
          parts: halves.map(({ tensor, all, rows }) => ({
            ...someRows(`${tensor}.weight`, all, rows),
            padTo: GATE_UP_PAD,
          })),
        }
      : undefined,
    gateUpBias:
      held && bias
        ? {
            name: partName(context, `${part}gate_up_bias`),
            parts: halves.map(({ tensor, all, rows }) => ({
              tensor: `${tensor}.bias`,
              tensorLength: all,
              first: rows[0],
              length: spanLength(rows),
              padTo: GATE_UP_PAD,
            })),
          }
        : undefined,
    down: held
      ? {
          name: partName(context, `${part}down`),
          inFeatures: width,
          segments: downSegments,
          parts: [allRows(`${names.down}.weight`, hiddenSize)],
        }
      : undefined,
    downSegments,
    downBias: bias ? layerVector(context, `${part}down_bias`, `${names.down}.bias`, hiddenSize) : undefined,
  };
}

export const listGatedMlp = ({ gateUp, gateUpBias, down, downBias }: GatedMlpSpecs): (Spec | undefined)[] => [
  gateUp,
  gateUpBias,
  down,
  downBias,
];

export const gatedMlpBytes = ({ gateUp, gateUpBias, down, downBias }: GatedMlpSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(gateUp, gateUpBias, down),
  shared: bytes(downBias),
});

export async function loadGatedMlp(loader: WeightLoader, specs: GatedMlpSpecs): Promise<GatedMlpWeights> {
  return {
    kind: 'gated',
    // Gate and up tiles are read together, so they can't lie in different bindings.
    gateUp: await loader.matrix(specs.gateUp, { whole: true }),
    gateUpBias: await loader.vector(specs.gateUpBias),
    down: await loader.matrix(specs.down),
    downSegments: specs.downSegments,
    downBias: await loader.vector(specs.downBias),
  };
}
