import { range } from '../../../base/lists.js';
import { alignUp, ceilDiv } from '../../../base/math.js';
import type { ExpertsConfig } from '../../config/model_config.js';
import type { Span } from '../../shape.js';
import { type ExpertNames, numbered } from '../../config/tensor_names.js';
import {
  allRows,
  type ExpertsSpec,
  type Loaded,
  type MatrixSpec,
  type Part,
  type VectorSpec,
  wholeVector,
} from '../../weights/weight_map.js';
import { biasSpec, type Bytes, type CutBytes, type LayerContext, matrixSpec, partName } from '../layer_weights.js';
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
  const each = range(first, end).map((expert) => numbered(names, slice.index, expert));
  const routed = allRows(names.router, numExperts);
  const rowsOf = (tensor: string, rows: number): Part => allRows(tensor, rows, { padTo: GATE_UP_PAD });
  const gateUp = each.flatMap(({ gate, up }) => [rowsOf(gate, width), rowsOf(up, width)]);
  const downs = each.map(({ down }) => rowsOf(down, hiddenSize));
  const experts = (what: string, inFeatures: number, parts: readonly Part[], rows: number): ExpertsSpec | undefined =>
    parts.length > 0
      ? matrixSpec(context, what, inFeatures, parts, {
          granule: ceilDiv(rows, GATE_UP_PAD),
          ...(precision && { precision }),
        })
      : undefined;
  const biasOf = (what: string, parts: readonly Part[]): VectorSpec | undefined =>
    bias && parts.length > 0 ? biasSpec(context, what, parts) : undefined;
  return {
    kind: 'experts',
    router: matrixSpec(context, 'router', hiddenSize, [routed], { precision: 'f32' }),
    correctionBias: config.correctionBias
      ? wholeVector(partName(context, 'correction_bias'), names.correctionBias, numExperts)
      : undefined,
    experts: slice.experts,
    expertsGateUp: experts('experts_gate_up', hiddenSize, gateUp, 2 * alignUp(width, GATE_UP_PAD)),
    expertsDown: experts('experts_down', width, downs, hiddenSize),
    routerBias: biasOf('router_bias', [routed]),
    gateUpBias: biasOf('experts_gate_up_bias', gateUp),
    downBias: biasOf('experts_down_bias', downs),
    shared:
      sharedWidth > 0
        ? denseMlpSpecs(
            context,
            { kind: 'gated', width: sharedWidth, activation: config.activation, bias: false },
            names.shared,
            'shared_',
          )
        : undefined,
    sharedGate: sharedGate
      ? matrixSpec(context, 'shared_gate', hiddenSize, [allRows(names.sharedGate!, 1)], { precision: 'f32' })
      : undefined,
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
