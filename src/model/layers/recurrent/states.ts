import { limitError } from '../../../base/errors.js';
import { grouped } from '../../../base/math.js';
import type { LayerCache } from '../attention/cache.js';
import type { StageContext } from '../layer.js';

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
  const { maxStorageBufferBindingSize, maxBufferSize } = device.traits.limits;
  const most = Math.min(maxStorageBufferBindingSize, maxBufferSize);
  const states = Object.entries(lengths).flatMap(([what, length]) => {
    if (length === 0 || count === 0) return [];
    const bytes = length * 4;
    if (count * bytes > most || kept * bytes > maxBufferSize) {
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
