import { known } from '../../../base/errors.js';
import { range } from '../../../base/lists.js';
import { alignUp, ceilDiv } from '../../../base/math.js';
import type { DenseMlpConfig, ExpertsConfig } from '../../config/model_config.js';
import { type ExpertNames, type GatedMlpNames, numbered, type PlainMlpNames } from '../../config/tensor_names.js';
import { type HeldSegments, holdSegments, type Span, spanLength } from '../../shape.js';
import {
  allRows,
  type Loaded,
  type MatrixSpec,
  type Part,
  someRows,
  type VectorSpec,
} from '../../weights/weight_map.js';
import type { Bytes, CutBytes, LayerContext } from '../layer_weights.js';
import type { NormSpec } from '../norm.js';
import { DOWN_SEGMENTS } from '../roles.js';

/** Gate and up tiles must not share a 32-row tile: the fused SwiGLU reads tile t of each. */
const GATE_UP_PAD = 32;

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

export type DenseMlpWeights = Loaded<DenseMlpSpecs>;

/** @param part before the names of its matrices, where the layer has another dense MLP */
export function denseMlpSpecs(
  context: LayerContext,
  { kind, width, bias }: DenseMlpConfig,
  names: GatedMlpNames | PlainMlpNames,
  part = '',
): DenseMlpSpecs {
  const { hiddenSize } = context;
  const downSegments = holdSegments({ modelInFeatures: width, ...DOWN_SEGMENTS }, context.slice.mlp);
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
    gateUp: held ? context.matrix(`${part}gate_up`, hiddenSize, halves, { whole: true }) : undefined,
    gateUpBias: held && bias ? context.bias(`${part}gate_up_bias`, halves) : undefined,
    down: held ? context.output(`${part}down`, names.down, downSegments) : undefined,
    downSegments,
    downBias: bias ? context.whole(`${part}down_bias`, `${names.down}.bias`, hiddenSize) : undefined,
  };
}

export const denseMlpBytes = ({ gateUp, gateUpBias, down, downBias }: DenseMlpSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(gateUp, gateUpBias, down),
  shared: bytes(downBias),
});

/** Which tensors make a rank's slice of a mixture of experts. Undefined: the model has none, or the rank none of it. */
export interface ExpertSpecs {
  readonly kind: 'experts';
  /** Whole on every rank, and kept in f32 whatever the weight type: routing decides which experts run. */
  readonly router: MatrixSpec;
  readonly correctionBias: VectorSpec | undefined;
  /** Experts of the matrices below, by the model's numbers. */
  readonly experts: Span;
  /** Expert by expert: gate rows, then up rows, each padded to 32; undefined where there are no experts. The shared ones' lie behind. */
  readonly expertsGateUp: MatrixSpec | undefined;
  readonly expertsDown: MatrixSpec | undefined;
  /** Of the rows of each. */
  readonly routerBias: VectorSpec | undefined;
  readonly gateUpBias: VectorSpec | undefined;
  readonly downBias: VectorSpec | undefined;
  readonly shared: DenseMlpSpecs | undefined;
  /** One row, whole on every rank, in f32; undefined: the shared experts have no gate. */
  readonly sharedGate: MatrixSpec | undefined;
  readonly beside: BesideSpecs | undefined;
  readonly config: ExpertsConfig;
}

/** A dense MLP beside experts, and the norms of both. */
interface BesideSpecs {
  readonly mlp: DenseMlpSpecs;
  readonly mlpBehind: NormSpec;
  readonly before: NormSpec;
  readonly behind: NormSpec;
  /** Of what the router reads. */
  readonly router: NormSpec;
  /** By expert. */
  readonly expertScale: VectorSpec;
}

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
  const experts = (
    what: string,
    inFeatures: number,
    parts: readonly Part[],
    rows: number,
    beside: MatrixSpec | undefined,
  ): MatrixSpec | undefined =>
    parts.length > 0
      ? context.matrix(what, inFeatures, parts, {
          granule: ceilDiv(rows, GATE_UP_PAD),
          beside,
          ...(precision && { precision }),
        })
      : undefined;
  const shared =
    sharedWidth > 0
      ? denseMlpSpecs(
          context,
          { kind: 'gated', width: sharedWidth, activation: config.activation, bias: false },
          names.shared,
          'shared_',
        )
      : undefined;
  const biasOf = (what: string, parts: readonly Part[]): VectorSpec | undefined =>
    bias && parts.length > 0 ? context.bias(what, parts) : undefined;
  return {
    kind: 'experts',
    router: context.matrix('router', hiddenSize, [routed], { precision: 'f32' }),
    correctionBias: config.correctionBias
      ? context.whole('correction_bias', names.correctionBias, numExperts)
      : undefined,
    experts: slice.experts,
    expertsGateUp: experts('experts_gate_up', hiddenSize, gateUp, 2 * alignUp(width, GATE_UP_PAD), shared?.gateUp),
    expertsDown: experts('experts_down', width, downs, hiddenSize, shared?.down),
    routerBias: biasOf('router_bias', [routed]),
    gateUpBias: biasOf('experts_gate_up_bias', gateUp),
    downBias: biasOf('experts_down_bias', downs),
    shared,
    sharedGate: sharedGate
      ? context.matrix('shared_gate', hiddenSize, [allRows(known(names.sharedGate, 'name of a gate'), 1)], {
          precision: 'f32',
        })
      : undefined,
    beside: config.beside && besideSpecs(context, config, config.beside, known(names.beside, 'names beside experts')),
    config,
  };
}

function besideSpecs(
  context: LayerContext,
  { numExperts }: ExpertsConfig,
  mlp: DenseMlpConfig,
  names: NonNullable<ExpertNames['beside']>,
): BesideSpecs {
  const { norm: config, hiddenSize } = context;
  return {
    mlp: denseMlpSpecs(context, mlp, names.mlp),
    mlpBehind: context.residualNorm('mlp_beside_norm', names.mlpOutNorm),
    before: context.residualNorm('experts_norm', names.norm),
    behind: context.residualNorm('experts_out_norm', names.outNorm),
    router: { config, weight: context.whole('router_scale', names.routerScale, hiddenSize) },
    expertScale: context.whole('expert_scale', names.expertScale, numExperts),
  };
}

/** Of the shared experts' columns, of what each rank holds, and of one expert. */
export function expertBytes(specs: ExpertSpecs, bytes: Bytes): CutBytes {
  const { mlp = specs.shared, ...norms } = specs.beside ?? {};
  const shared = mlp ? denseMlpBytes(mlp, bytes) : { cut: 0, shared: 0 };
  return {
    cut: shared.cut,
    shared: shared.shared + bytes(specs.router, specs.correctionBias, specs.routerBias, specs.sharedGate, norms),
    expert: bytes(specs.expertsGateUp, specs.expertsDown, specs.gateUpBias, specs.downBias) / specs.config.numExperts,
  };
}
