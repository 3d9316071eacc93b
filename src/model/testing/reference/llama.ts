import type { GqaConfig, ModelConfig, RopeConfig } from '../../config/model_config.js';
import { causalAttention, type Lookup, matVec, rmsNorm, rotatePair, type Vector, type Visible } from './math.js';

/** What a cache lets a layer's queries see of its keys, both rotated, by position. */
export type ReferenceCache = (layer: number, q: Vector[], k: Vector[]) => Visible;

/** Grouped-query attention, as in Llama. */
export function groupedQueryAttention(
  config: ModelConfig,
  tensor: Lookup,
  layer: number,
  rows: Vector[],
  cache?: ReferenceCache,
): Vector[] {
  const shape = config.layers[layer]!.attention as GqaConfig;
  return attention(config, shape, tensor, `model.layers.${layer}.self_attn.`, rows, (q, k) => cache?.(layer, q, k));
}

function attention(
  config: ModelConfig,
  shape: GqaConfig,
  tensor: Lookup,
  prefix: string,
  x: Vector[],
  visible: (q: Vector[], k: Vector[]) => Visible | undefined,
): Vector[] {
  const { hiddenSize } = config;
  const { heads: numHeads, kvHeads: numKvHeads, headDim, bias: biased, rope, scale } = shape;
  const project = (name: 'q' | 'k' | 'v', heads: number) => {
    const weight = tensor(`${prefix}${name}_proj.weight`, heads * headDim, hiddenSize);
    const bias = biased[name] ? tensor(`${prefix}${name}_proj.bias`, heads * headDim) : undefined;
    return x.map((row) => matVec(weight, row, bias));
  };
  const q = project('q', numHeads);
  const k = project('k', numKvHeads);
  const v = project('v', numKvHeads);
  for (const [rows, name] of [
    [q, 'q'],
    [k, 'k'],
  ] as const) {
    const normWeight = shape.qkNorm === 'head' ? tensor(`${prefix}${name}_norm.weight`, headDim) : undefined;
    rows.forEach((row, position) => {
      for (let at = 0; at < row.length; at += headDim) {
        const head = row.subarray(at, at + headDim);
        if (normWeight !== undefined) head.set(rmsNorm(head, normWeight, config.norm.eps));
        if (rope) rotate(rope, head, position);
      }
    });
  }
  const outWeight = tensor(`${prefix}o_proj.weight`, hiddenSize, numHeads * headDim);
  const outBias = biased.o ? tensor(`${prefix}o_proj.bias`, hiddenSize) : undefined;
  const widths = { numHeads, numKvHeads, qkDim: headDim, vDim: headDim, scale };
  return causalAttention(widths, q, k, v, visible(q, k)).map((mixed) => matVec(outWeight, mixed, outBias));
}

/** Turns the pairs (x[i], x[i + dims / 2]) of one head in place by position * frequency(i). */
function rotate(rope: RopeConfig, head: Vector, position: number): void {
  const half = rope.dims / 2;
  for (let i = 0; i < half; i++) rotatePair(head, i, i + half, position * frequency(rope, i));
}

/** In the terms of transformers' modeling_rope_utils: wavelengths against the bounds of the trained context. */
function frequency({ theta, scaling, dims }: RopeConfig, i: number): number {
  const inverse = 1 / theta ** ((2 * i) / dims);
  if (scaling === null) return inverse;
  if (scaling.type === 'linear') return inverse / scaling.factor;
  if (scaling.type !== 'llama3') throw new Error(`reference: no ${scaling.type} rope with grouped-query attention`);
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = scaling;
  const wavelength = (2 * Math.PI) / inverse;
  if (wavelength > originalMaxPositions / lowFreqFactor) return inverse / factor;
  if (wavelength < originalMaxPositions / highFreqFactor) return inverse;
  const smooth = (originalMaxPositions / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return (1 - smooth) * (inverse / factor) + smooth * inverse;
}
