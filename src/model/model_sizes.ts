import { kvCacheBytes } from '../../shaders/cache/kv_cache.js';
import { latentCacheBytes } from '../../shaders/cache/latent_cache.js';
import type { WeightType } from '../../shaders/linear/pack.js';
import type { LayerSizes, ModelSizes } from '../placement/sizes.js';
import { type DeepseekConfig, isDeepseek, type ModelConfig } from './config.js';
import { type DeepseekLayerMap, deepseekMap, type DenseMlpMap, isMoe, type MoeMap } from './deepseek_map.js';
import type { KvType } from './kv_cache.js';
import { type LlamaLayerMap, llamaMap } from './llama_map.js';
import { mlpSegments, modelShape, sharedWidth } from './shape.js';
import { specBytes } from './weight_bytes.js';
import type { MatrixSpec, Spec, VectorSpec, VocabSpec } from './weight_map.js';

/**
 * Bytes of a model as placement adds them up. A layer's cut matrices are shared out by heads and by columns, so all segments
 * together are exact; ranks whose cuts don't fall on tiles of 32 rows and blocks of 32 columns take a tile or block more
 * (`weightBytes` is exact).
 */
export function modelSizes(config: ModelConfig, type: WeightType, kvType: KvType): ModelSizes {
  const bytes = (...specs: readonly (Spec | undefined)[]): number =>
    specs.reduce((sum, spec) => sum + (spec ? specBytes(spec, type) : 0), 0);
  const heads = modelShape(config).segmentHeads;
  const map = isDeepseek(config) ? deepseekMap(config) : llamaMap(config);
  const row = ({ matrix }: VocabSpec): number => {
    const [part] = matrix.parts;
    return bytes({ ...matrix, parts: [{ ...part!, rows: 32 }] }) / 32;
  };
  return {
    layers: isDeepseek(config)
      ? deepseekMap(config).layers.map((layer) => deepseekLayer(config, layer, heads, bytes))
      : llamaMap(config).layers.map((layer) => llamaLayer(layer, heads, bytes)),
    embeddingRow: row(map.embedding!),
    headRow: row(map.head!),
    tied: config.tieWordEmbeddings,
    finalNorm: bytes(map.norm),
    kvToken: isDeepseek(config)
      ? latentCacheBytes({ ...config, kvType, block: 1 }, 1)
      : 2 * kvCacheBytes({ kvHeads: 1, headDim: config.headDim, kvType, block: 1 }, 1),
  };
}

type Bytes = (...specs: readonly (Spec | undefined)[]) => number;

function llamaLayer(layer: LlamaLayerMap, heads: readonly number[], bytes: Bytes): LayerSizes {
  return {
    attentionSegments: shareOut(bytes(layer.qkv, layer.qkvBias, ...layer.o.map(({ matrix }) => matrix)), heads),
    attentionShared: bytes(layer.inputNorm, layer.qNorm, layer.kNorm, layer.oBias),
    mlpSegments: shareOut(
      bytes(layer.gateUp, layer.gateUpBias, layer.down),
      mlpSegments(layer.downSegments.modelInFeatures),
    ),
    mlpShared: bytes(layer.postNorm, layer.downBias),
    expert: 0,
  };
}

function deepseekLayer(
  config: DeepseekConfig,
  layer: DeepseekLayerMap,
  heads: readonly number[],
  bytes: Bytes,
): LayerSizes {
  // Without a bottleneck the first projection's q rows are cut by head, and only the latent's are shared.
  const shared =
    config.qLoraRank === null
      ? bytes(lastPart(layer.project), lastPart(layer.projectBias))
      : bytes(layer.project, layer.projectBias);
  const attentionCut = bytes(layer.project, layer.projectBias, layer.qUp, layer.kvUp, layer.o) - shared;
  const attention = {
    attentionSegments: shareOut(attentionCut, heads),
    attentionShared: shared + bytes(layer.inputNorm, layer.qNorm, layer.latentNorm, layer.oBias),
  };
  const { mlp, postNorm } = layer;
  if (!isMoe<DenseMlpMap, MoeMap>(mlp)) {
    return {
      ...attention,
      mlpSegments: shareOut(bytes(mlp.gateUp, mlp.down), mlpSegments(config.intermediateSize)),
      mlpShared: bytes(postNorm),
      expert: 0,
    };
  }
  return {
    ...attention,
    mlpSegments: shareOut(bytes(mlp.shared?.gateUp, mlp.shared?.down), mlpSegments(sharedWidth(config))),
    mlpShared: bytes(postNorm, mlp.router, mlp.correctionBias),
    expert: bytes(mlp.expertsGateUp, mlp.expertsDown) / config.moe!.numExperts,
  };
}

const lastPart = <S extends MatrixSpec | VectorSpec>(spec: S | undefined): S | undefined =>
  spec && { ...spec, parts: spec.parts.slice(-1) };

/** Whole bytes in proportion to `weights`, adding up to `bytes`. */
function shareOut(bytes: number, weights: readonly number[]): number[] {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let before = 0;
  return weights.map((weight) => {
    const start = before;
    before += weight;
    return total === 0 ? 0 : Math.round((bytes * before) / total) - Math.round((bytes * start) / total);
  });
}
