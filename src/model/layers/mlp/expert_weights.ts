import { ceilDiv } from '../../../base/math.js';
import type { ExpertsConfig } from '../../config/model_config.js';
import type { Span } from '../../shape.js';
import { type ExpertNames, numbered } from '../../config/tensor_names.js';
import {
  allRows,
  type ExpertsSpec,
  type Loaded,
  type MatrixSpec,
  type VectorSpec,
  wholeVector,
} from '../../weights/weight_map.js';
import { type Bytes, type CutBytes, type LayerContext, partName } from '../layer_weights.js';
import { denseMlpBytes, type DenseMlpSpecs, denseMlpSpecs, GATE_UP_PAD } from './dense_weights.js';

/** Which tensors make a rank's slice of a mixture of experts. Undefined: the model has none, or the rank none of it. */
export interface ExpertSpecs {
  readonly kind: 'experts';
  /** Whole on every rank, and kept in f32 whatever the weight type: routing decides which experts run. */
  readonly router: MatrixSpec;
  readonly correctionBias: VectorSpec | undefined;
  /** Experts of the matrices below, by the model's numbers. */
  readonly experts: Span;
  /** Expert by expert: gate rows, then up rows, each padded to 32; undefined where there are no experts. */
  readonly expertsGateUp: ExpertsSpec | undefined;
  readonly expertsDown: ExpertsSpec | undefined;
  /** Of the rows of each. */
  readonly routerBias: VectorSpec | undefined;
  readonly gateUpBias: VectorSpec | undefined;
  readonly downBias: VectorSpec | undefined;
  readonly shared: DenseMlpSpecs | undefined;
  /** One row, whole on every rank, in f32; undefined: the shared experts have no gate. */
  readonly sharedGate: MatrixSpec | undefined;
  readonly config: ExpertsConfig;
}

/** The same on a device. */
export type ExpertWeights = Loaded<ExpertSpecs>;

export function expertSpecs(context: LayerContext, config: ExpertsConfig, names: ExpertNames): ExpertSpecs {
  const { hiddenSize, slice } = context;
  const { numExperts, width, sharedWidth, sharedGate, bias = false, packed: precision } = config;
  const [first, end] = slice.experts;
  const each = Array.from({ length: end - first }, (_, expert) => numbered(names, slice.index, first + expert));
  const biasOf = (what: string, tensors: readonly string[], tensorLength: number): VectorSpec | undefined =>
    bias && tensors.length > 0
      ? {
          name: partName(context, what),
          parts: tensors.map((tensor) => ({
            tensor: `${tensor}.bias`,
            tensorLength,
            first: 0,
            length: tensorLength,
            padTo: GATE_UP_PAD,
          })),
        }
      : undefined;
  return {
    kind: 'experts',
    router: {
      name: partName(context, 'router'),
      inFeatures: hiddenSize,
      parts: [allRows(`${names.router}.weight`, numExperts)],
      precision: 'f32',
    },
    correctionBias: config.correctionBias
      ? wholeVector(partName(context, 'correction_bias'), names.correctionBias, numExperts)
      : undefined,
    experts: slice.experts,
    expertsGateUp:
      each.length > 0
        ? {
            name: partName(context, 'experts_gate_up'),
            inFeatures: hiddenSize,
            granule: 2 * ceilDiv(width, GATE_UP_PAD),
            ...(precision && { precision }),
            parts: each.flatMap(({ gate, up }) =>
              [gate, up].map((half) => ({ ...allRows(`${half}.weight`, width), padTo: GATE_UP_PAD })),
            ),
          }
        : undefined,
    expertsDown:
      each.length > 0
        ? {
            name: partName(context, 'experts_down'),
            inFeatures: width,
            granule: ceilDiv(hiddenSize, GATE_UP_PAD),
            ...(precision && { precision }),
            parts: each.map(({ down }) => ({ ...allRows(`${down}.weight`, hiddenSize), padTo: GATE_UP_PAD })),
          }
        : undefined,
    routerBias: biasOf('router_bias', [names.router], numExperts),
    gateUpBias: biasOf(
      'experts_gate_up_bias',
      each.flatMap(({ gate, up }) => [gate, up]),
      width,
    ),
    downBias: biasOf(
      'experts_down_bias',
      each.map(({ down }) => down),
      hiddenSize,
    ),
    shared:
      sharedWidth > 0
        ? denseMlpSpecs(context, { kind: 'gated', width: sharedWidth, bias: false }, names.shared, 'shared_')
        : undefined,
    sharedGate: sharedGate && {
      name: partName(context, 'shared_gate'),
      inFeatures: hiddenSize,
      parts: [allRows(`${names.sharedGate}.weight`, 1)],
      precision: 'f32',
    },
    config,
  };
}

/** Of the shared experts' columns, of what each rank holds, and of one expert. */
export function expertBytes(specs: ExpertSpecs, bytes: Bytes): CutBytes {
  const shared = specs.shared ? denseMlpBytes(specs.shared, bytes) : { cut: 0, shared: 0 };
  return {
    cut: shared.cut,
    shared: shared.shared + bytes(specs.router, specs.correctionBias, specs.routerBias, specs.sharedGate),
    expert: bytes(specs.expertsGateUp, specs.expertsDown, specs.gateUpBias, specs.downBias) / specs.config.numExperts,
  };
}
