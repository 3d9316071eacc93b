import { limitError } from '../../../base/errors.js';
import { grouped } from '../../../base/math.js';
import { range, sum } from '../../../base/lists.js';
import {
  type AttentionConfig,
  isRecurrent,
  type ModelConfig,
  type RecurrentConfig,
} from '../../config/model_config.js';
import { type Contraction, type HeldSegments, holdSegments, type LayerSlice } from '../../shape.js';
import type { LayerCache } from '../attention/cache.js';
import type { StageContext } from '../layer.js';

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
        align: (config.valueHeads / config.keyHeads) * config.valueDim,
      };

/** Those of a rank's slice: a run of neighbours. */
export const heldSegments = (config: RecurrentConfig, { heads }: Pick<LayerSlice, 'heads'>): HeldSegments =>
  holdSegments(recurrentSegments(config), heads[0] ?? [0, 0]);

/** Elements of a row, of what a rank has of a mixer: of some segments, or none. */
export function mixerWidths(config: RecurrentConfig, { start, end } = { start: 0, end: 0 }) {
  const values = end - start;
  // B, C and x: x goes through the convolution.
  if (config.kind === 'conv') return { projected: 3 * values, channels: values, values, valueHeads: 0, memory: 0 };
  const { keyHeads: keys, valueHeads: all, keyDim, valueDim } = config;
  const valueHeads = values / valueDim;
  const channels = ((2 * valueHeads * keys) / all) * keyDim + values;
  // q, k and v, which do; z, b and a. `memory`: of the delta rule.
  return { projected: channels + values + 2 * valueHeads, channels, values, valueHeads, memory: values * keyDim };
}

/** Bytes of a sequence's whole state in a layer, by attention segment; undefined where it has none. */
export function stateSegments(attention: AttentionConfig): number[] | undefined {
  if (!isRecurrent(attention)) return undefined;
  return range(0, attention.segments).map((segment) => {
    const held = heldSegments(attention, { heads: [[segment, segment + 1]] });
    const { channels, memory } = mixerWidths(attention, held);
    return ((attention.taps - 1) * channels + memory) * 4;
  });
}

/** A run of a whole state's numbers. */
export type Strip = readonly [at: number, length: number];

/**
 * Which f32 numbers of a layer's whole state a rank's slice has, in the order of each of its buffers: the whole is the convolution's
 * [taps - 1][channels], and behind it the delta rule's memory [value heads]. Undefined where the layer has none.
 */
export function stateStrips(
  attention: AttentionConfig,
  heads: LayerSlice['heads'],
): { readonly length: number; readonly buffers: readonly (readonly Strip[])[] } | undefined {
  if (!isRecurrent(attention)) return undefined;
  const whole = { start: 0, end: recurrentSegments(attention).modelInFeatures };
  const { channels: all, memory } = mixerWidths(attention, whole);
  const { start, end } = heads.length > 0 ? heldSegments(attention, { heads }) : { start: 0, end: 0 };
  const before = mixerWidths(attention, { start: 0, end: start });
  const held = mixerWidths(attention, { start, end });
  // Channels of q, of k and of v, one after the other; or of x alone.
  const keys = (all - whole.end) / 2;
  const ownKeys: Strip = [(before.channels - start) / 2, (held.channels - held.values) / 2];
  const runs: readonly Strip[] = [ownKeys, [keys + ownKeys[0], ownKeys[1]], [2 * keys + start, held.values]];
  const taps = attention.taps - 1;
  const conv = range(0, taps).flatMap((tap) => runs.map(([at, length]): Strip => [tap * all + at, length]));
  const rule: Strip[] = [[taps * all + before.memory, held.memory]];
  const buffers = [conv, rule].map((strips) => strips.filter(([, length]) => length > 0));
  return { length: taps * all + memory, buffers: buffers.filter((strips) => strips.length > 0) };
}

/** What copies of states may take, about, and how many there are at least and at most. */
const KEPT_BYTES = 2 ** 28;
const [LEAST_KEPT, MOST_KEPT] = [2, 32];

/** States that are kept of a model, for sequences that begin like others; 0 where it has no layers with a state. */
export function keptStates({ layers }: Pick<ModelConfig, 'layers'>): number {
  const bytes = sum(layers.flatMap(({ attention }) => stateSegments(attention) ?? []));
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
