import { limitError } from '../../../base/errors.js';
import { grouped } from '../../../base/math.js';
import { range, sum } from '../../../base/lists.js';
import {
  type AttentionConfig,
  type DeltaConfig,
  isRecurrent,
  type MambaConfig,
  type ModelConfig,
  type RecurrentConfig,
} from '../../config/model_config.js';
import {
  type Contraction,
  type HeldSegments,
  holdSegments,
  type LayerSlice,
  type Span,
  spanLength,
} from '../../shape.js';
import type { LayerCache } from '../attention/cache.js';
import type { StageContext } from '../layer.js';

export type LinearConfig = DeltaConfig | MambaConfig;

/** A lone key head of Mamba-2 is every rank's. */
export const sharesKeys = ({ kind, keyHeads }: LinearConfig): boolean => kind === 'mamba' && keyHeads === 1;

/** Value heads that go together: those of a key head that ranks don't share. */
const headsTogether = (config: LinearConfig): number => (sharesKeys(config) ? 1 : config.valueHeads / config.keyHeads);

/** Elements of q, and of k, of the value heads' elements [start, end). */
export function keysOf(config: LinearConfig, { start, end }: { readonly start: number; readonly end: number }): Span {
  const { keyDim, valueDim } = config;
  if (sharesKeys(config)) return [0, end > start ? keyDim : 0];
  const each = headsTogether(config) * valueDim;
  return [(start / each) * keyDim, (end / each) * keyDim];
}

/**
 * How ranks cut a recurrent mixer: its output's contraction in as many segments as attention has kv heads, as even as whole heads of
 * keys (with their value heads) or 8 channels allow.
 */
const recurrentSegments = (config: RecurrentConfig): Contraction =>
  config.kind === 'conv'
    ? { modelInFeatures: config.width, total: config.segments, align: 8 }
    : {
        modelInFeatures: config.valueHeads * config.valueDim,
        total: config.segments,
        align: headsTogether(config) * config.valueDim,
      };

/** Those of a rank's slice: a run of neighbours. */
export const heldSegments = (config: RecurrentConfig, { heads }: Pick<LayerSlice, 'heads'>): HeldSegments =>
  holdSegments(recurrentSegments(config), heads[0] ?? [0, 0]);

/** Elements of a row, of what a rank has of a mixer: of some segments, or none. */
export function mixerWidths(config: RecurrentConfig, { start, end } = { start: 0, end: 0 }) {
  const values = end - start;
  // B, C and x: x goes through the convolution.
  if (config.kind === 'conv')
    return { projected: 3 * values, channels: values, keys: [0, 0] as Span, values, valueHeads: 0, memory: 0 };
  const keys = keysOf(config, { start, end });
  const valueHeads = values / config.valueDim;
  const channels = 2 * spanLength(keys) + values;
  const gates = (config.kind === 'delta' ? 2 : 1) * valueHeads;
  // q, k and v, which do; z, and of each value head b and a, or dt. `memory`: of the value heads.
  return { projected: channels + values + gates, channels, keys, values, valueHeads, memory: values * config.keyDim };
}

/** Bytes of a sequence's state in a layer: by attention segment, and what each rank with some of it has besides; undefined without one. */
export function stateBytes(
  attention: AttentionConfig,
): { readonly segments: readonly number[]; readonly shared: number } | undefined {
  if (!isRecurrent(attention)) return undefined;
  const taps = attention.taps - 1;
  const shared = attention.kind !== 'conv' && sharesKeys(attention) ? taps * 2 * attention.keyDim * 4 : 0;
  const segments = range(0, attention.segments).map((segment) => {
    const held = heldSegments(attention, { heads: [[segment, segment + 1]] });
    const { channels, memory, values } = mixerWidths(attention, held);
    return (taps * channels + memory) * 4 - (values > 0 ? shared : 0);
  });
  return { segments, shared };
}

/** A run of a whole state's numbers. */
export type Strip = readonly [at: number, length: number];

/**
 * Which f32 numbers of a layer's whole state a rank's slice has, in the order of each of its buffers: the whole is the convolution's
 * [taps - 1][channels], and behind it the memories [value heads]. Undefined where the layer has none.
 */
export function stateStrips(
  attention: AttentionConfig,
  heads: LayerSlice['heads'],
): { readonly length: number; readonly buffers: readonly (readonly Strip[])[] } | undefined {
  if (!isRecurrent(attention)) return undefined;
  const whole = { start: 0, end: recurrentSegments(attention).modelInFeatures };
  const { channels: all, memory } = mixerWidths(attention, whole);
  const { start, end } = heads.length > 0 ? heldSegments(attention, { heads }) : { start: 0, end: 0 };
  const held = mixerWidths(attention, { start, end });
  // Channels of q, of k and of v, one after the other; or of x alone.
  const keys = (all - whole.end) / 2;
  const [first, ownKeys] = [held.keys[0], spanLength(held.keys)];
  const runs: readonly Strip[] = [
    [first, ownKeys],
    [keys + first, ownKeys],
    [2 * keys + start, held.values],
  ];
  const taps = attention.taps - 1;
  const conv = range(0, taps).flatMap((tap) => runs.map(([at, length]): Strip => [tap * all + at, length]));
  const rule: Strip[] = [[taps * all + (memory / whole.end) * start, held.memory]];
  const buffers = [conv, rule].map((strips) => strips.filter(([, length]) => length > 0));
  return { length: taps * all + memory, buffers: buffers.filter((strips) => strips.length > 0) };
}

/** What copies of states may take, about, and how many there are at least and at most. */
const KEPT_BYTES = 2 ** 28;
const [LEAST_KEPT, MOST_KEPT] = [2, 32];

/** States that are kept of a model, for sequences that begin like others; 0 where it has no layers with a state. */
export function keptStates({ layers }: Pick<ModelConfig, 'layers'>): number {
  const bytes = sum(
    layers.map(({ attention }) => {
      const { segments, shared } = stateBytes(attention) ?? { segments: [], shared: 0 };
      return sum(segments) + shared;
    }),
  );
  return bytes === 0 ? 0 : Math.min(MOST_KEPT, Math.max(LEAST_KEPT, Math.floor(KEPT_BYTES / bytes)));
}

/**
 * A layer's states: in each buffer one for every sequence whose rows the rank may run, and beside it those that are kept.
 * @param lengths f32 numbers of a state in each buffer, by the buffer's name; 0: it has none
 * @throws SplitkvError `limit`
 */
export function allocateStates(
  { device, cache }: StageContext,
  layer: number,
  lengths: Readonly<Record<string, number>>,
): LayerCache {
  const { count, kept } = cache.states;
  const { bindingLimit: most, traits } = device;
  const states = Object.entries(lengths).flatMap(([what, length]) => {
    if (length === 0 || count === 0) return [];
    const bytes = length * 4;
    if (count * bytes > most || kept * bytes > traits.limits.maxBufferSize) {
      throw limitError(
        `layers.${layer}: the states of ${count} sequences take ${grouped(count * bytes)} bytes, and ${kept} are kept; this adapter ` +
          `binds ${grouped(most)} (${device.name}): use at most ${Math.floor(most / bytes)} slots`,
      );
    }
    const name = `layers.${layer}.${what}_state`;
    return [
      {
        bytes,
        buffer: device.createBuffer(`${name} (${count})`, count * bytes),
        kept: kept > 0 ? device.createBuffer(`${name} (${kept} kept)`, kept * bytes) : undefined,
      },
    ];
  });
  return { layer, buffers: [], bytes: 0, bytesPerToken: 0, states };
}
