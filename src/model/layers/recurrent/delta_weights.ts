import { range } from '../../../base/lists.js';
import type { DeltaConfig } from '../../config/model_config.js';
import type { DeltaNames } from '../../config/tensor_names.js';
import type { HeldSegments, Span } from '../../shape.js';
import {
  allRows,
  type Loaded,
  type MatrixSpec,
  type Part,
  someRows,
  type VectorSpec,
  wholeVector,
} from '../../weights/weight_map.js';
import { type Bytes, type CutBytes, type LayerContext, matrixSpec, partName, vectorSpec } from '../layer_weights.js';
import { heldHeads, heldSegments } from './states.js';

/** What a rank has of linear attention: of its key heads with their value heads. Undefined: it has none. */
export interface DeltaSpecs {
  readonly kind: 'delta';
  /** Elements of the value heads. */
  readonly held: HeldSegments;
  /** Rows of q, of k, of v, of z, of b and of a. */
  readonly input: MatrixSpec | undefined;
  /** [q, k and v][taps]. */
  readonly taps: VectorSpec | undefined;
  /** By value head, above 0. */
  readonly rates: VectorSpec | undefined;
  readonly dtBias: VectorSpec | undefined;
  /** Of each value head; never 1 + w. */
  readonly norm: VectorSpec | undefined;
  readonly output: MatrixSpec | undefined;
}

/** The same on a device. */
export type DeltaWeights = Loaded<DeltaSpecs>;

export function deltaSpecs(context: LayerContext, config: DeltaConfig, names: DeltaNames): DeltaSpecs {
  const { hiddenSize, slice } = context;
  const { keyHeads, valueHeads, keyDim, valueDim, taps } = config;
  const held = heldSegments(config, slice);
  const { keys, values } = heldHeads(config, held);
  if (held.start === held.end) {
    const none = { input: undefined, taps: undefined, rates: undefined, dtBias: undefined, norm: undefined };
    return { kind: 'delta', held, ...none, output: undefined };
  }
  const [allKeys, allValues] = [keyHeads * keyDim, valueHeads * valueDim];
  const ofKeys = (before: number): Span => [before + keys[0] * keyDim, before + keys[1] * keyDim];
  const ofValues = (before: number): Span => [before + held.start, before + held.end];
  // Channels of q, k and v.
  const channels = [ofKeys(0), ofKeys(allKeys), ofValues(2 * allKeys)];
  const all = 2 * allKeys + allValues;
  const ofHeads = (what: string, tensor: string, more?: Partial<VectorSpec>): VectorSpec =>
    vectorSpec(context, what, [someRows(tensor, valueHeads, values)], more);
  const input = [
    ...(names.qkvz === undefined
      ? [...channels.map((rows) => someRows(names.qkv, all, rows)), someRows(names.z, allValues, ofValues(0))]
      : fusedHeads(names.qkvz, config, keys)),
    ...(names.ba === undefined
      ? [names.b, names.a].map((name) => someRows(name, valueHeads, values))
      : [fusedGates(names.ba, config, values)]),
  ];
  const channelTaps = channels.map((rows) => someRows(`${names.taps}.weight`, all, rows));
  return {
    kind: 'delta',
    held,
    input: matrixSpec(context, 'delta_in', hiddenSize, input),
    taps: vectorSpec(context, 'delta_taps', channelTaps, { columns: taps }),
    rates: ofHeads('delta_rates', names.rates, { as: config.rates === 'log' ? 'exp' : 'negated' }),
    dtBias: ofHeads('delta_dt_bias', names.dtBias),
    norm: wholeVector(partName(context, 'delta_norm'), `${names.norm}.weight`, valueDim),
    output: matrixSpec(context, 'delta_out', allValues, [allRows(names.output, hiddenSize)], { segments: held }),
  };
}

/** Of all rows of each key head in one: those of q, then of k, of v and of z, of key heads [first, end). */
function fusedHeads(tensor: string, config: DeltaConfig, [first, end]: Span): Part[] {
  const { keyHeads, valueHeads, keyDim, valueDim } = config;
  const values = (valueHeads / keyHeads) * valueDim;
  const each = 2 * (keyDim + values);
  const bounds = [0, keyDim, 2 * keyDim, 2 * keyDim + values];
  return bounds.flatMap((from, part) =>
    range(first, end).map((head) =>
      someRows(tensor, keyHeads * each, [head * each + from, head * each + (bounds[part + 1] ?? each)]),
    ),
  );
}

/** Of each key head's b and a in one: all b, then all a, of value heads [first, end). */
function fusedGates(tensor: string, { keyHeads, valueHeads }: DeltaConfig, [first, end]: Span): Part {
  const ratio = valueHeads / keyHeads;
  const row = (head: number, which: number): number => (head - (head % ratio)) * 2 + which * ratio + (head % ratio);
  const order = [0, 1].flatMap((which) => range(0, end - first).map((head) => row(head, which)));
  return { ...someRows(tensor, 2 * valueHeads, [2 * first, 2 * end]), order };
}

export const deltaBytes = ({ norm, ...cut }: DeltaSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(cut),
  shared: bytes(norm),
});
