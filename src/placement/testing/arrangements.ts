import { Random } from '../../base/random.js';
import type { ArrangementFile } from '../../arrangement/index.js';
import type { CopySharing } from '../../arrangement/types.js';
import type { ModelShape } from '../plan.js';

/**
 * An arrangement by dice: every head anywhere, `copies` of a layer's heads on several ranks with unequal shares. Ranks may be left
 * without heads in a layer.
 */
export function randomArrangement(
  { numLayers, kvHeads }: Pick<ModelShape, 'numLayers' | 'kvHeads'>,
  ranks: number,
  options: {
    readonly seed: number;
    readonly copies?: number;
    readonly sharing?: CopySharing;
    /** Runs of layers on ranks of their own. */
    readonly pipeline?: number;
  },
): ArrangementFile {
  const random = new Random(options.seed);
  const { pipeline = 1 } = options;
  const stageRanks = ranks / pipeline;
  return {
    version: 1,
    policy: 'arranged',
    model: 'dice',
    ranks,
    mode: 'greedy',
    ...(options.sharing && { sharing: options.sharing }),
    ...(pipeline > 1 && { pipeline }),
    placement: Array.from({ length: numLayers }, (_, layer) => {
      const first = Math.floor((layer * pipeline) / numLayers) * stageRanks;
      const copied = new Set(Array.from({ length: options.copies ?? 0 }, () => random.integer(kvHeads)));
      return Array.from({ length: kvHeads }, (_, head) => {
        const count = copied.has(head) ? Math.min(stageRanks, 2 + random.integer(2)) : 1;
        const holders = new Set<number>();
        while (holders.size < count) holders.add(first + random.integer(stageRanks));
        const list = [...holders].toSorted((a, b) => a - b);
        const parts = list.map(() => 1 + random.integer(5));
        const total = parts.reduce((sum, part) => sum + part, 0);
        return list.map((rank, i) => ({ rank, share: parts[i]! / total }));
      });
    }),
  };
}
