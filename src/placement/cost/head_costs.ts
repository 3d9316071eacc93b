import { range, sum } from '../../base/lists.js';
import type { HeadCosts } from '../../arrangement/types.js';
import type { LayerSizes } from '../sizes.js';
import { type AdapterMeasure, linearSeconds, type MachineMeasure, type RowsMeasure } from './measure.js';
import type { ModelWork } from './work.js';

/**
 * What a head costs each of the machine's first ranks in a decode step, as was measured for predictions: attention by its entries, its
 * projections by being there, in a layer on average. And what it takes there, of what budgets leave beside MLPs and vocabulary.
 */
export function headCosts(
  { shape, sizes }: ModelWork,
  machine: MachineMeasure,
  ranks: number,
  { batch = 1 }: { readonly batch?: number },
): HeadCosts {
  const { layers } = sizes;
  const mean = (of: (layer: LayerSizes) => number): number => sum(layers.map(of)) / layers.length;
  const headBytes = ({ attentionSegments }: LayerSizes): number => sum(attentionSegments) / shape.segmentHeads.length;
  const measures = machine.ranks.slice(0, ranks);
  const beside = layers.reduce(
    (all, { attentionShared, mlpShared, mlpSegments, expert }) =>
      all + attentionShared + mlpShared + (sum(mlpSegments) + shape.numExperts * expert) / ranks,
    (shape.vocabSize * (sizes.embeddingRow + (sizes.tied ? 0 : sizes.headRow))) / ranks,
  );
  return {
    secondsPerEntry: measures.map((adapter) => mean((layer) => ofLayer(adapter, layer).attention)),
    secondsPerHead: measures.map((adapter) =>
      mean((layer) => linearSeconds(ofLayer(adapter, layer), headBytes(layer), batch)),
    ),
    bytesPerHead: mean(headBytes),
    bytesPerEntry: mean(({ kvToken }) => kvToken),
    ...(measures.some(({ budgetBytes }) => budgetBytes !== undefined) && {
      memoryBytes: range(0, ranks).map((rank) => Math.max(0, (measures[rank]!.budgetBytes ?? Infinity) - beside)),
    }),
  };
}

const ofLayer = (adapter: AdapterMeasure, { expert }: LayerSizes): RowsMeasure =>
  (expert > 0 ? adapter.expert : adapter.dense)!.generated;
