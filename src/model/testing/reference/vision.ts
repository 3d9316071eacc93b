import { addAll, type Lookup, lookupIn, matVec, rmsNorm, rotatePair, type Vector, type WeightMap } from './math.js';

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
  /** Side of the table of places, where it isn't the picture's; of Qwen's the layers behind which rows are merged, too. */
  places?: number;
  taps?: number[];
  /** Of LFM2-VL's projector: between its matrices, and whether it begins with a norm. */
  inner?: number;
  normed?: boolean;
  /** Of Gemma 4's: rows of a picture at most, whether matrices have bounds, and whether rows are standardised. */
  rows?: number;
  clipped?: boolean;
  standardized?: boolean;
  /** Of Qwen2.5-VL's: layers whose patches see all, and rows of a window's side. */
  whole?: number[];
  window?: number;
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

/** The same of a Gemma 4's. */
export type Gemma4Mistake =
  | 'channels first'
  | 'lines before columns'
  | 'pairs of the whole head'
  | 'erf'
  | 'no bounds'
  | 'values not normalised'
  | 'scaled scores'
  | 'neighbours of a line'
  | 'not standardised';

/**
 * Rows of a Gemma 4's decoder for a picture, in float64, from transformers' modeling_gemma4.py, patch by patch in lines: scale by scale of
 * them averaged.
 * @param pixels of 0 to 1, [height][width][3]
 */
