import type { LlamaConfig } from '../config.js';

/** A tensor as a checkpoint has it, row-major; matrices are [out_features, in_features]. */
export interface ReferenceTensor {
  shape: readonly number[];
  data: Float32Array;
}

/** Tensors by their Hugging Face names. */
export type WeightMap = ReadonlyMap<string, ReferenceTensor>;

type Vector = Float64Array;

/**
 * Logits [tokens.length][vocabSize] of the Llama family in float64, straight from the definition and sharing no code with what it
 * is there to check: one position after the other, no cache tricks, no tiles.
 */
export function referenceLogits(config: LlamaConfig, weights: WeightMap, tokens: readonly number[]): Float64Array[] {
  const tensor = (name: string, ...shape: number[]): Float32Array => {
    const found = weights.get(name);
    if (found === undefined) throw new Error(`reference: no tensor ${name}`);
    if (found.shape.join() !== shape.join())
      throw new Error(`reference: ${name} is [${found.shape}], expected [${shape}]`);
    return found.data;
  };
  const { hiddenSize, vocabSize, rmsNormEps } = config;
  const embedding = tensor('model.embed_tokens.weight', vocabSize, hiddenSize);
  const x = tokens.map((token) => {
    if (!(token >= 0 && token < vocabSize)) throw new Error(`reference: token ${token} of ${vocabSize}`);
    return Float64Array.from(embedding.subarray(token * hiddenSize, (token + 1) * hiddenSize));
  });
  for (let layer = 0; layer < config.numLayers; layer++) {
    const prefix = `model.layers.${layer}.`;
    const inputNorm = tensor(`${prefix}input_layernorm.weight`, hiddenSize);
    addAll(
      x,
      attention(
        config,
        tensor,
        `${prefix}self_attn.`,
        x.map((row) => rmsNorm(row, inputNorm, rmsNormEps)),
      ),
    );
    const postNorm = tensor(`${prefix}post_attention_layernorm.weight`, hiddenSize);
    addAll(
      x,
      x.map((row) => mlp(config, tensor, `${prefix}mlp.`, rmsNorm(row, postNorm, rmsNormEps))),
    );
  }
  const norm = tensor('model.norm.weight', hiddenSize);
  const head = config.tieWordEmbeddings ? embedding : tensor('lm_head.weight', vocabSize, hiddenSize);
  return x.map((row) => matVec(head, rmsNorm(row, norm, rmsNormEps)));
}

type Lookup = (name: string, ...shape: number[]) => Float32Array;

/** Causal grouped-query attention: query head h reads kv head floor(h / (numHeads / numKvHeads)). */
function attention(config: LlamaConfig, tensor: Lookup, prefix: string, x: Vector[]): Vector[] {
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
  return q.map((query, position) => {
    const mixed = new Float64Array(numHeads * headDim);
    for (let head = 0; head < numHeads; head++) {
      const kvAt = Math.floor(head / (numHeads / numKvHeads)) * headDim;
      const qAt = head * headDim;
      const scores = new Float64Array(position + 1);
      for (let t = 0; t <= position; t++) {
        const key = k[t]!;
        let sum = 0;
        for (let d = 0; d < headDim; d++) sum += query[qAt + d]! * key[kvAt + d]!;
        scores[t] = sum / Math.sqrt(headDim);
      }
      const largest = scores.reduce((a, b) => Math.max(a, b));
      let total = 0;
      for (let t = 0; t <= position; t++) total += scores[t] = Math.exp(scores[t]! - largest);
      for (let t = 0; t <= position; t++) {
        const value = v[t]!;
        const p = scores[t]! / total;
        for (let d = 0; d < headDim; d++) mixed[qAt + d]! += p * value[kvAt + d]!;
      }
    }
    return matVec(outWeight, mixed, outBias);
  });
}

/** SwiGLU: down(silu(gate(x)) * up(x)). */
function mlp(config: LlamaConfig, tensor: Lookup, prefix: string, x: Vector): Vector {
  const { hiddenSize, intermediateSize, mlpBias } = config;
  const bias = (name: string, size: number) => (mlpBias ? tensor(`${prefix}${name}.bias`, size) : undefined);
  const gate = matVec(
    tensor(`${prefix}gate_proj.weight`, intermediateSize, hiddenSize),
    x,
    bias('gate_proj', intermediateSize),
  );
  const up = matVec(
    tensor(`${prefix}up_proj.weight`, intermediateSize, hiddenSize),
    x,
    bias('up_proj', intermediateSize),
  );
  const inner = gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]!);
  return matVec(
    tensor(`${prefix}down_proj.weight`, hiddenSize, intermediateSize),
    inner,
    bias('down_proj', hiddenSize),
  );
}

/** Turns the pairs (x[i], x[i + headDim / 2]) of one head in place by position * frequency(i). */
function rotate(config: LlamaConfig, head: Vector, position: number): void {
  const half = config.headDim / 2;
  for (let i = 0; i < half; i++) {
    const angle = position * frequency(config, i);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const [a, b] = [head[i]!, head[i + half]!];
    head[i] = a * cos - b * sin;
    head[i + half] = b * cos + a * sin;
  }
}

/** In the terms of transformers' modeling_rope_utils: wavelengths against the bounds of the trained context. */
function frequency({ ropeTheta, ropeScaling, headDim }: LlamaConfig, i: number): number {
  const inverse = 1 / ropeTheta ** ((2 * i) / headDim);
  if (ropeScaling === null) return inverse;
  if (ropeScaling.type === 'linear') return inverse / ropeScaling.factor;
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = ropeScaling;
  const wavelength = (2 * Math.PI) / inverse;
  if (wavelength > originalMaxPositions / lowFreqFactor) return inverse / factor;
  if (wavelength < originalMaxPositions / highFreqFactor) return inverse;
  const smooth = (originalMaxPositions / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return (1 - smooth) * (inverse / factor) + smooth * inverse;
}

function rmsNorm(x: Vector, weight: Float32Array, eps: number): Vector {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + eps);
  return x.map((value, i) => value * scale * weight[i]!);
}

function matVec(matrix: Float32Array, x: Vector, bias?: Float32Array): Vector {
  const columns = x.length;
  const out = new Float64Array(matrix.length / columns);
  for (let row = 0; row < out.length; row++) {
    const at = row * columns;
    let sum = bias === undefined ? 0 : bias[row]!;
    for (let column = 0; column < columns; column++) sum += matrix[at + column]! * x[column]!;
    out[row] = sum;
  }
  return out;
}

function addAll(x: Vector[], delta: Vector[]): void {
  x.forEach((row, position) => {
    const change = delta[position]!;
    for (let i = 0; i < row.length; i++) row[i]! += change[i]!;
  });
}
