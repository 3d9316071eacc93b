import type { MlaConfig, ModelConfig, RopeConfig } from '../../config/model_config.js';
import { causalAttention, type Lookup, matVec, rmsNorm, rotatePair, type Vector } from './math.js';

/**
 * Latent attention without absorbing anything: kv_b_proj expands the latent into every head's k_nope and v, and attention is plain
 * multi-head attention over [k_nope, k_pe].
 */
export function latentAttention(
  config: ModelConfig,
  tensor: Lookup,
  layer: number,
  rows: Vector[],
  contextLength = config.maxPositions,
): Vector[] {
  const shape = config.layers[layer]!.attention as MlaConfig;
  const rotary = makeRotary(shape, contextLength);
  return attention(config.hiddenSize, shape, tensor, rotary, `model.layers.${layer}.self_attn.`, rows);
}

type Rotary = (head: Vector, position: number) => void;

function attention(
  hiddenSize: number,
  config: MlaConfig,
  tensor: Lookup,
  rotary: Rotary,
  prefix: string,
  x: Vector[],
): Vector[] {
  const { heads: numHeads, qLoraRank, kvLoraRank, qkNopeHeadDim: nope, qkRopeHeadDim: rope, vHeadDim } = config;
  const bias = (name: string, rows: number) => (config.bias ? tensor(`${prefix}${name}.bias`, rows) : undefined);
  const norm = (name: string, row: Vector) =>
    rmsNorm(row, tensor(`${prefix}${name}.weight`, row.length), config.loraNormEps);
  const queries = x.map((row) => {
    if (qLoraRank === null) return matVec(tensor(`${prefix}q_proj.weight`, numHeads * (nope + rope), hiddenSize), row);
    const weight = tensor(`${prefix}q_a_proj.weight`, qLoraRank, hiddenSize);
    const low = norm('q_a_layernorm', matVec(weight, row, bias('q_a_proj', qLoraRank)));
    return matVec(tensor(`${prefix}q_b_proj.weight`, numHeads * (nope + rope), qLoraRank), low);
  });
  const keys: Vector[] = [];
  const values: Vector[] = [];
  x.forEach((row, position) => {
    const width = kvLoraRank + rope;
    const weight = tensor(`${prefix}kv_a_proj_with_mqa.weight`, width, hiddenSize);
    const compressed = matVec(weight, row, bias('kv_a_proj_with_mqa', width));
    const latent = norm('kv_a_layernorm', compressed.slice(0, kvLoraRank));
    const shared = compressed.slice(kvLoraRank);
    rotary(shared, position);
    const expand = tensor(`${prefix}kv_b_proj.weight`, numHeads * (nope + vHeadDim), kvLoraRank);
    const expanded = matVec(expand, latent);
    const key = new Float64Array(numHeads * (nope + rope));
    const value = new Float64Array(numHeads * vHeadDim);
    for (let head = 0; head < numHeads; head++) {
      const at = head * (nope + vHeadDim);
      key.set(expanded.subarray(at, at + nope), head * (nope + rope));
      key.set(shared, head * (nope + rope) + nope);
      value.set(expanded.subarray(at + nope, at + nope + vHeadDim), head * vHeadDim);
      const query = queries[position]!;
      rotary(query.subarray(head * (nope + rope) + nope, (head + 1) * (nope + rope)), position);
    }
    keys.push(key);
    values.push(value);
  });
  const shape = { numHeads, numKvHeads: numHeads, qkDim: nope + rope, vDim: vHeadDim, scale: config.scale };
  const outWeight = tensor(`${prefix}o_proj.weight`, hiddenSize, numHeads * vHeadDim);
  const mixed = causalAttention(shape, queries, keys, values);
  return mixed.map((row) => matVec(outWeight, row, bias('o_proj', hiddenSize)));
}

/** Turns neighbours (2i, 2i + 1) of an interleaved checkpoint where they are: the order of dimensions doesn't matter to q.k. */
function makeRotary({ rope }: MlaConfig, contextLength: number): Rotary {
  const half = rope.dims / 2;
  const { scaling } = rope;
  const scale = scaling?.type === 'yarn' || scaling?.type === 'longrope' ? scaling.attentionFactor : 1;
  const inverse = Array.from({ length: half }, (_, i) => frequency(rope, i, contextLength));
  return (head, position) => {
    for (let i = 0; i < half; i++) {
      const [a, b] = rope.interleaved ? [2 * i, 2 * i + 1] : [i, i + half];
      rotatePair(head, a, b, position * inverse[i]!, scale);
    }
  };
}

/** In the terms of transformers' modeling_rope_utils. */
function frequency(rope: RopeConfig, i: number, contextLength: number): number {
  const { theta, scaling, dims } = rope;
  const wave = theta ** ((2 * i) / dims);
  switch (scaling?.type) {
    case undefined:
      return 1 / wave;
    case 'linear':
      return 1 / (scaling.factor * wave);
    case 'yarn': {
      const { factor, originalMaxPositions, betaFast, betaSlow } = scaling;
      const correctionDim = (rotations: number) =>
        (dims * Math.log(originalMaxPositions / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
      const low = Math.max(Math.floor(correctionDim(betaFast)), 0);
      let high = Math.min(Math.ceil(correctionDim(betaSlow)), dims - 1);
      if (low === high) high += 0.001;
      const extrapolation = 1 - Math.min(Math.max((i - low) / (high - low), 0), 1);
      return (1 / (factor * wave)) * (1 - extrapolation) + (1 / wave) * extrapolation;
    }
    case 'longrope': {
      const list = contextLength > scaling.originalMaxPositions ? scaling.longFactor : scaling.shortFactor;
      return 1 / (list[i]! * wave);
    }
    default:
      throw new Error(`reference: no ${scaling?.type} rope with latent attention`);
  }
}
