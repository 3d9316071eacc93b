import { partialsPerSlot } from '../../shaders/sampling/params.js';
import { known } from '../base/errors.js';
import { nth, sum } from '../base/lists.js';
import { alignUp } from '../base/math.js';
import type { LayerSizes, ModelSizes, ModelWork } from '../placement/index.js';
import {
  attentionOf,
  cacheLayer,
  expertsOf,
  isRecurrent,
  type LayerConfig,
  layerWindows,
  type ModelConfig,
  segmentKvHeads,
} from './config/model_config.js';
import { keptStates, stateBytes } from './layers/recurrent/states.js';
import { type KvType, kvTokenBytes } from './layers/attention/cache.js';
import type { Bytes } from './layers/layer_weights.js';
import { activationStride, queryStride } from './layers/roles.js';
import { attentionKinds, mlpKinds } from './layers/weight_kinds.js';
import { type HalfMap, type LayerMap, modelMap, specBytes } from './weights/model_map.js';
import { headsOf, mlpSegments, modelShape, queryRow } from './shape.js';
import { specsIn, type VocabSpec } from './weights/weight_map.js';
import type { WeightTypes } from './weights/weight_types.js';

/**
 * Bytes of a model as placement adds them up. A layer's cut matrices are shared out by heads and by columns, so all segments
 * together are exact; ranks whose cuts don't fall on tiles of 32 rows and blocks of 32 columns take a tile or block more
 * (`weightBytes` is exact).
 */
export function modelSizes(config: ModelConfig, types: WeightTypes, kvType: KvType): ModelSizes {
  const bytes: Bytes = (...parts) =>
    sum(parts.flatMap((part) => [...specsIn(part)]).map((spec) => specBytes(spec, types)));
  const heads = modelShape(config).segmentHeads;
  const map = modelMap(config);
  const windows = layerWindows(config);
  const row = (of: VocabSpec | undefined): number => {
    const { matrix } = known(of, 'table of the vocabulary');
    return bytes({ ...matrix, parts: [{ ...nth(matrix.parts, 0), rows: 32 }] }) / 32;
  };
  return {
    layers: map.layers.map((layer, index) => {
      const window = windows[index];
      const own = nth(config.layers, index);
      const kvToken =
        isRecurrent(own.attention) || cacheLayer(config, index) !== index
          ? 0
          : segmentKvHeads(own.attention) * kvTokenBytes(own.attention, kvType);
      const sizes = layerSizes(layer, own, heads, bytes);
      // Inputs for all layers are with the first.
      const inputs = index === 0 ? bytes(map.inputs, map.perLayer?.projection, map.perLayer?.norm) : 0;
      const mlpShared = sizes.mlpShared + bytes(layer.perLayer) + inputs;
      return { ...sizes, mlpShared, kvToken, ...(window !== undefined && { window }) };
    }),
    embeddingRow: row(map.embedding),
    headRow: row(map.head),
    tied: config.tieWordEmbeddings,
    finalNorm: bytes(map.norm),
    keptStates: keptStates(config),
  };
}

function layerSizes(
  { attention, mlp }: LayerMap,
  layer: LayerConfig,
  heads: readonly number[],
  bytes: Bytes,
): Omit<LayerSizes, 'kvToken' | 'window'> {
  const norms = ({ before, behind }: HalfMap<unknown>): number => bytes(before, behind);
  const attends = attentionKinds[attention.weights.kind].bytes(attention.weights, bytes);
  const columns =
    mlp.weights.kind === 'experts'
      ? (mlp.weights.config.beside?.width ?? mlp.weights.config.sharedWidth)
      : mlp.weights.downSegments.modelInFeatures;
  const held = mlpKinds[mlp.weights.kind].bytes(mlp.weights, bytes);
  const state = stateBytes(layer.attention);
  return {
    ...(state && { stateSegments: state.segments, stateShared: state.shared }),
    attentionSegments: shareOut(attends.cut, heads),
    attentionShared: attends.shared + norms(attention),
    mlpSegments: shareOut(held.cut, mlpSegments(columns)),
    mlpShared: held.shared + norms(mlp),
    expert: held.expert ?? 0,
  };
}

function shareOut(bytes: number, weights: readonly number[]): number[] {
  const total = sum(weights);
  let before = 0;
  return weights.map((weight) => {
    const start = before;
    before += weight;
    return total === 0 ? 0 : Math.round((bytes * before) / total) - Math.round((bytes * start) / total);
  });
}

/** Embedding, the norm and projection of the head, and two for sampling. */
const STEP_DISPATCHES = 5;

/** Whether layers have a norm over the heads of all ranks. */
const normsAcross = ({ layers }: ModelConfig): boolean =>
  layers.some(
    ({ attention }) => attention.kind === 'mamba' || (attention.kind === 'gqa' && attention.qkNorm === 'whole'),
  );

/** What the planner asks about a model whose weights are kept as `types`. Exchanges are those of the first layer, where layers differ in their heads. */
export function modelWork(config: ModelConfig, types: WeightTypes, kvType: KvType): ModelWork {
  const shape = modelShape(config);
  const attention = attentionOf(config);
  const dim = attention.kind === 'mla' ? attention.kvLoraRank : attention.headDim;
  const expertsPerToken = expertsOf(config)?.expertsPerToken ?? 0;
  const hidden = activationStride(config.hiddenSize) * 4;
  return {
    shape,
    sizes: modelSizes(config, types, kvType),
    stepDispatches: STEP_DISPATCHES,
    expertsPerToken,
    // As the forward program lays them out.
    widths: {
      heads: (segments) => headsOf(attention, segments),
      queries: (groups, withTokens) => queryStride(groups, (segments) => queryRow(attention, segments, withTokens)) * 4,
      state: (dim + 2) * 4,
      attended: (segments) => activationStride(headsOf(attention, segments) * dim) * 4,
      ...(normsAcross(config) && { squares: alignUp(2, 64) * 4 }),
      segment: alignUp(config.hiddenSize, 64) * 4,
      hidden,
      expertIds: expertsPerToken * 4,
      experts: expertsPerToken * hidden,
      candidates: (rows) => partialsPerSlot(rows) * 8,
    },
  };
}
