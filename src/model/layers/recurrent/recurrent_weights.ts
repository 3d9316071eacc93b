import { range } from '../../../base/lists.js';
import type { ConvConfig, DeltaConfig, RecurrentConfig } from '../../config/model_config.js';
import type { ConvNames, DeltaNames } from '../../config/tensor_names.js';
import type { HeldSegments, Span } from '../../shape.js';
import { type Loaded, type MatrixSpec, type Part, someRows, type VectorSpec } from '../../weights/weight_map.js';
import type { Bytes, CutBytes, LayerContext } from '../layer_weights.js';
import { heldSegments } from './states.js';

/**
 * Which tensors make a rank's slice of a recurrent mixer: of the channels of a gated short convolution, or of linear attention's key heads
 * with their value heads. Undefined: the mixer has none, or the rank none of it.
 */
export interface RecurrentSpecs {
  readonly kind: RecurrentConfig['kind'];
  /** Channels, or elements of the value heads. */
  readonly held: HeldSegments;
  /** Rows of B, of C and of x; or of q, of k, of v, of z, of b and of a. */
  readonly input?: MatrixSpec;
  /** [channels][taps]; of linear attention [q, k and v][taps]. */
  readonly taps?: VectorSpec;
  /** By value head, above 0. */
  readonly rates?: VectorSpec;
  readonly dtBias?: VectorSpec;
  /** Of each value head; never 1 + w. */
  readonly norm?: VectorSpec;
  readonly output?: MatrixSpec;
}

export type RecurrentWeights = Loaded<RecurrentSpecs>;

export function recurrentSpecs(
  context: LayerContext,
  config: RecurrentConfig,
  names: ConvNames | DeltaNames,
): RecurrentSpecs {
  const { hiddenSize, slice } = context;
  const { kind } = config;
  const held = heldSegments(config, slice);
  if (held.start === held.end) return { kind, held };
  const { input, channels, all, ...vectors } =
    kind === 'conv'
      ? convParts(config, held, names as ConvNames)
      : deltaParts(context, config, held, names as DeltaNames);
  const taps = channels.map((rows) => someRows(`${names.taps}.weight`, all, rows));
  return {
    kind,
    held,
    input: context.matrix(`${kind}_in`, hiddenSize, input),
    taps: context.vector(`${kind}_taps`, taps, { columns: config.taps }),
    ...vectors,
    output: context.output(`${kind}_out`, names.output, held),
  };
}

/** The mixer's own part of its specs. */
interface MixerParts extends Pick<RecurrentSpecs, 'rates' | 'dtBias' | 'norm'> {
  /** Of the first projection. */
  readonly input: readonly Part[];
  /** Of those of the convolution, of `all`. */
  readonly channels: readonly Span[];
  readonly all: number;
}

function convParts({ width }: ConvConfig, { start, end }: HeldSegments, names: ConvNames): MixerParts {
  const input = [0, width, 2 * width].map((before) => someRows(names.input, 3 * width, [before + start, before + end]));
  return { input, channels: [[start, end]], all: width };
}

function deltaParts(
  context: LayerContext,
  config: DeltaConfig,
  { start, end }: HeldSegments,
  names: DeltaNames,
): MixerParts {
  const { keyHeads, valueHeads, keyDim, valueDim } = config;
  const ratio = valueHeads / keyHeads;
  const values: Span = [start / valueDim, end / valueDim];
  const keys: Span = [values[0] / ratio, values[1] / ratio];
  const [allKeys, allValues] = [keyHeads * keyDim, valueHeads * valueDim];
  const ofKeys = (before: number): Span => [before + keys[0] * keyDim, before + keys[1] * keyDim];
  const ofValues = (before: number): Span => [before + start, before + end];
  const channels = [ofKeys(0), ofKeys(allKeys), ofValues(2 * allKeys)];
  const all = 2 * allKeys + allValues;
  const ofHeads = (what: string, tensor: string, more?: Partial<VectorSpec>): VectorSpec =>
    context.vector(what, [someRows(tensor, valueHeads, values)], more);
  const input = [
    ...(names.qkvz === undefined
      ? [...channels.map((rows) => someRows(names.qkv, all, rows)), someRows(names.z, allValues, ofValues(0))]
      : fusedHeads(names.qkvz, config, keys)),
    ...(names.ba === undefined
      ? [names.b, names.a].map((name) => someRows(name, valueHeads, values))
      : [fusedGates(names.ba, config, values)]),
  ];
  return {
    input,
    channels,
    all,
    rates: ofHeads('delta_rates', names.rates, config.rates === 'log' ? { as: 'exp' } : { times: -1 }),
    dtBias: ofHeads('delta_dt_bias', names.dtBias),
    norm: context.whole('delta_norm', `${names.norm}.weight`, valueDim),
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

export const recurrentBytes = ({ norm, ...cut }: RecurrentSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(cut),
  shared: bytes(norm),
});
