import type { PackedType } from '../../../../shaders/linear/pack.js';
import { ceilDiv } from '../../../base/math.js';
import type { Buffer } from '../../../gpu/index.js';
import type { ExpertsConfig } from '../../config/model_config.js';
import type { Matrix } from '../../weights/matrix.js';
import type { Span } from '../../shape.js';
import { type ExpertNames, numbered } from '../../config/tensor_names.js';
import type { WeightLoader } from '../../weights/weight_loader.js';
import { allRows, type MatrixSpec, type Spec, type VectorSpec, wholeVector } from '../../weights/weight_map.js';
import { type Bytes, type CutBytes, type LayerContext, partName } from '../layer_weights.js';
import {
  GATE_UP_PAD,
  denseMlpBytes,
  type DenseMlpSpecs,
  denseMlpSpecs,
  type DenseMlpWeights,
  listDenseMlp,
  loadDenseMlp,
} from './dense_weights.js';

/** Which tensors make a rank's slice of a mixture of experts. Undefined: the model has none, or the rank none of it. */
export interface ExpertSpecs {
  readonly kind: 'experts';
  readonly router: MatrixSpec;
  readonly correctionBias: VectorSpec | undefined;
  /** Experts of the matrices below, by the model's numbers. */
  readonly experts: Span;
  /** Expert by expert: gate rows, then up rows, each padded to 32. */
  readonly expertsGateUp: MatrixSpec | undefined;
  readonly expertsDown: MatrixSpec | undefined;
  /** Of the rows of each. */
  readonly routerBias: VectorSpec | undefined;
  readonly gateUpBias: VectorSpec | undefined;
  readonly downBias: VectorSpec | undefined;
  readonly shared: DenseMlpSpecs | undefined;
  readonly sharedGate: MatrixSpec | undefined;
  readonly config: ExpertsConfig;
}

/** The same on a device. */
export interface ExpertWeights {
  readonly kind: 'experts';
  /** Whole on every rank, and kept in f32 whatever the weight type: routing decides which experts run. */
  readonly router: Matrix;
  readonly correctionBias: Buffer | undefined;
  /** The experts of the two matrices, by the model's numbers; undefined matrices where they are none. */
  readonly experts: Span;
  readonly expertsGateUp: Matrix<PackedType> | undefined;
  readonly expertsDown: Matrix<PackedType> | undefined;
  readonly routerBias: Buffer | undefined;
  readonly gateUpBias: Buffer | undefined;
  readonly downBias: Buffer | undefined;
  /** Undefined: the model has none. */
  readonly shared: DenseMlpWeights | undefined;
  /** One row, whole on every rank, in f32; undefined: the shared experts have no gate. */
  readonly sharedGate: Matrix | undefined;
}

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
    // Whole on every rank, in f32: a router's rounding changes which experts run.
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

export const listExperts = (specs: ExpertSpecs): (Spec | undefined)[] => [
  specs.router,
  specs.correctionBias,
  specs.expertsGateUp,
  specs.expertsDown,
  specs.routerBias,
  specs.gateUpBias,
  specs.downBias,
  ...(specs.shared ? listDenseMlp(specs.shared) : []),
  specs.sharedGate,
];

/** Of the shared experts' columns, of what each rank holds, and of one expert. */
export function expertBytes(specs: ExpertSpecs, bytes: Bytes): CutBytes {
  const shared = specs.shared ? denseMlpBytes(specs.shared, bytes) : { cut: 0, shared: 0 };
  return {
    cut: shared.cut,
    shared: shared.shared + bytes(specs.router, specs.correctionBias, specs.routerBias, specs.sharedGate),
    expert: bytes(specs.expertsGateUp, specs.expertsDown, specs.gateUpBias, specs.downBias) / specs.config.numExperts,
  };
}

export async function loadExperts(loader: WeightLoader, specs: ExpertSpecs): Promise<ExpertWeights> {
  const tiles = ceilDiv(specs.config.width, 32);
  return {
    kind: 'experts',
    router: await loader.matrix(specs.router),
    correctionBias: await loader.vector(specs.correctionBias),
    experts: specs.experts,
    // Shards hold whole experts.
    expertsGateUp: await loader.experts(specs.expertsGateUp, { granule: 2 * tiles }),
    expertsDown: await loader.experts(specs.expertsDown, { granule: ceilDiv(specs.router.inFeatures, 32) }),
    routerBias: await loader.vector(specs.routerBias),
    gateUpBias: await loader.vector(specs.gateUpBias),
    downBias: await loader.vector(specs.downBias),
    shared: specs.shared && (await loadDenseMlp(loader, specs.shared)),
    sharedGate: await loader.matrix(specs.sharedGate),
  };
}
