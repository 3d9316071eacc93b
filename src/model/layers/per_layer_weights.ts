import { known } from '../../base/errors.js';
import { type ModelConfig, perLayerWidth } from '../config/model_config.js';
import type { PerLayerNames } from '../config/tensor_names.js';
import type { TokenTable } from '../weights/token_rows.js';
import { allRows, type MatrixSpec, type VectorSpec, wholeVector } from '../weights/weight_map.js';
import type { LayerContext } from './layer_weights.js';
import type { NormSpec } from './norm.js';

/** Which tensors inputs for all layers are made of, with rows of `perLayerTable`. Whole on each rank that runs rows. */
export interface PerLayerSpecs {
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

/** A token's part of the inputs for all layers, [layers * width]. Undefined where the model has none. */
export function perLayerTable(config: ModelConfig): TokenTable | undefined {
  const { tensors, layers, vocabSize } = config;
  const width = perLayerWidth(config);
  if (width === undefined) return undefined;
  const { table } = known(tensors.perLayer, 'names of inputs for each layer');
  return { name: `${table}.weight`, rows: vocabSize, columns: layers.length * width, scaleBy: Math.sqrt(width) };
}

export function perLayerSpecs(config: ModelConfig): PerLayerSpecs | undefined {
  const width = perLayerWidth(config);
  if (width === undefined) return undefined;
  const { tensors, layers, hiddenSize } = config;
  const names = known(tensors.perLayer, 'names of inputs for each layer');
  const all = layers.length * width;
  return {
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
  gate: context.matrix('per_layer_gate', context.hiddenSize, [allRows(names.gate, width)]),
  project: context.matrix('per_layer_project', width, [allRows(names.project, context.hiddenSize)]),
  behind: scaled(context.residualNorm('per_layer_norm', names.outNorm)),
});
