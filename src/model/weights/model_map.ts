import { packedLayout, type MatrixType } from '../../../shaders/linear/pack.js';
import { known } from '../../base/errors.js';
import { headModel, type ModelConfig } from '../config/model_config.js';
import { LayerContext } from '../layers/layer_weights.js';
import { type InputSpecs, inputSpecs } from '../layers/inputs.js';
import { type NormSpec, normSpec, scaledNorm } from '../layers/norm.js';
import {
  perLayerHalfSpecs,
  type PerLayerHalfSpecs,
  type PerLayerSpecs,
  perLayerSpecs,
} from '../layers/per_layer_weights.js';
import { attentionKinds, type AttentionSpecs, mlpKinds, type MlpSpecs } from '../layers/weight_kinds.js';
import { holdsWeights, type RankSlice, spanLength, wholeSlice } from '../shape.js';
import { namesOf, numbered } from '../config/tensor_names.js';
import { nth, sum } from '../../base/lists.js';
import {
  expectedTensors,
  isMatrixSpec,
  type MatrixSpec,
  packedColumns,
  type Spec,
  specRows,
  specsIn,
  typedRuns,
  vectorLength,
  type VocabSpec,
  vocabMaps,
} from './weight_map.js';
import type { TypeBytes, WeightTypes } from './weight_types.js';

/** Which tensors make a rank's slice of a layer's half: attention or MLP, and the norms before and behind it. */
export interface HalfMap<Specs> {
  readonly before: NormSpec | undefined;
  readonly weights: Specs;
  readonly behind: NormSpec | undefined;
}

export interface LayerMap {
  /** Of the layer in the model. */
  readonly index: number;
  readonly attention: HalfMap<AttentionSpecs>;
  readonly mlp: HalfMap<MlpSpecs>;
  readonly perLayer: PerLayerHalfSpecs | undefined;
}

/** Where each GPU matrix of a rank's slice of a model comes from, or of all of it: plain data, no GPU. */
export interface ModelMap {
  readonly embedding: VocabSpec | undefined;
  /** Of which the rank holds weights. */
  readonly layers: readonly LayerMap[];
  /** Of what is embedded, where the first layer is. */
  readonly inputs: InputSpecs | undefined;
  /** Of inputs for each layer. */
  readonly perLayer: PerLayerSpecs | undefined;
  /** Where the head is. */
  readonly norm: NormSpec | undefined;
  /** The embedding itself when they are tied and the rank holds the same rows of both. */
  readonly head: VocabSpec | undefined;
}

export function modelMap(config: ModelConfig, slice: RankSlice = wholeSlice(config)): ModelMap {
  const { hiddenSize, norm, tensors } = config;
  const { embedding, head } = vocabMaps(config, slice);
  return {
    embedding,
    layers: slice.layers.filter(holdsWeights).map((held): LayerMap => {
      const { index } = held;
      const context = new LayerContext(hiddenSize, norm, held);
      const names = numbered(tensors, index);
      const { attention, mlp, norms = 'before', scaled, perLayer, bare } = nth(config.layers, index);
      const after = norms === 'after';
      const [before, behind] = [norms !== 'behind' && !after, norms === 'behind' || norms === 'both' || after];
      const of = (there: boolean, what: string, name: string | undefined): NormSpec | undefined =>
        there
          ? { ...context.residualNorm(what, known(name, `name of ${what}`)), ...(after && { ofSum: true }) }
          : undefined;
      const scaledBy = <N extends NormSpec | undefined>(last: N): N | NormSpec =>
        last && scaled ? scaledNorm(last, known(names.layerScale, 'name of a scale')) : last;
      const mlpOut = of(behind, 'mlp_out_norm', names.mlpOutNorm);
      return {
        index,
        attention: {
          before: of(before && !bare, 'input_norm', names.inputNorm),
          weights: attentionKinds[attention.kind].specs(context, attention, namesOf(names, attention.kind)),
          behind: of(behind, 'attention_out_norm', names.attentionOutNorm),
        },
        mlp: {
          before: of(before && norms !== 'shared', 'post_norm', names.postNorm),
          weights: mlpKinds[mlp.kind].specs(context, mlp, namesOf(names, mlp.kind)),
          behind: perLayer ? mlpOut : scaledBy(mlpOut),
        },
        perLayer: perLayer && perLayerHalfSpecs(context, perLayer, known(names.perLayer, 'names'), scaledBy),
      };
    }),
    inputs: slice.layers.some((layer) => layer.index === 0 && holdsWeights(layer)) ? inputSpecs(config) : undefined,
    perLayer: slice.layers.some(holdsWeights) ? perLayerSpecs(config) : undefined,
    norm:
      slice.headRows && config.layers.at(-1)?.norms !== 'after'
        ? normSpec(norm, 'norm', known(tensors.norm, 'name of the last norm'), hiddenSize)
        : undefined,
    head,
  };
}

/** Tensors that the layer for further tokens alone is made of. */
export function headTensors(config: ModelConfig): Set<string> {
  const head = headModel(config);
  const own = expectedTensors(weightSpecs(config));
  const all = head ? expectedTensors(weightSpecs(head)).keys() : [];
  return new Set([...all].filter((name) => !own.has(name)));
}

export const weightSpecs = (config: ModelConfig, slice: RankSlice = wholeSlice(config)): Spec[] => [
  ...specsIn(modelMap(config, slice)),
];

/** What a matrix takes on the GPU as each of its types, with the padding of tiles and blocks. */
const runBytes = (spec: MatrixSpec, types: WeightTypes): TypeBytes[] =>
  typedRuns(spec, types).map(({ spec: run, type }) => {
    const own = { rows: specRows(run), columns: spanLength(packedColumns(run, type)) };
    const stored = (run.packedAs ?? [own]).map(({ rows, columns }) => packedLayout(type, rows, columns));
    return { type, bytes: sum(stored.flatMap(({ weightBytes: weights, scaleBytes }) => [weights, scaleBytes])) };
  });

export const specBytes = (spec: Spec, types: WeightTypes): number =>
  isMatrixSpec(spec) ? sum(runBytes(spec, types).map(({ bytes }) => bytes)) : vectorLength(spec) * 4;

/** GPU bytes of a model's matrices by their types, that of the most bytes first. */
export function bytesByType(config: ModelConfig, types: WeightTypes): TypeBytes[] {
  const found = new Map<MatrixType, number>();
  for (const spec of weightSpecs(config)) {
    if (!isMatrixSpec(spec)) continue;
    for (const { type, bytes } of runBytes(spec, types)) found.set(type, (found.get(type) ?? 0) + bytes);
  }
  return [...found].map(([type, bytes]) => ({ type, bytes })).sort((a, b) => b.bytes - a.bytes);
}

/**
 * GPU bytes of a rank's weights, exactly as loading them allocates, and how many of the checkpoint's numbers it reads (those
 * that it holds twice, a tied table's, count twice).
 */
export function weightBytes(
  config: ModelConfig,
  types: WeightTypes,
  slice: RankSlice = wholeSlice(config),
): { readonly bytes: number; readonly parameters: number } {
  const specs = weightSpecs(config, slice);
  const parameters = sum([...expectedTensors(specs, types).values()].map(({ numbers }) => numbers));
  return { bytes: sum(specs.map((spec) => specBytes(spec, types))), parameters };
}
