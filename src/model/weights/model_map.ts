import { SplitkvError } from '../../base/errors.js';
import type { LayerConfig, ModelConfig } from '../config/model_config.js';
import { type GqaSpecs, gqaSpecs, listGqa } from '../layers/attention/gqa_weights.js';
import { listMla, type MlaSpecs, mlaSpecs } from '../layers/attention/mla_weights.js';
import { type LayerContext, layerVector } from '../layers/layer_weights.js';
import { type ExpertSpecs, expertSpecs, listExperts } from '../layers/mlp/expert_weights.js';
import { type GatedMlpSpecs, gatedMlpSpecs, listGatedMlp } from '../layers/mlp/gated_weights.js';
import { holdsWeights, type RankSlice, wholeSlice } from '../shape.js';
import { numbered, type TensorNames } from '../config/tensor_names.js';
import { type Spec, type VectorSpec, type VocabSpec, vocabMaps, wholeVector } from './weight_map.js';

export type AttentionSpecs = GqaSpecs | MlaSpecs;
export type MlpSpecs = GatedMlpSpecs | ExpertSpecs;

/** Which tensors make a rank's slice of a layer. */
export interface LayerMap {
  /** Of the layer in the model. */
  readonly index: number;
  readonly inputNorm: VectorSpec;
  readonly attention: AttentionSpecs;
  readonly postNorm: VectorSpec;
  readonly mlp: MlpSpecs;
}

/** Where each GPU matrix of a rank's slice of a model comes from, or of all of it: plain data, no GPU. */
export interface ModelMap {
  readonly embedding: VocabSpec | undefined;
  /** Of which the rank holds weights. */
  readonly layers: readonly LayerMap[];
  /** Where the head is. */
  readonly norm: VectorSpec | undefined;
  /** The embedding itself when they are tied and the rank holds the same rows of both. */
  readonly head: VocabSpec | undefined;
}

export function modelMap(config: ModelConfig, slice: RankSlice = wholeSlice(config)): ModelMap {
  const { hiddenSize, tensors } = config;
  return {
    ...vocabMaps(config, slice),
    layers: slice.layers.filter(holdsWeights).map((held): LayerMap => {
      const { index } = held;
      const context = { hiddenSize, slice: held };
      const names = numbered(tensors, index);
      const { attention, mlp } = config.layers[index]!;
      return {
        index,
        inputNorm: layerVector(context, 'input_norm', `${names.inputNorm}.weight`, hiddenSize),
        attention: attentionSpecs(context, attention, names),
        postNorm: layerVector(context, 'post_norm', `${names.postNorm}.weight`, hiddenSize),
        mlp: mlpSpecs(context, mlp, names),
      };
    }),
    norm: slice.headRows && wholeVector('norm', `${tensors.norm}.weight`, hiddenSize),
  };
}

function attentionSpecs(
  context: LayerContext,
  attention: LayerConfig['attention'],
  { gqa, mla }: TensorNames,
): AttentionSpecs {
  if (attention.kind === 'gqa' && gqa) return gqaSpecs(context, attention, gqa);
  if (attention.kind === 'mla' && mla) return mlaSpecs(context, attention, mla);
  throw unnamed(attention.kind);
}

function mlpSpecs(context: LayerContext, mlp: LayerConfig['mlp'], { gated, experts }: TensorNames): MlpSpecs {
  if (mlp.kind === 'gated' && gated) return gatedMlpSpecs(context, mlp, gated);
  if (mlp.kind === 'experts' && experts) return expertSpecs(context, mlp, experts);
  throw unnamed(mlp.kind);
}

const unnamed = (kind: string): SplitkvError =>
  new SplitkvError('internal', `the model's family names no tensors of its ${kind} layers`);

/** Everything that the map loads, once. */
export function mapSpecs({ embedding, layers, norm, head }: ModelMap): Spec[] {
  return [
    embedding?.matrix,
    ...layers.flatMap(({ inputNorm, attention, postNorm, mlp }) => [
      inputNorm,
      ...(attention.kind === 'gqa' ? listGqa(attention) : listMla(attention)),
      postNorm,
      ...(mlp.kind === 'gated' ? listGatedMlp(mlp) : listExperts(mlp)),
    ]),
    norm,
    head === embedding ? undefined : head?.matrix,
  ].filter((spec) => spec !== undefined);
}
