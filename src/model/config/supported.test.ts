import { describe, expect, it } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import type {
  AttentionConfig,
  ExpertsConfig,
  DenseMlpConfig,
  GqaConfig,
  LayerConfig,
  ModelConfig,
} from './model_config.js';
import { alikeSegments, segmentKvHeads } from './model_config.js';
import { checkSupported } from './supported.js';
import { makeRandomModel } from '../testing/random_model.js';

const llama = makeRandomModel({ config: { num_hidden_layers: 4 } }).config;
const v3 = makeRandomModel({ config: { model_type: 'deepseek_v3' } }).config;

/** The model with other attention in these layers. */
const attending = (changes: Partial<GqaConfig>, layers = [0, 1, 2, 3]): ModelConfig => ({
  ...llama,
  layers: llama.layers.map((layer, index) =>
    layers.includes(index) ? { ...layer, attention: { ...(layer.attention as GqaConfig), ...changes } } : layer,
  ),
});
const replaced = (config: ModelConfig, at: number, layer: Partial<LayerConfig>): ModelConfig => ({
  ...config,
  layers: config.layers.map((old, index) => (index === at ? { ...old, ...layer } : old)),
});
const recurrent: AttentionConfig = { kind: 'conv', width: 64, taps: 3, segments: 2 };
const { rope } = llama.layers[0]!.attention as GqaConfig;
const experts = v3.layers[1]!.mlp as ExpertsConfig;
const gated = llama.layers[0]!.mlp as DenseMlpConfig;
const biased = { q: true, k: true, v: true, o: false };

describe('what a model may say that nothing runs is refused by its key', () => {
  it.each<[name: string, config: ModelConfig, message: RegExp]>([
    ['gated sinks', attending({ sinks: true, gated: true }), /^config\.json: sinks true is not supported; gated/],
    [
      'biased shared experts',
      { ...v3, layers: v3.layers.map((layer) => ({ ...layer, mlp: { ...experts, bias: true } })) },
      /shared experts \d+ is not supported; biased/,
    ],
    ['a head rotated in part', attending({ rope: { ...rope!, dims: 4 } }), /partial_rotary_factor 0\.25 is not.*of 8/],
    ['norms behind experts', replaced(llama, 1, { mlp: experts, norms: 'both' }), /norms "both" of layer 1 is not/],
    [
      'pairs and norms',
      attending({ qkNorm: 'head', rope: { ...rope!, interleaved: true } }),
      /rope_interleaved true is not/,
    ],
    ['a wide head', attending({ headDim: 520 }, [1]), /head_dim 520 of layer 1 is not supported.*up to 512/],
    [
      'a long convolution',
      replaced(llama, 1, { attention: { ...recurrent, taps: 9 } }),
      /conv kernel 9 of layer 1 is not/,
    ],
    ['both caches', replaced(v3, 2, llama.layers[0]!), /attention\.kind is "gqa" in layer 2 and "mla" in layer 0/],
    [
      'other experts',
      replaced(v3, 2, { mlp: { ...experts, expertsPerToken: 2 } }),
      /mlp\.expertsPerToken is 2 in layer 2 and 3 in layer 1/,
    ],
  ])('%s', (_name, config, message) => {
    let error: unknown;
    try {
      checkSupported(config, 'config.json');
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(SplitkvError);
    expect(error).toMatchObject({ code: 'unsupported', message: expect.stringMatching(message) });
  });

  it('takes layers of other heads, which are cut into as many segments', () => {
    const config = attending({ kvHeads: 1, headDim: 40, rope: null }, [2]);
    checkSupported(config, 'config.json');
    const counts = alikeSegments(config.layers).map(({ attention }) => [segmentKvHeads(attention), attention]);
    expect(counts).toMatchObject(config.layers.map((_, layer) => [layer === 2 ? 1 : 2, { segments: 1 }]));
    expect(alikeSegments(llama.layers)).toBe(llama.layers);
  });

  it('takes a window that cuts nothing, in some layers too, and layers of both MLPs', () => {
    checkSupported(attending({ window: llama.maxPositions }, [1, 2]), 'config.json');
    expect(new Set(v3.layers.map(({ mlp }) => mlp.kind))).toEqual(new Set(['gated', 'experts']));
    checkSupported(v3, 'config.json');
  });

  it.each<[name: string, config: ModelConfig]>([
    ['a window and capped scores', attending({ window: 512, softcap: 50 }, [2, 3])],
    ['nothing rotated', attending({ rope: null }, [3])],
    ['half of a head rotated', attending({ rope: { ...rope!, dims: 8 } }, [1])],
    ['norms behind its halves', replaced(llama, 2, { norms: 'both' })],
    ['another rope', attending({ rope: { ...rope!, theta: 5 } }, [2])],
    ['norms, scales and biases of its own', attending({ qkNorm: 'head', scale: 0.5, bias: biased }, [1])],
    ['an MLP of another width', replaced(llama, 3, { mlp: { ...gated, width: 64 } })],
    ['a convolution in place of attention', replaced(llama, 0, { attention: recurrent })],
    ['experts behind grouped queries', replaced(llama, 1, { mlp: experts })],
    ['a bias in the MLP of latent attention', replaced(v3, 0, { mlp: { ...gated, width: 104, bias: true } })],
  ])('takes a layer with %s', (_name, config) => {
    expect(() => checkSupported(config, 'config.json')).not.toThrow();
  });
});
