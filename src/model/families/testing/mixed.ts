/**
 * Room: families that tests register: layers that differ in all that layers may (here), and the smallest family of its own names
 * and multipliers (toy.ts, which CONTRIBUTING.md walks through).
 */

import type { LayerConfig, MlpConfig } from '../../config/model_config.js';
import { parseRope } from '../../config/rope_config.js';
import { expertNames, llamaNames } from '../../config/tensor_names.js';
import { countRange, parseActivation } from '../common_keys.js';
import { defineFamily } from '../family.js';

/** A family whose layers differ, in all that layers may differ in: by turns the heads, ropes, norms, biases, scales and MLPs below. */
export const mixed = defineFamily({
  config(config, { hiddenSize, numLayers }) {
    const heads = config.integer('num_attention_heads', countRange);
    const kvHeads = config.integer('num_key_value_heads', { min: 1, max: heads });
    const headDim = hiddenSize / heads;
    const rope = parseRope(config, headDim);
    const width = config.integer('intermediate_size');
    const activation = parseActivation(config);
    const mlps: readonly MlpConfig[] = [
      { kind: 'gated', width, activation, bias: false },
      {
        kind: 'experts',
        numExperts: 8,
        expertsPerToken: 2,
        width: 40,
        sharedWidth: 72,
        activation,
        numGroups: 1,
        topkGroups: 1,
        scoring: 'softmax',
        method: 'greedy',
        normTopkProb: true,
        routedScalingFactor: 1.25,
        correctionBias: false,
      },
      { kind: 'gated', width: width + 72, activation, bias: true },
    ];
    return {
      layers: Array.from({ length: numLayers }, (_, index): LayerConfig => {
        const odd = index % 2 === 1;
        // Fewer kv heads, of other query heads, and wider ones.
        const own = odd
          ? { heads: heads / 2, kvHeads: kvHeads / 2, headDim: 3 * headDim }
          : { heads, kvHeads, headDim };
        return {
          attention: {
            kind: 'gqa',
            ...own,
            bias: { q: odd, k: odd, v: odd, o: !odd },
            qkNorm: odd ? 'head' : false,
            rope: { ...rope, theta: odd ? 500 : rope.theta, dims: own.headDim },
            scale: (odd ? 1 : 0.7) / Math.sqrt(own.headDim),
          },
          mlp: mlps[index % mlps.length]!,
        };
      }),
      tensors: {
        ...llamaNames,
        experts: expertNames(),
      },
    };
  },
});
