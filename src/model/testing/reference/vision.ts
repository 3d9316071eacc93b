import { addAll, lookupIn, matVec, rmsNorm, type Vector, type WeightMap } from './math.js';

/** Of a tower, in the words of its config.json. */
export interface ReferenceTower {
  hidden: number;
  heads: number;
  layers: number;
  width: number;
  /** In pixels. */
  image: number;
  patch: number;
  eps: number;
}

/**
 * Rows of a SmolVLM's decoder for a tile, in float64, from transformers' modeling_idefics3.py: the encoder, `scale` by `scale` patches joined,
 * and their projection.
 * @param pixels normalised, [side][side][3]
 */
export function idefics3Rows(
  weights: WeightMap,
  tower: ReferenceTower,
  scale: number,
  textWidth: number,
  pixels: ArrayLike<number>,
): Vector[] {
  const side = Math.floor(tower.image / tower.patch);
  const patches = siglipStates(weights, 'model.vision_model', tower, pixels);
  const project = lookupIn(weights)(
    'model.connector.modality_projection.proj.weight',
    textWidth,
    tower.hidden * scale * scale,
  );
  const rows: Vector[] = [];
  for (let y = 0; y < side; y += scale) {
    for (let x = 0; x < side; x += scale) {
      const joined = new Float64Array(tower.hidden * scale * scale);
      for (let dy = 0; dy < scale; dy++)
        for (let dx = 0; dx < scale; dx++)
          joined.set(patches[(y + dy) * side + x + dx]!, (dy * scale + dx) * tower.hidden);
      rows.push(matVec(project, joined));
    }
  }
  return rows;
}

/**
 * Rows of a Gemma 3's decoder for a picture, in float64, from transformers' modeling_gemma3.py: the encoder, `scale` by `scale` patches
 * averaged, their norm times 1 + w, and the projection, whose matrix is input by input.
 */
export function gemma3Rows(
  weights: WeightMap,
  tower: ReferenceTower,
  scale: number,
  textWidth: number,
  pixels: ArrayLike<number>,
): Vector[] {
  const { hidden, eps } = tower;
  const side = Math.floor(tower.image / tower.patch);
  const patches = siglipStates(weights, 'vision_tower.vision_model', tower, pixels);
  const tensor = lookupIn(weights);
  const project = tensor('multi_modal_projector.mm_input_projection_weight', hidden, textWidth);
  const norm = tensor('multi_modal_projector.mm_soft_emb_norm.weight', hidden).map((w) => 1 + w);
  const rows: Vector[] = [];
  for (let y = 0; y < side; y += scale) {
    for (let x = 0; x < side; x += scale) {
      const mean = new Float64Array(hidden);
      for (let dy = 0; dy < scale; dy++)
        for (let dx = 0; dx < scale; dx++)
          for (let i = 0; i < hidden; i++) mean[i]! += patches[(y + dy) * side + x + dx]![i]! / scale ** 2;
      const normed = rmsNorm(mean, norm, eps);
      rows.push(
        Float64Array.from({ length: textWidth }, (_, out) =>
          normed.reduce((sum, value, i) => sum + value * project[i * textWidth + out]!, 0),
        ),
      );
    }
  }
  return rows;
}

/** Behind the last norm, by patch, row by row: modeling_siglip.py. */
export function siglipStates(
  weights: WeightMap,
  prefix: string,
  { hidden, heads, layers, width, image, patch, eps }: ReferenceTower,
  pixels: ArrayLike<number>,
): Vector[] {
  const tensor = lookupIn(weights);
  const side = Math.floor(image / patch);
  const kernel = tensor(`${prefix}.embeddings.patch_embedding.weight`, hidden, 3, patch, patch);
  const bias = tensor(`${prefix}.embeddings.patch_embedding.bias`, hidden);
  const places = tensor(`${prefix}.embeddings.position_embedding.weight`, side * side, hidden);
  const x: Vector[] = [];
  for (let at = 0; at < side * side; at++) {
    const [top, left] = [Math.floor(at / side) * patch, (at % side) * patch];
    const row = new Float64Array(hidden);
    for (let out = 0; out < hidden; out++) {
      let sum = bias[out]! + places[at * hidden + out]!;
      for (let channel = 0; channel < 3; channel++)
        for (let dy = 0; dy < patch; dy++)
          for (let dx = 0; dx < patch; dx++)
            sum +=
              kernel[((out * 3 + channel) * patch + dy) * patch + dx]! *
              pixels[((top + dy) * image + left + dx) * 3 + channel]!;
      row[out] = sum;
    }
    x.push(row);
  }
  const norm = (name: string, row: Vector): Vector => {
    const [weight, offset] = [tensor(`${name}.weight`, hidden), tensor(`${name}.bias`, hidden)];
    const mean = row.reduce((sum, value) => sum + value, 0) / hidden;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / hidden;
    return row.map((value, i) => ((value - mean) / Math.sqrt(variance + eps)) * weight[i]! + offset[i]!);
  };
  const linear = (name: string, row: Vector, rows: number): Vector =>
    matVec(tensor(`${name}.weight`, rows, row.length), row, tensor(`${name}.bias`, rows));
  const dim = hidden / heads;
  for (let layer = 0; layer < layers; layer++) {
    const at = `${prefix}.encoder.layers.${layer}`;
    const inputs = x.map((row) => norm(`${at}.layer_norm1`, row));
    const [q, k, v] = ['q', 'k', 'v'].map((part) =>
      inputs.map((row) => linear(`${at}.self_attn.${part}_proj`, row, hidden)),
    ) as [Vector[], Vector[], Vector[]];
    const mixed = q.map((query) => {
      const out = new Float64Array(hidden);
      for (let head = 0; head < heads; head++) {
        const scores = k.map((key) => {
          let sum = 0;
          for (let d = head * dim; d < (head + 1) * dim; d++) sum += query[d]! * key[d]!;
          return sum / Math.sqrt(dim);
        });
        const largest = Math.max(...scores);
        const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
        for (const [key, score] of scores.entries())
          for (let d = head * dim; d < (head + 1) * dim; d++)
            out[d]! += (Math.exp(score - largest) / total) * v[key]![d]!;
      }
      return linear(`${at}.self_attn.out_proj`, out, hidden);
    });
    addAll(x, mixed);
    addAll(
      x,
      x.map((row) => {
        const inner = linear(`${at}.mlp.fc1`, norm(`${at}.layer_norm2`, row), width);
        const activated = inner.map((g) => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3))));
        return linear(`${at}.mlp.fc2`, activated, hidden);
      }),
    );
  }
  return x.map((row) => norm(`${prefix}.post_layernorm`, row));
}
