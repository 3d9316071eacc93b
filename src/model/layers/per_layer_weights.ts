import { known } from '../../base/errors.js';
import { type ModelConfig, perLayerWidth } from '../config/model_config.js';
import type { PerLayerNames } from '../config/tensor_names.js';
import type { RankSlice } from '../shape.js';
import {
  allRows,
  type MatrixSpec,
  someRows,
  type VectorSpec,
  type VocabSpec,
  wholeVector,
} from '../weights/weight_map.js';
import { type LayerContext, matrixSpec, partName } from './layer_weights.js';
import { type NormSpec, normSpec } from './norm.js';

/** Which tensors inputs for all layers are made of. Whole on each rank that runs rows, but for the table. */
export interface PerLayerSpecs {
  /** Rows of the tokens that the rank embeds, [layers * width]. */
  readonly table: VocabSpec | undefined;
  /** [layers * width, hiddenSize]. */
  readonly projection: MatrixSpec;
  readonly norm: VectorSpec;
}

/** The same of the part of a layer that reads its own. */
export interface PerLayerHalfSpecs {
  readonly gate: MatrixSpec;
  readonly project: MatrixSpec;
  readonly behind: NormSpec;
}

/** Undefined where the model has none. */
export function perLayerSpecs(
  config: ModelConfig,
  { embeddingRows }: Pick<RankSlice, 'embeddingRows'>,
): PerLayerSpecs | undefined {
  const width = perLayerWidth(config);
  if (width === undefined) return undefined;
  const { tensors, layers, vocabSize, hiddenSize } = config;
  const names = known(tensors.perLayer, 'names of inputs for each layer');
  const all = layers.length * width;
  return {
    table: embeddingRows && {
      matrix: {
        name: 'per_layer_inputs',
        inFeatures: all,
        parts: [someRows(`${names.table}.weight`, vocabSize, embeddingRows)],
      },
      firstRow: embeddingRows[0],
    },
    projection: {
      name: 'per_layer_projection',
      inFeatures: hiddenSize,
      parts: [allRows(`${names.projection}.weight`, all)],
    },
    norm: wholeVector('per_layer_norm', `${names.norm}.weight`, width),
  };
}

/** @param scaled what the norm behind becomes, which ends the layer */
export const perLayerHalfSpecs = (
  context: LayerContext,
  { width }: { readonly width: number },
  names: PerLayerNames,
  scaled: (norm: NormSpec) => NormSpec,
): PerLayerHalfSpecs => ({
  gate: matrixSpec(context, 'per_layer_gate', context.hiddenSize, [allRows(names.gate, width)]),
  project: matrixSpec(context, 'per_layer_project', width, [allRows(names.project, context.hiddenSize)]),
  behind: scaled(normSpec(context.norm, partName(context, 'per_layer_norm'), names.outNorm, context.hiddenSize)),
});