export function gemma4Rows(
  weights: WeightMap,
  tower: ReferenceTower,
  scale: number,
  textWidth: number,
  pixels: ArrayLike<number>,
  [width, height]: readonly [width: number, height: number],
  mistake?: Gemma4Mistake,
): Vector[] {
  const { hidden, heads, layers, patch, eps, places = 0 } = tower;
  const tensor = lookupIn(weights);
  const at = 'model.vision_tower';
  const [wide, high, dim] = [width / patch, height / patch, hidden / heads];
  const embed = tensor(`${at}.patch_embedder.input_proj.weight`, hidden, 3 * patch * patch);
  const table = tensor(`${at}.patch_embedder.position_embedding_table`, 2, places, hidden);
  const ones = (length: number): Float32Array => new Float32Array(length).fill(1);
  const norm = (name: string, x: Vector): Vector => rmsNorm(x, tensor(`${at}.${name}.weight`, x.length), eps);
  const bound = (name: string, value: number): number => {
    if (!tower.clipped || mistake === 'no bounds') return value;
    const [least, most] = ['min', 'max'].map((end) => tensor(`${at}.${name}_${end}`)[0]!);
    return Math.min(most!, Math.max(least!, value));
  };
  const linear = (name: string, x: Vector, rows: number): Vector => {
    const given = x.map((value) => bound(`${name}.input`, value));
    return matVec(tensor(`${at}.${name}.linear.weight`, rows, x.length), given).map((y) => bound(`${name}.output`, y));
  };
  const x: Vector[] = [];
  for (let py = 0; py < high; py++)
    for (let px = 0; px < wide; px++) {
      const values = new Float64Array(3 * patch * patch);
      for (let dy = 0; dy < patch; dy++)
        for (let dx = 0; dx < patch; dx++)
          for (let c = 0; c < 3; c++) {
            const to = mistake === 'channels first' ? (c * patch + dy) * patch + dx : (dy * patch + dx) * 3 + c;
            values[to] = 2 * pixels[((py * patch + dy) * width + px * patch + dx) * 3 + c]! - 1;
          }
      const [first, second] = mistake === 'lines before columns' ? [py, px] : [px, py];
      const row = matVec(embed, values);
      x.push(row.map((value, i) => value + table[first * hidden + i]! + table[(places + second) * hidden + i]!));
    }
  const turned = (head: Vector, index: number): Vector => {
    const out = head.slice();
    const axes = [index % wide, Math.floor(index / wide)];
    for (const [half, place] of axes.entries())
      for (let i = 0; i < dim / 4; i++) {
        const angle = place * 100 ** ((-2 * i) / (dim / 2));
        const first = (half * dim) / 2 + i;
        if (mistake === 'pairs of the whole head') {
          const own = (half * dim) / 4 + i;
          rotatePair(out, own, own + dim / 2, angle);
        } else rotatePair(out, first, first + dim / 4, angle);
      }
    return out;
  };
  const headsOf = (row: Vector, of: (head: Vector) => Vector): Vector => {
    const out = new Float64Array(hidden);
    for (let first = 0; first < hidden; first += dim) out.set(of(row.slice(first, first + dim)), first);
    return out;
  };
  for (let layer = 0; layer < layers; layer++) {
    const block = `encoder.layers.${layer}`;
    const inputs = x.map((row) => norm(`${block}.input_layernorm`, row));
    // What `attended` divides scores by.
    const unscaled = mistake === 'scaled scores' ? 1 : Math.sqrt(dim);
    const project = (part: string, row: Vector): Vector => linear(`${block}.self_attn.${part}_proj`, row, hidden);
    const q = inputs.map((row, index) =>
      headsOf(project('q', row), (head) => turned(norm(`${block}.self_attn.q_norm`, head), index)).map(
        (e) => e * unscaled,
      ),
    );
    const k = inputs.map((row, index) =>
      headsOf(project('k', row), (head) => turned(norm(`${block}.self_attn.k_norm`, head), index)),
    );
    const v = inputs.map((row) =>
      headsOf(project('v', row), (head) =>
        mistake === 'values not normalised' ? head : rmsNorm(head, ones(dim), eps),
      ),
    );
    addAll(
      x,
      attended(heads, q, k, v).map((row) =>
        norm(`${block}.post_attention_layernorm`, linear(`${block}.self_attn.o_proj`, row, hidden)),
      ),
    );
    addAll(
      x,
      x.map((row) => {
        const given = norm(`${block}.pre_feedforward_layernorm`, row);
        const [gate, up] = ['gate', 'up'].map((part) => linear(`${block}.mlp.${part}_proj`, given, tower.width));
        const inner = gate!.map((g, i) => (mistake === 'erf' ? geluErf : geluTanh)(g) * up![i]!);
        return norm(`${block}.post_feedforward_layernorm`, linear(`${block}.mlp.down_proj`, inner, hidden));
      }),
    );
  }
  const project = tensor('model.embed_vision.embedding_projection.weight', textWidth, hidden);
  const rows: Vector[] = [];
  for (let y = 0; y < high; y += scale)
    for (let left = 0; left < wide; left += scale) {
      const mean = new Float64Array(hidden);
      for (let dy = 0; dy < scale; dy++)
        for (let dx = 0; dx < scale; dx++) {
          const inLine = (rows.length * scale * scale + dy * scale + dx) % x.length;
          const patchAt = mistake === 'neighbours of a line' ? inLine : (y + dy) * wide + left + dx;
          addAll([mean], [x[patchAt]!], Math.sqrt(hidden) / scale ** 2);
        }
      if (tower.standardized && mistake !== 'not standardised') {
        const [bias, factor] = ['std_bias', 'std_scale'].map((name) => tensor(`${at}.${name}`, hidden));
        mean.forEach((value, i) => (mean[i] = (value - bias![i]!) * factor![i]!));
      }
      rows.push(matVec(project, rmsNorm(mean, ones(hidden), eps)));
    }
  return rows;
}

/** The same of a Gemma 4 12B's. */
export type UnifiedMistake =
  | 'channels first'
  | 'lines before columns'
  | 'no places'
  | 'no norm before'
  | 'no norm behind'
  | 'pixels from -1';

/**
 * Rows of a Gemma 4 12B's decoder for a picture, in float64, from transformers' modeling_gemma4_unified.py, by squares of scale by scale
 * patches in lines.
 * @param pixels of 0 to 1, [height][width][3]
 */
