/** Plain float64 linear algebra, shared by the reference models and by nothing they check. */

/** A tensor as a checkpoint has it, row-major; matrices are [out_features, in_features]. */
export interface ReferenceTensor {
  shape: readonly number[];
  data: Float32Array;
}

/** Tensors by their Hugging Face names. */
export type WeightMap = ReadonlyMap<string, ReferenceTensor>;

export type Vector = Float64Array;

/** A tensor's values; throws where it is missing or has another shape. */
export type Lookup = (name: string, ...shape: number[]) => Float32Array;

export function lookupIn(weights: WeightMap): Lookup {
  return (name, ...shape) => {
    const found = weights.get(name);
    if (found === undefined) throw new Error(`reference: no tensor ${name}`);
    if (found.shape.join() !== shape.join())
      throw new Error(`reference: ${name} is [${found.shape.join(', ')}], expected [${shape.join(', ')}]`);
    return found.data;
  };
}

export function rmsNorm(x: Vector, weight: Float32Array, eps: number): Vector {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + eps);
  return x.map((value, i) => value * scale * weight[i]!);
}

export function matVec(matrix: Float32Array, x: Vector, bias?: Float32Array): Vector {
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

/** x += scale * delta, row by row. */
export function addAll(x: Vector[], delta: Vector[], scale = 1): void {
  x.forEach((row, position) => {
    const change = delta[position]!;
    for (let i = 0; i < row.length; i++) row[i]! += scale * change[i]!;
  });
}

/** silu(gate) * up. */
export const swiglu = (gate: Vector, up: Vector): Vector => gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]!);

/** Turns (x[i], x[j]) in place. */
export function rotatePair(x: Vector, i: number, j: number, angle: number, scale = 1): void {
  const [cos, sin] = [Math.cos(angle) * scale, Math.sin(angle) * scale];
  const [a, b] = [x[i]!, x[j]!];
  x[i] = a * cos - b * sin;
  x[j] = b * cos + a * sin;
}

export interface HeadShape {
  numHeads: number;
  numKvHeads: number;
  /** Width of a head of q and k, and of v. */
  qkDim: number;
  vDim: number;
  scale: number;
}

/** Whether the query at a position still finds the key at `t`, no later one, in the cache of a kv head. */
export type Visible = (kvHead: number, position: number, t: number) => boolean;

/** Causal attention: query head h reads kv head floor(h / (numHeads / numKvHeads)). */
export function causalAttention(
  { numHeads, numKvHeads, qkDim, vDim, scale }: HeadShape,
  q: Vector[],
  k: Vector[],
  v: Vector[],
  visible: Visible = () => true,
): Vector[] {
  return q.map((query, position) => {
    const mixed = new Float64Array(numHeads * vDim);
    for (let head = 0; head < numHeads; head++) {
      const kvHead = Math.floor(head / (numHeads / numKvHeads));
      const scores = new Float64Array(position + 1);
      for (let t = 0; t <= position; t++) {
        const key = k[t]!;
        let sum = visible(kvHead, position, t) ? 0 : -Infinity;
        for (let d = 0; d < qkDim; d++) sum += query[head * qkDim + d]! * key[kvHead * qkDim + d]!;
        scores[t] = sum * scale;
      }
      const largest = scores.reduce((a, b) => Math.max(a, b));
      let total = 0;
      for (let t = 0; t <= position; t++) total += scores[t] = Math.exp(scores[t]! - largest);
      for (let t = 0; t <= position; t++) {
        const value = v[t]!;
        const p = scores[t]! / total;
        for (let d = 0; d < vDim; d++) mixed[head * vDim + d]! += p * value[kvHead * vDim + d]!;
      }
    }
    return mixed;
  });
}
