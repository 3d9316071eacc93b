import type { LlamaConfig } from '../config.js';
import {
  causalAttention,
  type Lookup,
  matVec,
  type ReferenceLayers,
  rmsNorm,
  rotatePair,
  swiglu,
  type Vector,
  type Visible,
} from './reference_math.js';

/** What a cache lets a layer's queries see of its keys, both rotated, by position. */
export type ReferenceCache = (layer: number, q: Vector[], k: Vector[]) => Visible;

/** Grouped-query attention and SwiGLU of the Llama family. */
export function llamaLayers(config: LlamaConfig, tensor: Lookup, cache?: ReferenceCache): ReferenceLayers {
  return {
    attention: (layer, rows) =>
      attention(config, tensor, `model.layers.${layer}.self_attn.`, rows, (q, k) => cache?.(layer, q, k)),
    mlp: (layer, row) => mlp(config, tensor, `model.layers.${layer}.mlp.`, row),
  };
}

function attention(
  config: LlamaConfig,
  tensor: Lookup,
  prefix: string,
  x: Vector[],
  visible: (q: Vector[], k: Vector[]) => Visible | undefined,
): Vector[] {
  const { hiddenSize, numHeads, numKvHeads, headDim, attentionBias } = config;
  const project = (name: 'q' | 'k' | 'v', heads: number) => {
    const weight = tensor(`${prefix}${name}_proj.weight`, heads * headDim, hiddenSize);
    const bias = attentionBias[name] ? tensor(`${prefix}${name}_proj.bias`, heads * headDim) : undefined;
    return x.map((row) => matVec(weight, row, bias));
  };
  const q = project('q', numHeads);
  const k = project('k', numKvHeads);
  const v = project('v', numKvHeads);
  for (const [rows, name] of [
    [q, 'q'],
    [k, 'k'],
  ] as const) {
    const normWeight = config.qkNorm ? tensor(`${prefix}${name}_norm.weight`, headDim) : undefined;
    rows.forEach((row, position) => {
      for (let at = 0; at < row.length; at += headDim) {
        const head = row.subarray(at, at + headDim);
        if (normWeight !== undefined) head.set(rmsNorm(head, normWeight, config.rmsNormEps));
        rotate(config, head, position);
      }
    });
  }
  const outWeight = tensor(`${prefix}o_proj.weight`, hiddenSize, numHeads * headDim);
  const outBias = attentionBias.o ? tensor(`${prefix}o_proj.bias`, hiddenSize) : undefined;
  const shape = { numHeads, numKvHeads, qkDim: headDim, vDim: headDim, scale: 1 / Math.sqrt(headDim) };
  return causalAttention(shape, q, k, v, visible(q, k)).map((mixed) => matVec(outWeight, mixed, outBias));
}

function mlp(config: LlamaConfig, tensor: Lookup, prefix: string, x: Vector): Vector {
  const { hiddenSize, intermediateSize, mlpBias } = config;
  const project = (name: string, input: Vector, rows: number) => {
    const bias = mlpBias ? tensor(`${prefix}${name}.bias`, rows) : undefined;
    return matVec(tensor(`${prefix}${name}.weight`, rows, input.length), input, bias);
  };
  const inner = swiglu(project('gate_proj', x, intermediateSize), project('up_proj', x, intermediateSize));
  return project('down_proj', inner, hiddenSize);
}

/** Turns the pairs (x[i], x[i + headDim / 2]) of one head in place by position * frequency(i). */
function rotate(config: LlamaConfig, head: Vector, position: number): void {
  const half = config.headDim / 2;
  for (let i = 0; i < half; i++) rotatePair(head, i, i + half, position * frequency(config, i));
}

/** In the terms of transformers' modeling_rope_utils: wavelengths against the bounds of the trained context. */
function frequency({ ropeTheta, ropeScaling, headDim }: LlamaConfig, i: number): number {
  const inverse = 1 / ropeTheta ** ((2 * i) / headDim);
  if (ropeScaling === null) return inverse;
  if (ropeScaling.type === 'linear') return inverse / ropeScaling.factor;
  if (ropeScaling.type !== 'llama3') throw new Error(`reference: the Llama family has no ${ropeScaling.type} rope`);
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = ropeScaling;
  const wavelength = (2 * Math.PI) / inverse;
  if (wavelength > originalMaxPositions / lowFreqFactor) return inverse / factor;
  if (wavelength < originalMaxPositions / highFreqFactor) return inverse;
  const smooth = (originalMaxPositions / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return (1 - smooth) * (inverse / factor) + smooth * inverse;
}
