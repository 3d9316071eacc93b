import { SplitkvError } from '../../base/errors.js';
import type { AttentionConfig, MlpConfig, ModelConfig } from '../config/model_config.js';
import { type LayerContext, layerNorm } from '../layers/layer_weights.js';
import { attentionKinds, type AttentionSpecs, mlpKinds, type MlpSpecs } from '../layers/weight_kinds.js';
import { holdsWeights, type RankSlice, wholeSlice } from '../shape.js';
import { numbered, type TensorNames } from '../config/tensor_names.js';
import { type Spec, type VectorSpec, type VocabSpec, vocabMaps, wholeVector } from './weight_map.js';

/** Which tensors make a rank's slice of a layer. */
export interface LayerMap {
  /** Of the layer in the model. */
  readonly index: number;
  readonly inputNorm: VectorSpec;
  readonly attention: AttentionSpecs;
  readonly postNorm: VectorSpec;
  readonly mlp: MlpSpecs;
  /** Of layers with `outNorms`. */
  readonly attentionOutNorm: VectorSpec | undefined;
  readonly mlpOutNorm: VectorSpec | undefined;
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
  const { hiddenSize, normOffset = 0, tensors } = config;
  return {
    ...vocabMaps(config, slice),
    layers: slice.layers.filter(holdsWeights).map((held): LayerMap => {
      const { index } = held;
      const context = { hiddenSize, normOffset, slice: held };
      const names = numbered(tensors, index);
      const { attention, mlp, outNorms } = config.layers[index]!;
      const norm = (what: string, name: string): VectorSpec => layerNorm(context, what, name, hiddenSize);
      return {
        index,
        inputNorm: norm('input_norm', names.inputNorm),
        attention: attentionSpecs(context, attention, names),
        postNorm: norm('post_norm', names.postNorm),
        mlp: mlpSpecs(context, mlp, names),
        attentionOutNorm: outNorms ? norm('attention_out_norm', names.attentionOutNorm!) : undefined,
        mlpOutNorm: outNorms ? norm('mlp_out_norm', names.mlpOutNorm!) : undefined,
      };
    }),
    norm: slice.headRows && wholeVector('norm', `${tensors.norm}.weight`, hiddenSize, normOffset),
  };
}

function attentionSpecs(context: LayerContext, attention: AttentionConfig, names: TensorNames): AttentionSpecs {
  const own = names[attention.kind];
  if (!own) throw unnamed(attention.kind);
  return attentionKinds[attention.kind].specs(context, attention, own);
}

function mlpSpecs(context: LayerContext, mlp: MlpConfig, names: TensorNames): MlpSpecs {
  const own = names[mlp.kind];
  if (!own) throw unnamed(mlp.kind);
  return mlpKinds[mlp.kind].specs(context, mlp, own);
}

const unnamed = (kind: string): SplitkvError =>
  new SplitkvError('internal', `the model's family names no tensors of its ${kind} layers`);

/** Everything that the map loads, once. */
export function mapSpecs({ embedding, layers, norm, head }: ModelMap): Spec[] {
  return [
    embedding?.matrix,
    ...layers.flatMap(({ inputNorm, attention, postNorm, mlp, attentionOutNorm, mlpOutNorm }) => [
      inputNorm,
      ...attentionKinds[attention.kind].list(attention),
      postNorm,
      ...mlpKinds[mlp.kind].list(mlp),
      attentionOutNorm,
      mlpOutNorm,
    ]),
    norm,
    head === embedding ? undefined : head?.matrix,
  ].filter((spec) => spec !== undefined);
}