export function gemma4PatchRows(
  weights: WeightMap,
  tower: ReferenceTower,
  scale: number,
  textWidth: number,
  pixels: ArrayLike<number>,
  [width, height]: readonly [width: number, height: number],
  mistake?: UnifiedMistake,
): Vector[] {
  const { hidden, eps, places = 0 } = tower;
  const tensor = lookupIn(weights);
  const at = 'model.vision_embedder';
  const side = tower.patch * scale;
  const norm = (name: string, x: Vector): Vector => {
    const [weight, bias] = ['weight', 'bias'].map((part) => tensor(`${at}.${name}.${part}`, x.length));
    const mean = x.reduce((a, b) => a + b) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    return x.map((value, i) => ((value - mean) / Math.sqrt(variance + 1e-5)) * weight![i]! + bias![i]!);
  };
  const dense = tensor(`${at}.patch_dense.weight`, hidden, 3 * side * side);
  const bias = tensor(`${at}.patch_dense.bias`, hidden);
  const table = tensor(`${at}.pos_embedding`, places, 2, hidden);
  const project = tensor('model.embed_vision.embedding_projection.weight', textWidth, hidden);
  const ones = new Float32Array(hidden).fill(1);
  const rows: Vector[] = [];
  for (let line = 0; line < height / side; line++)
    for (let column = 0; column < width / side; column++) {
      const values = new Float64Array(3 * side * side);
      for (let y = 0; y < side; y++)
        for (let x = 0; x < side; x++)
          for (let c = 0; c < 3; c++) {
            const to = mistake === 'channels first' ? (c * side + y) * side + x : (y * side + x) * 3 + c;
            const value = pixels[((line * side + y) * width + column * side + x) * 3 + c]!;
            values[to] = mistake === 'pixels from -1' ? 2 * value - 1 : value;
          }
      const given = mistake === 'no norm before' ? values : norm('patch_ln1', values);
      const dim = matVec(dense, given, bias);
      const embedded = mistake === 'no norm behind' ? dim : norm('patch_ln2', dim);
      const [first, second] = mistake === 'lines before columns' ? [line, column] : [column, line];
      const placed = embedded.map((value, i) =>
        mistake === 'no places'
          ? value
          : value + table[2 * first * hidden + i]! + table[(2 * second + 1) * hidden + i]!,
      );
      rows.push(matVec(project, rmsNorm(norm('pos_norm', placed), ones, eps)));
    }
  return rows;
}

/** Behind the last norm, by patch, row by row: modeling_siglip.py. */
function siglipStates(weights: WeightMap, prefix: string, tower: ReferenceTower, pixels: ArrayLike<number>): Vector[] {
  const { hidden, image, patch } = tower;
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
  return siglipLayers(weights, prefix, tower, x);
}

/** Of rows that are embedded. */
function siglipLayers(weights: WeightMap, prefix: string, tower: ReferenceTower, x: Vector[]): Vector[] {
  const { hidden, heads, layers, width, eps } = tower;
  const { norm, linear } = layersOf(lookupIn(weights), eps);
  for (let layer = 0; layer < layers; layer++) {
    const at = `${prefix}.encoder.layers.${layer}`;
    const inputs = x.map((row) => norm(`${at}.layer_norm1`, row));
    const [q, k, v] = ['q', 'k', 'v'].map((part) =>
      inputs.map((row) => linear(`${at}.self_attn.${part}_proj`, row, hidden)),
    ) as [Vector[], Vector[], Vector[]];
    addAll(
      x,
      attended(heads, q, k, v).map((out) => linear(`${at}.self_attn.out_proj`, out, hidden)),
    );
    addAll(
      x,
      x.map((row) => {
        const inner = linear(`${at}.mlp.fc1`, norm(`${at}.layer_norm2`, row), width);
        return linear(`${at}.mlp.fc2`, inner.map(geluTanh), hidden);
      }),
    );
  }
  return x.map((row) => norm(`${prefix}.post_layernorm`, row));
}

/** What would show in an LFM2-VL's rows: the mistakes that are made on purpose. */
export type Lfm2Mistake = 'channels first' | 'no antialiasing' | 'corners' | 'tanh' | 'across first' | 'no norm';

/**
 * Rows of an LFM2-VL's decoder for a tile or picture, in float64, from transformers' modeling_lfm2_vl.py and modeling_siglip2.py: the
 * table of places by torch's interpolate (bilinear, antialias), patches with a pixel's channels side by side, two by two joined.
 * @param pixels normalised, [height][width][3]
 */
