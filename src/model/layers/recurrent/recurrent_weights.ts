import { range } from '../../../base/lists.js';
import type { ConvConfig, RecurrentConfig } from '../../config/model_config.js';
import type { ConvNames, DeltaNames, MambaNames } from '../../config/tensor_names.js';
import type { HeldSegments, Span } from '../../shape.js';
import { type Loaded, type MatrixSpec, type Part, someRows, type VectorSpec } from '../../weights/weight_map.js';
import type { Bytes, CutBytes, LayerContext } from '../layer_weights.js';
import { heldSegments, keysOf, type LinearConfig, sharesKeys } from './states.js';

/**
 * Which tensors make a rank's slice of a recurrent mixer: of the channels of a gated short convolution, or of linear attention's key heads
 * with their value heads. Mamba-2's C, B, x and dt stand in place of q, k, v and a. Undefined: the mixer has none, or the rank none of it.
 */
export interface RecurrentSpecs {
  readonly kind: RecurrentConfig['kind'];
  /** Channels, or elements of the value heads. */
  readonly held: HeldSegments;
  /** Every rank has all keys. */
  readonly sharedKeys?: boolean;
  /** Rows of B, of C and of x; or of q, of k, of v, of z, of b (Mamba-2: none) and of a. */
  readonly input?: MatrixSpec;
  /** [channels][taps]; of linear attention [q, k and v][taps]. */
  readonly taps?: VectorSpec;
  readonly convBias?: VectorSpec | undefined;
  /** By value head, above 0. */
  readonly rates?: VectorSpec;
  readonly dtBias?: VectorSpec;
  /** Of each value head, or of all that the rank has, one after another; never 1 + w. */
  readonly norm?: VectorSpec;
  /** By value head: what of v is added to what is read. */
  readonly skip?: VectorSpec;
  readonly output?: MatrixSpec;
}

export type RecurrentWeights = Loaded<RecurrentSpecs>;

export function recurrentSpecs(
  context: LayerContext,
  config: RecurrentConfig,
  names: ConvNames | DeltaNames | MambaNames,
): RecurrentSpecs {
  const { hiddenSize, slice } = context;
  const { kind } = config;
  const held = heldSegments(config, slice);
  if (held.start === held.end) return { kind, held };
  const { input, channels, all, ...vectors } =
    config.kind === 'conv'
      ? convParts(config, held, names as ConvNames)
      : linearParts(context, config, held, names as DeltaNames | MambaNames);
  const convolved = (of: string): Part[] => channels.map((rows) => someRows(`${names.taps}.${of}`, all, rows));
  return {
    kind,
    held,
    sharedKeys: config.kind !== 'conv' && sharesKeys(config),
    input: context.matrix(`${kind}_in`, hiddenSize, input),
    taps: context.vector(`${kind}_taps`, convolved('weight'), { columns: config.taps }),
    convBias:
      config.kind === 'mamba' && config.convBias ? context.vector(`${kind}_conv_bias`, convolved('bias')) : undefined,
    ...vectors,
    output: context.output(`${kind}_out`, names.output, held),
  };
}

/** The mixer's own part of its specs. */
interface MixerParts extends Pick<RecurrentSpecs, 'rates' | 'dtBias' | 'norm' | 'skip'> {
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

/** Channels here are those of q (Mamba-2: C), then of k (B) and of v (x), whatever their order in the files. */
function linearParts(
  context: LayerContext,
  config: LinearConfig,
  held: HeldSegments,
  names: DeltaNames | MambaNames,
): MixerParts {
  const { kind, keyHeads, valueHeads, keyDim, valueDim } = config;
  const values: Span = [held.start, held.end];
  const heads: Span = [held.start / valueDim, held.end / valueDim];
  const keys = keysOf(config, held);
  const [allKeys, allValues] = [keyHeads * keyDim, valueHeads * valueDim];
  const all = 2 * allKeys + allValues;
  const behind = (before: number, [first, end]: Span): Span => [before + first, before + end];
  const [q, k, v] =
    kind === 'delta' ? ([0, allKeys, 2 * allKeys] as const) : ([allValues + allKeys, allValues, 0] as const);
  const channels = [behind(q, keys), behind(k, keys), behind(v, values)];
  const ofHeads = (what: string, tensor: string, more?: Partial<VectorSpec>): VectorSpec =>
    context.vector(`${kind}_${what}`, [someRows(tensor, valueHeads, heads)], more);
  const common = {
    channels,
    all,
    rates: ofHeads('rates', names.rates, config.rates === 'log' ? { as: 'exp' } : { times: -1 }),
    dtBias: ofHeads('dt_bias', names.dtBias),
  };
  if ('skip' in names) {
    // z stands first in the files, and dt last.
    const spans = [...channels.map((span) => behind(allValues, span)), values, behind(allValues + all, heads)];
    return {
      ...common,
      input: spans.map((span) => someRows(names.input, allValues + all + valueHeads, span)),
      skip: ofHeads('skip', names.skip),
      norm: context.vector('mamba_norm', [someRows(`${names.norm}.weight`, allValues, values)]),
    };
  }
  const input = [
    ...(names.qkvz === undefined
      ? [...channels.map((rows) => someRows(names.qkv, all, rows)), someRows(names.z, allValues, values)]
      : fusedHeads(names.qkvz, config, [keys[0] / keyDim, keys[1] / keyDim])),
    ...(names.ba === undefined
      ? [names.b, names.a].map((name) => someRows(name, valueHeads, heads))
      : [fusedGates(names.ba, config, heads)]),
  ];
  return { ...common, input, norm: context.whole('delta_norm', `${names.norm}.weight`, valueDim) };
}

/** Of all rows of each key head in one: those of q, then of k, of v and of z, of key heads [first, end). */
function fusedHeads(tensor: string, config: LinearConfig, [first, end]: Span): Part[] {
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
function fusedGates(tensor: string, { keyHeads, valueHeads }: LinearConfig, [first, end]: Span): Part {
  const ratio = valueHeads / keyHeads;
  const row = (head: number, which: number): number => (head - (head % ratio)) * 2 + which * ratio + (head % ratio);
  const order = [0, 1].flatMap((which) => range(0, end - first).map((head) => row(head, which)));
  return { ...someRows(tensor, 2 * valueHeads, [2 * first, 2 * end]), order };
}

/** Ranks don't cut a norm of each head, nor what comes first where they share keys: the rows of q and of k. */
export function recurrentBytes(specs: RecurrentSpecs, bytes: Bytes): CutBytes {
  const { kind, sharedKeys, norm, input, taps, convBias } = specs;
  const keys = sharedKeys
    ? [input, taps, convBias].map((spec) => spec && { ...spec, parts: spec.parts.slice(0, 2) })
    : [];
  const shared = bytes(kind === 'delta' ? norm : undefined, ...keys);
  return { cut: bytes(specs) - shared, shared };
}
