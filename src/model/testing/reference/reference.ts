/**
 * Room: models in float64, straight from the equations, without tiles, caches or ranks. Every kernel path is held
 * against it. llama.ts and deepseek.ts are the two kinds.
 */

import { Random } from '../../../base/random.js';
import type { ModelConfig } from '../../config/model_config.js';
import { latentAttention } from './deepseek.js';
import { groupedQueryAttention, type ReferenceCache } from './llama.js';
import { layerMlp } from './mlp.js';
import { addAll, lookupIn, matVec, rmsNorm, type WeightMap } from './math.js';
import type { Routing } from './routing.js';

export type { ReferenceTensor, WeightMap } from './math.js';

/** How to run a reference model. */
export interface ReferenceOptions {
  /** Sees every routing decision, in the order of layers, then tokens. */
  onRouting?: (routing: Routing, layer: number, position: number) => void;
  /** The context length a runtime would allocate, which chooses LongRoPE's list; default: max_position_embeddings. */
  contextLength?: number;
  /** By position: what takes the place of a token's embedding. */
  rows?: ReadonlyMap<number, Float64Array>;
  /** Grouped-query attention: a cache that doesn't keep everything. */
  cache?: ReferenceCache;
}

/**
 * Logits [tokens.length][vocabSize] in float64, straight from the definition and sharing no code with what it is there to check:
 * one position after the other, no cache tricks, no tiles; latent attention expands keys and values of every head.
 */
export function referenceLogits(
  config: ModelConfig,
  weights: WeightMap,
  tokens: readonly number[],
  options: ReferenceOptions = {},
): Float64Array[] {
  const { hiddenSize, vocabSize, tieWordEmbeddings } = config;
  const head = lookupIn(weights)(
    tieWordEmbeddings ? 'model.embed_tokens.weight' : 'lm_head.weight',
    vocabSize,
    hiddenSize,
  );
  const states = referenceStates(config, weights, tokens, options);
  return states.map((state) => matVec(head, state).map((logit) => logit * config.logitScale));
}

/** Of the same: what the head is multiplied with, the final hidden states behind the last norm, [tokens.length][hiddenSize]. */
export function referenceStates(
  config: ModelConfig,
  weights: WeightMap,
  tokens: readonly number[],
  options: ReferenceOptions = {},
): Float64Array[] {
  const tensor = lookupIn(weights);
  const { hiddenSize, vocabSize, norm: normConfig, embeddingScale, residualScale } = config;
  const embedding = tensor('model.embed_tokens.weight', vocabSize, hiddenSize);
  const x = tokens.map((token, position) => {
    const given = options.rows?.get(position);
    if (given) return Float64Array.from(given);
    if (!(token >= 0 && token < vocabSize)) throw new Error(`reference: token ${token} of ${vocabSize}`);
    const row = Float64Array.from(embedding.subarray(token * hiddenSize, (token + 1) * hiddenSize));
    return row.map((value) => value * embeddingScale);
  });
  for (let layer = 0; layer < config.layers.length; layer++) {
    const inputNorm = tensor(`model.layers.${layer}.input_layernorm.weight`, hiddenSize);
    const inputs = x.map((row) => rmsNorm(row, inputNorm, normConfig.eps));
    const attended =
      config.layers[layer]!.attention.kind === 'mla'
        ? latentAttention(config, tensor, layer, inputs, options.contextLength)
        : groupedQueryAttention(config, tensor, layer, inputs, options.cache);
    addAll(x, attended, residualScale);
    const postNorm = tensor(`model.layers.${layer}.post_attention_layernorm.weight`, hiddenSize);
    const outputs = x.map((row, position) =>
      layerMlp(config, tensor, layer, rmsNorm(row, postNorm, normConfig.eps), (routing) =>
        options.onRouting?.(routing, layer, position),
      ),
    );
    addAll(x, outputs, residualScale);
  }
  const norm = tensor('model.norm.weight', hiddenSize);
  return x.map((row) => rmsNorm(row, norm, normConfig.eps));
}