export function lfm2Rows(
  weights: WeightMap,
  tower: ReferenceTower,
  scale: number,
  textWidth: number,
  pixels: ArrayLike<number>,
  [width, height]: readonly [width: number, height: number],
  mistake?: Lfm2Mistake,
): Vector[] {
  const { hidden, patch, places = 0, inner = 0 } = tower;
  const tensor = lookupIn(weights);
  const at = 'model.vision_tower.vision_model';
  const [wide, high] = [width / patch, height / patch];
  const kernel = tensor(`${at}.embeddings.patch_embedding.weight`, hidden, patch * patch * 3);
  const bias = tensor(`${at}.embeddings.patch_embedding.bias`, hidden);
  const table = tensor(`${at}.embeddings.position_embedding.weight`, places * places, hidden);
  const pulls = (index: number, size: number): [place: number, part: number][] => {
    const factor = places / size;
    const support = mistake === 'no antialiasing' ? 1 : Math.max(1, factor);
    const centre = mistake === 'corners' ? (index * (places - 1)) / (size - 1) + 0.5 : (index + 0.5) * factor;
    const found: [number, number][] = [];
    for (let place = 0; place < places; place++) {
      const part = 1 - Math.abs(place + 0.5 - centre) / support;
      if (part > 0) found.push([place, part]);
    }
    const total = found.reduce((sum, [, part]) => sum + part, 0);
    return found.map(([place, part]) => [place, part / total]);
  };
  const x: Vector[] = [];
  for (let py = 0; py < high; py++)
    for (let px = 0; px < wide; px++) {
      const row = Float64Array.from(bias);
      let column = 0;
      const take = (y: number, left: number, channel: number): void => {
        const pixel = pixels[((py * patch + y) * width + px * patch + left) * 3 + channel]!;
        for (let out = 0; out < hidden; out++) row[out]! += kernel[out * patch * patch * 3 + column]! * pixel;
        column++;
      };
      if (mistake === 'channels first')
        for (let c = 0; c < 3; c++) for (let y = 0; y < patch; y++) for (let l = 0; l < patch; l++) take(y, l, c);
      else for (let y = 0; y < patch; y++) for (let l = 0; l < patch; l++) for (let c = 0; c < 3; c++) take(y, l, c);
      for (const [line, down] of pulls(py, high))
        for (const [place, across] of pulls(px, wide))
          for (let i = 0; i < hidden; i++) row[i]! += down * across * table[(line * places + place) * hidden + i]!;
      x.push(row);
    }
  const patches = siglipLayers(weights, at, tower, x);
  const projector = 'model.multi_modal_projector';
  const { norm, linear } = layersOf(tensor, 1e-5);
  const rows: Vector[] = [];
  for (let y = 0; y < high; y += scale)
    for (let left = 0; left < wide; left += scale) {
      const joined = new Float64Array(hidden * scale * scale);
      for (let dy = 0; dy < scale; dy++)
        for (let dx = 0; dx < scale; dx++)
          joined.set(
            patches[(y + dy) * wide + left + dx]!,
            (mistake === 'across first' ? dx * scale + dy : dy * scale + dx) * hidden,
          );
      const normed = tower.normed && mistake !== 'no norm' ? norm(`${projector}.layer_norm`, joined) : joined;
      const between = linear(`${projector}.linear_1`, normed, inner).map(mistake === 'tanh' ? geluTanh : geluErf);
      rows.push(linear(`${projector}.linear_2`, between, textWidth));
    }
  return rows;
}

const geluTanh = (g: number): number => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3)));
const geluErf = (g: number): number => 0.5 * g * (1 + erf(g / Math.SQRT2));

