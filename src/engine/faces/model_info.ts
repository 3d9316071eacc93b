import { modelShape } from '../../model/shape.js';
import { weightBytes } from '../../model/weights/weight_bytes.js';
import type { ModelInfo } from '../contracts/api.js';
import type { OpenedModel } from './load.js';

/** What an opened model is, in numbers and words. */
export function modelInfo(opened: OpenedModel): ModelInfo {
  const { config, group, prefiller, tokenizer, sampling, name, loadSeconds, planReason } = opened;
  const { runner } = group;
  const { type, plan } = group.options;
  const { compression } = runner.options;
  return {
    name,
    architecture: config.architecture,
    numLayers: config.layers.length,
    hiddenSize: config.hiddenSize,
    vocabSize: config.vocabSize,
    contextLength: runner.contextLength,
    parameters: weightBytes(config, type).parameters,
    weights: type,
    kv: runner.kv.type,
    hasChatTemplate: tokenizer?.hasChatTemplate ?? false,
    sampling,
    adapter: group.adapter,
    weightBytes: runner.ranks.reduce((sum, { facts: { weightBytes: bytes } }) => sum + bytes, 0),
    kvBytes: runner.kv.bytes,
    kvBytesPerToken: runner.kv.bytesPerToken,
    ...(compression && { compression: { policy: compression.policy, budget: compression.budget } }),
    loadSeconds,
    plan,
    ...(planReason !== undefined && { planReason }),
    shape: modelShape(config),
    ranks: runner.ranks.map(({ facts: { adapter, weightBytes: bytes, kvBytes } }, rank) => {
      const rankName = group.places?.name?.(rank);
      return { adapter, ...(rankName !== undefined && { name: rankName }), weightBytes: bytes, kvBytes };
    }),
    ...(prefiller && {
      prefill: {
        kind: prefiller.kind,
        adapter: prefiller.adapter,
        weightBytes: prefiller.weightBytes,
        workers: prefiller.atOnce,
      },
    }),
  };
}
