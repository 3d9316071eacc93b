import type { AdapterMeasure, LayerMeasure, MachineMeasure } from '../cost/measure.js';
import type { ModelWork } from '../cost/step_rows.js';
import { sum } from '../../base/lists.js';
import type { ModelShape } from '../plan.js';
import type { CargoWidths } from '../routes.js';
import { sizesOf } from './sizes.js';

/** Layers whose weights pass at 1 GB per second and a tenth of that per row, and that attend to a million (kv head, token) pairs per second. */
export const LAYER: LayerMeasure = {
  generated: { secondsPerByte: 1e-9, secondsPerByteRow: 1e-10, layerSeconds: 0, attention: 1e-6 },
  prompt: { secondsPerByte: 1e-9, secondsPerByteRow: 1e-11, layerSeconds: 0, attention: 1e-7 },
};

const adapterOf = (options: Partial<AdapterMeasure> = {}): AdapterMeasure => ({
  name: 'test',
  dense: LAYER,
  expert: LAYER,
  head: { secondsPerByte: 1e-9, secondsPerByteRow: 1e-10 },
  dispatchSeconds: 0,
  submitSeconds: 0,
  waitSeconds: 0,
  ...options,
});

/** Equal adapters with equal links; by default free links between separate devices. */
export function machineOf(
  ranks: number,
  options: {
    readonly adapter?: Partial<AdapterMeasure>;
    readonly latencySeconds?: number;
    readonly bytesPerSecond?: number;
    /** As `MachineMeasure.slowdown` of n ranks. */
    readonly slowdown?: (ranks: number) => number;
  } = {},
): MachineMeasure {
  const { adapter, latencySeconds = 0, bytesPerSecond = Infinity, slowdown = () => 1 } = options;
  const all = Array.from({ length: ranks }, (_, rank) => rank);
  const slowdowns = all.map((rank) => slowdown(rank + 1));
  return {
    ranks: all.map(() => adapterOf(adapter)),
    links: all.map((to) => all.map((from) => (from === to ? undefined : { latencySeconds, bytesPerSecond }))),
    crowding: all.map(() => 1),
    slowdown: { generated: slowdowns, prompt: slowdowns },
  };
}

/** Heads of 64 f32, MLA's latent of 128; two experts a token. */
export const workOf = (shape: ModelShape, options: Partial<ModelWork> = {}): ModelWork => ({
  shape,
  sizes: sizesOf(shape),
  stepDispatches: 4,
  expertsPerToken: shape.numExperts > 0 ? 2 : 0,
  widths: widthsOf(shape),
  ...options,
});

function widthsOf({ segmentHeads, hiddenSize, latent, numExperts }: ModelShape): CargoWidths {
  const heads = (segments: readonly number[]): number => sum(segments.map((segment) => segmentHeads[segment]!));
  const experts = numExperts > 0 ? 2 : 0;
  return {
    heads,
    queries: (groups, withTokens) =>
      Math.max(
        ...groups.map((segments) =>
          latent
            ? (heads(segments) + (withTokens ? 1 : 0)) * 128 * 4
            : (heads(segments) + 2 * segments.length) * 64 * 4,
        ),
      ),
    state: latent ? 130 * 4 : 66 * 4,
    attended: (segments) => heads(segments) * (latent ? 128 : 64) * 4,
    segment: hiddenSize * 4,
    hidden: hiddenSize * 4,
    expertIds: experts * 4,
    experts: experts * hiddenSize * 4,
    candidates: () => 8,
  };
}