/** By its series, 2 / sqrt(pi) sum (-1)^n x^(2n+1) / (n! (2n+1)); beyond 5 it is 1 to the last digit but a few. */
function erf(x: number): number {
  if (Math.abs(x) > 5) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum); n++) {
    term *= -(x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

/** LayerNorms and biased projections. */
function layersOf(tensor: Lookup, eps: number) {
  return {
    norm: (name: string, row: Vector): Vector => {
      const [weight, offset] = [tensor(`${name}.weight`, row.length), tensor(`${name}.bias`, row.length)];
      const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
      const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
      return row.map((value, i) => ((value - mean) / Math.sqrt(variance + eps)) * weight[i]! + offset[i]!);
    },
    linear: (name: string, row: Vector, rows: number): Vector =>
      matVec(tensor(`${name}.weight`, rows, row.length), row, tensor(`${name}.bias`, rows)),
  };
}

/** Every row sees all. */
function attended(heads: number, q: Vector[], k: Vector[], v: Vector[]): Vector[] {
  return q.map((query) => {
    const out = new Float64Array(query.length);
    const dim = query.length / heads;
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
    return out;
  });
}

/**
 * Rows of a Qwen3.5's or Qwen3-VL's decoder for a picture, in float64, from transformers' modeling_qwen3_vl.py, patch by patch in lines:
 * what the merger gives, then what those behind the taps do.
 * @param pixels normalised, [height][width][3], each side a multiple of patch * merge
 */
export function qwenRows(
  weights: WeightMap,
  tower: ReferenceTower,
  merge: number,
  textWidth: number,
  pixels: ArrayLike<number>,
  [width, height]: readonly [width: number, height: number],
): Vector[] {
  const { hidden, heads, patch, layers, eps, places = 0, taps = [] } = tower;
  const tensor = lookupIn(weights);
  const { norm, linear } = layersOf(tensor, eps);
  const at = 'model.visual';
  const [wide, high] = [width / patch, height / patch];
  const kernel = tensor(`${at}.patch_embed.proj.weight`, hidden, 3, 2, patch, patch);
  const bias = tensor(`${at}.patch_embed.proj.bias`, hidden);
  const table = tensor(`${at}.pos_embed.weight`, places * places, hidden);
  const x: Vector[] = [];
  for (let py = 0; py < high; py++) {
    for (let px = 0; px < wide; px++) {
      const row = Float64Array.from(bias);
      for (let out = 0; out < hidden; out++)
        for (let channel = 0; channel < 3; channel++)
          for (let frame = 0; frame < 2; frame++)
            for (let dy = 0; dy < patch; dy++)
              for (let dx = 0; dx < patch; dx++)
                row[out]! +=
                  kernel[(((out * 3 + channel) * 2 + frame) * patch + dy) * patch + dx]! *
                  pixels[((py * patch + dy) * width + px * patch + dx) * 3 + channel]!;
      // A place between four of the table's, whose corners are the picture's.
      const [ty, tx] = [
        high > 1 ? (py * (places - 1)) / (high - 1) : 0,
        wide > 1 ? (px * (places - 1)) / (wide - 1) : 0,
      ];
      for (let line = 0; line < places; line++)
        for (let column = 0; column < places; column++) {
          const part = Math.max(0, 1 - Math.abs(ty - line)) * Math.max(0, 1 - Math.abs(tx - column));
          if (part > 0)
            for (let i = 0; i < hidden; i++) row[i]! += part * table[(line * places + column) * hidden + i]!;
        }
      x.push(row);
    }
  }
  const dim = hidden / heads;
  const turned = (row: Vector, index: number): Vector => {
    const out = row.slice();
    for (let first = 0; first < hidden; first += dim)
      for (let i = 0; i < dim / 4; i++) {
        const frequency = 10000 ** ((-2 * i) / (dim / 2));
        rotatePair(out, first + i, first + i + dim / 2, Math.floor(index / wide) * frequency);
        rotatePair(out, first + i + dim / 4, first + i + dim / 4 + dim / 2, (index % wide) * frequency);
      }
    return out;
  };
  /** @param before whether rows are normalised before they are joined */
  const merged = (name: string, before: boolean): Vector[] => {
    const rows = before ? x.map((row) => norm(`${name}.norm`, row)) : x;
    const out: Vector[] = [];
    for (let y = 0; y < high; y += merge)
      for (let left = 0; left < wide; left += merge) {
        const joined = new Float64Array(hidden * merge * merge);
        for (let dy = 0; dy < merge; dy++)
          for (let dx = 0; dx < merge; dx++) joined.set(rows[(y + dy) * wide + left + dx]!, (dy * merge + dx) * hidden);
        const normed = before ? joined : norm(`${name}.norm`, joined);
        out.push(
          linear(`${name}.linear_fc2`, linear(`${name}.linear_fc1`, normed, joined.length).map(geluErf), textWidth),
        );
      }
    return out;
  };
  const tapped: Vector[][] = [];
  for (let layer = 0; layer < layers; layer++) {
    const block = `${at}.blocks.${layer}`;
    const qkv = x.map((row) => linear(`${block}.attn.qkv`, norm(`${block}.norm1`, row), 3 * hidden));
    const [q, k] = [0, 1].map((part) =>
      qkv.map((row, index) => turned(row.slice(part * hidden, (part + 1) * hidden), index)),
    ) as [Vector[], Vector[]];
    const v = qkv.map((row) => row.slice(2 * hidden));
    addAll(
      x,
      attended(heads, q, k, v).map((row) => linear(`${block}.attn.proj`, row, hidden)),
    );
    addAll(
      x,
      x.map((row) => {
        const inner = linear(`${block}.mlp.linear_fc1`, norm(`${block}.norm2`, row), tower.width);
        return linear(`${block}.mlp.linear_fc2`, inner.map(geluTanh), hidden);
      }),
    );
    const level = taps.indexOf(layer);
    if (level >= 0) tapped.push(merged(`${at}.deepstack_merger_list.${level}`, false));
  }
  return merged(`${at}.merger`, true).map((row, index) =>
    Float64Array.from([row, ...tapped.map((rows) => rows[index]!)].flatMap((each) => [...each])),
  );
}

/** What would show of a Qwen2.5-VL's. */
export type Qwen25Mistake =
  | 'no windows'
  | 'windows everywhere'
  | 'rows by window'
  | 'no gate'
  | 'another norm'
  | 'tanh';

/**
 * The same of a Qwen2.5-VL's, from modeling_qwen2_5_vl.py: squares of `window` by `window` rows see each other in layers that aren't
 * listed; here patches stay in lines.
 */
export function qwen25Rows(
  weights: WeightMap,
  tower: ReferenceTower,
  merge: number,
  textWidth: number,
  pixels: ArrayLike<number>,
  [width, height]: readonly [width: number, height: number],
  mistake?: Qwen25Mistake,
): Vector[] {
  const { hidden, heads, patch, layers, eps, whole = [], window = 1 } = tower;
  const tensor = lookupIn(weights);
  const { linear } = layersOf(tensor, eps);
  const at = 'model.visual';
  const [wide, high, dim, size] = [width / patch, height / patch, hidden / heads, patch * patch];
  const norm = (name: string, row: Vector): Vector => rmsNorm(row, tensor(`${at}.${name}.weight`, hidden), eps);
  const kernel = tensor(`${at}.patch_embed.proj.weight`, hidden, 3, 2, patch, patch);
  const places = Array.from({ length: wide * high }, (_, index) => [Math.floor(index / wide), index % wide] as const);
  const x = places.map(([py, px]) =>
    Float64Array.from({ length: hidden }, (_, out) => {
      let sum = 0;
      for (let i = 0; i < 3 * size; i++) {
        const [c, y, left] = [Math.floor(i / size), Math.floor((i % size) / patch), i % patch];
        const pixel = pixels[((py * patch + y) * width + px * patch + left) * 3 + c]!;
        for (const frame of [0, 1]) sum += kernel[((out * 3 + c) * 2 + frame) * size + (i % size)]! * pixel;
      }
      return sum;
    }),
  );
  const turned = (row: Vector, index: number): Vector => {
    const out = row.slice();
    for (let first = 0; first < hidden; first += dim)
      for (let pair = 0; pair < dim / 2; pair++) {
        const [axis, i] = [Math.floor(pair / (dim / 4)), pair % (dim / 4)];
        rotatePair(out, first + pair, first + pair + dim / 2, places[index]![axis]! * 10000 ** ((-4 * i) / dim));
      }
    return out;
  };
  const windowOf = ([line, column]: readonly [number, number]): string =>
    [line, column].map((place) => Math.floor(place / merge / window)).join();
  for (let layer = 0; layer < layers; layer++) {
    const block = `blocks.${layer}`;
    const qkv = x.map((row) => linear(`${at}.${block}.attn.qkv`, norm(`${block}.norm1`, row), 3 * hidden));
    const part = (index: number, which: number): Vector => qkv[index]!.slice(which * hidden, (which + 1) * hidden);
    const seesAll = mistake === 'no windows' || (whole.includes(layer) && mistake !== 'windows everywhere');
    const groups = [...new Set(places.map(windowOf))].map((name) =>
      [...x.keys()].filter((index) => windowOf(places[index]!) === name),
    );
    const windows = seesAll ? [[...x.keys()]] : groups;
    for (const own of windows) {
      const [q, k] = [0, 1].map((which) => own.map((index) => turned(part(index, which), index))) as [
        Vector[],
        Vector[],
      ];
      const mixed = attended(
        heads,
        q,
        k,
        own.map((index) => part(index, 2)),
      );
      for (const [row, index] of own.entries())
        addAll([x[index]!], [linear(`${at}.${block}.attn.proj`, mixed[row]!, hidden)]);
    }
    for (const row of x) {
      const given = norm(`${block}.norm2`, row);
      const [gate, up] = ['gate', 'up'].map((name) => linear(`${at}.${block}.mlp.${name}_proj`, given, tower.width));
      const inner = up!.map((value, i) => value * (mistake === 'no gate' ? 1 : gate![i]! / (1 + Math.exp(-gate![i]!))));
      addAll([row], [linear(`${at}.${block}.mlp.down_proj`, inner, hidden)]);
    }
  }
  const rows: Vector[] = [];
  for (let y = 0; y < high; y += merge)
    for (let left = 0; left < wide; left += merge) {
      const joined = new Float64Array(hidden * merge * merge);
      for (let i = 0; i < merge * merge; i++) {
        const row = x[(y + Math.floor(i / merge)) * wide + left + (i % merge)]!;
        joined.set(mistake === 'another norm' ? row : norm('merger.ln_q', row), i * hidden);
      }
      const inner = linear(`${at}.merger.mlp.0`, joined, joined.length).map(mistake === 'tanh' ? geluTanh : geluErf);
      rows.push(linear(`${at}.merger.mlp.2`, inner, textWidth));
    }
  if (mistake !== 'rows by window') return rows;
  const across = wide / merge;
  const windowAt = (index: number): string =>
    windowOf([Math.floor(index / across) * merge, (index % across) * merge]).padStart(9);
  return [...rows.keys()]
    .toSorted((a, b) => windowAt(a).localeCompare(windowAt(b)) || a - b)
    .map((index) => rows[index]!);
}

/**
 * What each pair of a row turns by, from transformers' get_rope_index and apply_interleaved_mrope: text by one more than the largest before
 * it; of a picture all rows by that, by their line and by their column, interleaved; or (Qwen2.5-VL's apply_multimodal_rotary_pos_emb) one
 * behind the other.
 * @param grids lines and columns of rows of the pictures, in order
 */
export function qwenPositions(
  isRow: readonly boolean[],
  grids: readonly (readonly [number, number])[],
  [before = 0, lines = 0, columns = 0]: readonly number[],
  takesTurns = true,
): (row: number, pair: number) => number {
  const rows: [number, number, number][] = [];
  const left = [...grids];
  while (rows.length < isRow.length) {
    const next = Math.max(-1, ...rows.flat()) + 1;
    if (!isRow[rows.length]) rows.push([next, next, next]);
    else {
      const [high, wide] = left.shift()!;
      for (let y = 0; y < high; y++) for (let x = 0; x < wide; x++) rows.push([next, next + y, next + x]);
    }
  }
  return (row, pair) => {
    const inTurn = pair % 3 === 1 && pair < 3 * lines ? 1 : pair % 3 === 2 && pair < 3 * columns ? 2 : 0;
    const axis = takesTurns ? inTurn : pair < before ? 0 : pair < before + lines ? 1 : 2;
    return rows[row]![axis];
  };
}