/**
 * What DeepSeek-V3's layer behind the others proposes behind a text, greedily: as Qwen3.5's (recurrent.ts), of rows behind the last norm.
 */
export function latentHeadDrafts(
  config: ModelConfig,
  weights: WeightMap,
  tokens: readonly number[],
  count: number,
  first = 1,
): number[] {
  const tensor = lookupIn(weights);
  const { hiddenSize: hidden, vocabSize, norm: normConfig, layers } = config;
  const layer = layers.length;
  const whole = { ...config, layers: [...layers, config.mtp!.layer] };
  const at = `model.layers.${layer}`;
  const norm = (x: Float64Array, name: string): Float64Array =>
    rmsNorm(x, tensor(`${at}.${name}.weight`, hidden), normConfig.eps);
  const table = tensor('model.embed_tokens.weight', vocabSize, hidden);
  const head = tensor('lm_head.weight', vocabSize, hidden);
  const project = tensor(`${at}.eh_proj.weight`, hidden, 2 * hidden);
  const joined = (token: number, h: Float64Array): Float64Array => {
    const embedded = Float64Array.from(table.subarray(token * hidden, (token + 1) * hidden));
    return matVec(project, Float64Array.from([...norm(embedded, 'enorm'), ...norm(h, 'hnorm')]));
  };
  const states = referenceStates(config, weights, tokens);
  const inputs = tokens.slice(first).map((token, i) => joined(token, states[first - 1 + i]!));
  const drafts: number[] = [];
  while (drafts.length < count) {
    const x = inputs.map((row) => Float64Array.from(row));
    addAll(
      x,
      latentAttention(
        whole,
        tensor,
        layer,
        x.map((row) => norm(row, 'input_layernorm')),
      ),
    );
    addAll(
      x,
      x.map((row) => layerMlp(whole, tensor, layer, norm(row, 'post_attention_layernorm'), () => {})),
    );
    const own = norm(x.at(-1)!, 'shared_head.norm');
    const logits = matVec(head, own);
    const draft = logits.indexOf(Math.max(...logits));
    drafts.push(draft);
    inputs.push(joined(draft, own));
  }
  return drafts;
}

/**
 * The smallest gap, over all layers, between the worst expert (or group) chosen and the best one not chosen, in the scores that are
 * compared, for each token. Where it is near the error of f32 arithmetic (1e-5), a correct runtime may choose otherwise.
 * Infinity without experts.
 */
function routingMargins(config: ModelConfig, weights: WeightMap, tokens: readonly number[]): number[] {
  const margins = tokens.map(() => Infinity);
  referenceLogits(config, weights, tokens, {
    onRouting: ({ margin }, _layer, position) => {
      margins[position] = Math.min(margins[position]!, margin);
    },
  });
  return margins;
}

export const smallestRoutingMargin = (config: ModelConfig, weights: WeightMap, tokens: readonly number[]): number =>
  Math.min(...routingMargins(config, weights, tokens));

/** Random tokens, of which those whose experts are chosen by less than `margin` are drawn again: a prompt without near ties. */
export function clearlyRoutedTokens(
  config: ModelConfig,
  weights: WeightMap,
  length: number,
  seed = 1,
  margin = 2e-4,
): number[] {
  const random = new Random(seed);
  const tokens = Array.from({ length }, () => random.integer(config.vocabSize));
  // A token is routed by itself and those before it, so that the first unclear one is the one to replace.
  for (let tries = 0; tries < 50; tries++) {
    const unclear = routingMargins(config, weights, tokens).findIndex((gap) => gap < margin);
    if (unclear === -1) return tokens;
    tokens[unclear] = random.integer(config.vocabSize);
  }
  throw new Error(
    `no prompt of ${length} tokens with routing margins of ${margin}: take another seed or a smaller margin`,
  );
}
