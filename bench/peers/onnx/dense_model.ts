import {
  type AttentionConfig,
  attentionOf,
  type DenseMlpConfig,
  type GqaConfig,
  likeness,
  type ModelConfig,
} from '../../../src/model/config/model_config.js';
import type { RopeConfig } from '../../../src/model/config/rope_config.js';

/** Grouped-query attention and one gated MLP in every layer, RMS norms before them, no scales: what other runtimes' plain decoders have. */
export interface DenseModel {
  readonly config: ModelConfig;
  readonly attention: GqaConfig & { readonly rope: RopeConfig };
  readonly mlp: DenseMlpConfig;
}

/** Undefined for a model that is more than that. */
export function denseModel(config: ModelConfig): DenseModel | undefined {
  const { layers, embeddingScale, residualScale, logitScale, logitCap, norm, maxPositions } = config;
  const attention = attentionOf(config);
  const { mlp } = layers[0]!;
  const scaled = embeddingScale !== 1 || residualScale !== 1 || logitScale !== 1 || logitCap !== undefined;
  const plain = !scaled && norm.kind === 'rms' && (norm.offset ?? 0) === 0;
  if (!plain || !isPlainAttention(attention, maxPositions)) return undefined;
  if (mlp.kind !== 'gated' || mlp.activation !== 'silu') return undefined;
  if ((layers[0]!.norms ?? 'before') !== 'before') return undefined;
  if (new Set(layers.map((layer) => likeness(layer, maxPositions))).size > 1) return undefined;
  return { config, attention, mlp };
}

/** Whole heads that are rotated, see everything, and have no gates, caps, sinks or temperatures. */
function isPlainAttention(attention: AttentionConfig, maxPositions: number): attention is DenseModel['attention'] {
  if (attention.kind !== 'gqa' || attention.gated || attention.qkNorm === 'whole') return false;
  const { window = maxPositions, softcap, sinks, rope, headDim } = attention;
  if (window < maxPositions || softcap !== undefined || sinks) return false;
  return rope !== null && rope.dims === headDim && !rope.temperature;
}
