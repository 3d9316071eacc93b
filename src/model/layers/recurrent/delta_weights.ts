import type { DeltaConfig } from '../../config/model_config.js';
import type { DeltaNames } from '../../config/tensor_names.js';
import type { HeldSegments, Span } from '../../shape.js';
import {
  allRows,
  type Loaded,
  type MatrixPart,
  type MatrixSpec,
  someRows,
  type VectorPart,
  type VectorSpec,
  wholeVector,
} from '../../weights/weight_map.js';
import { type Bytes, type CutBytes, type LayerContext, partName } from '../layer_weights.js';
import { heldHeads, heldSegments } from './segments.js';

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
  const heads: Span = [values[0], values[1]];
  const ofHeads = (what: string, tensor: string, more: Partial<VectorPart> = {}): VectorSpec => ({
    name: partName(context, what),
    parts: [{ tensor, tensorLength: valueHeads, first: heads[0], length: heads[1] - heads[0], ...more }],
  });
  return {
    kind: 'delta',
    held,
    input: {
      name: partName(context, 'delta_in'),
      inFeatures: hiddenSize,
      parts: [
        ...(names.qkvz === undefined
          ? [
              ...channels.map((rows) => someRows(`${names.qkv}.weight`, all, rows)),
              someRows(`${names.z}.weight`, allValues, ofValues(0)),
            ]
          : fusedHeads(`${names.qkvz}.weight`, config, keys)),
        ...(names.ba === undefined
          ? [names.b, names.a].map((name) => someRows(`${name}.weight`, valueHeads, heads))
          : [fusedGates(`${names.ba}.weight`, config, heads)]),
      ],
    },
    taps: {
      name: partName(context, 'delta_taps'),
      parts: channels.map(([first, end]) => ({
        tensor: `${names.taps}.weight`,
        tensorLength: all * taps,
        shape: [all, 1, taps],
        first: first * taps,
        length: (end - first) * taps,
      })),
    },
    rates: ofHeads('delta_rates', names.rates, { as: config.rates === 'log' ? 'exp' : 'negated' }),
    dtBias: ofHeads('delta_dt_bias', names.dtBias),
    norm: wholeVector(partName(context, 'delta_norm'), `${names.norm}.weight`, valueDim),
    output: {
      name: partName(context, 'delta_out'),
      inFeatures: allValues,
      segments: held,
      parts: [allRows(`${names.output}.weight`, hiddenSize)],
    },
  };
}

/** Of all rows of each key head in one: those of q, then of k, of v and of z, of key heads [first, end). */
function fusedHeads(tensor: string, config: DeltaConfig, [first, end]: Span): MatrixPart[] {
  const { keyHeads, valueHeads, keyDim, valueDim } = config;
  const values = (valueHeads / keyHeads) * valueDim;
  const each = 2 * (keyDim + values);
  const parts = [
    [0, keyDim],
    [keyDim, 2 * keyDim],
    [2 * keyDim, 2 * keyDim + values],
    [2 * keyDim + values, each],
  ] as const;
  return parts.flatMap(([from, to]) =>
    Array.from({ length: end - first }, (_, i) => {
      const head = (first + i) * each;
      return someRows(tensor, keyHeads * each, [head + from, head + to]);
    }),
  );
}

/** Of each key head's b and a in one: all b, then all a, of value heads [first, end). */
function fusedGates(tensor: string, { keyHeads, valueHeads }: DeltaConfig, [first, end]: Span): MatrixPart {
  const ratio = valueHeads / keyHeads;
  const row = (head: number, which: number): number => (head - (head % ratio)) * 2 + which * ratio + (head % ratio);
  const order = [0, 1].flatMap((which) => Array.from({ length: end - first }, (_, head) => row(head, which)));
  return { ...someRows(tensor, 2 * valueHeads, [2 * first, 2 * end]), order };
}

export const deltaBytes = ({ norm, ...cut }: DeltaSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(cut),
  shared: bytes(norm),
});
