import { type Lookup, lookupIn, matVec, rmsNorm, type Vector, type WeightMap } from './math.js';

/** Of an encoder of sound, in the words of its config.json. */
export interface ReferenceSound {
  hidden: number;
  heads: number;
  layers: number;
  channels: [number, number];
  taps: number;
  chunk: number;
  left: number;
  cap: number;
  factor: number;
  eps: number;
  out: number;
  clipped: boolean;
}

/** What would show in its rows. */
export type SoundMistake =
  | 'no bounds'
  | 'another key'
  | 'places turned round'
  | 'no places'
  | 'no cap'
  | 'plain scales'
  | 'whole halves'
  | 'gate first'
  | 'no mask'
  | 'bins before channels';

const softplus = (x: number): number => Math.log(1 + Math.exp(x));
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const silu = (x: number): number => x * sigmoid(x);
const zeros = (count: number, length: number): Vector[] =>
  Array.from({ length: count }, () => new Float64Array(length));

/**
 * Rows of a Gemma 4's decoder for a recording, in float64, from transformers' modeling_gemma4.py: in a batch that is longer, with its masks,
 * chunks and shifts; what the mask leaves.
 * @param frames [frames][128]
 */
export function gemma4SoundRows(
  weights: WeightMap,
  sound: ReferenceSound,
  textWidth: number,
  frames: ArrayLike<number>,
  mistake?: SoundMistake,
): Vector[] {
  const { hidden, layers, out, eps, clipped } = sound;
  const tensor = lookupIn(weights);
  const at = 'model.audio_tower';
  const norm = (name: string, x: Vector, own = 1e-6): Vector =>
    rmsNorm(x, tensor(`${at}.${name}.weight`, x.length), own);
  const bound = (name: string, value: number): number => {
    if (!clipped || mistake === 'no bounds') return value;
    const [least, most] = ['min', 'max'].map((end) => tensor(`${at}.${name}_${end}`)[0]!);
    return Math.min(most!, Math.max(least!, value));
  };
  const linear = (name: string, x: Vector, rows: number): Vector => {
    const given = x.map((value) => bound(`${name}.input`, value));
    return matVec(tensor(`${at}.${name}.linear.weight`, rows, x.length), given).map((y) => bound(`${name}.output`, y));
  };
  const clamp = (x: Vector): Vector => x.map((value) => Math.min(1e10, Math.max(-1e10, value)));
  const { x: begun, mask } = subsampled(tensor, sound, frames, mistake);
  let x = begun;
  const feedForward = (name: string, row: Vector): Vector => {
    const inner = linear(`${name}.ffw_layer_1`, norm(`${name}.pre_layer_norm`, clamp(row)), 4 * hidden).map(silu);
    const made = norm(`${name}.post_layer_norm`, clamp(linear(`${name}.ffw_layer_2`, inner, hidden)));
    return made.map((value, i) => value * (mistake === 'whole halves' ? 1 : sound.factor) + row[i]!);
  };
  for (let layer = 0; layer < layers; layer++) {
    const block = `layers.${layer}`;
    x = x.map((row) => feedForward(`${block}.feed_forward1`, row));
    const given = x.map((row) => norm(`${block}.norm_pre_attn`, clamp(row)));
    const parts = ['q', 'k', 'v'].map((part) =>
      given.map((row) => linear(`${block}.self_attn.${part}_proj`, row, hidden)),
    );
    const attended = chunkAttention(tensor, `${at}.${block}.self_attn`, sound, parts, mask, mistake);
    x = x.map((row, t) => {
      const back = norm(`${block}.norm_post_attn`, clamp(linear(`${block}.self_attn.post`, attended[t]!, hidden)));
      return row.map((value, i) => value + back[i]!);
    });
    const gated = x.map((row) => {
      const both = linear(
        `${block}.lconv1d.linear_start`,
        norm(`${block}.lconv1d.pre_layer_norm`, row, eps),
        2 * hidden,
      );
      const [value, gate] = mistake === 'gate first' ? [hidden, 0] : [0, hidden];
      return Float64Array.from({ length: hidden }, (_, i) => both[value + i]! * sigmoid(both[gate + i]!));
    });
    const kernel = tensor(`${at}.${block}.lconv1d.depthwise_conv1d.weight`, hidden, 1, sound.taps);
    x = x.map((row, t) => {
      const made = new Float64Array(hidden);
      for (let tap = 0; tap < sound.taps; tap++) {
        const before = gated[t - (sound.taps - 1) + tap];
        if (before) for (let i = 0; i < hidden; i++) made[i]! += kernel[i * sound.taps + tap]! * before[i]!;
      }
      const normed = norm(`${block}.lconv1d.conv_norm`, clamp(made), eps).map(silu);
      const back = linear(`${block}.lconv1d.linear_end`, normed, hidden);
      return row.map((value, i) => value + back[i]!);
    });
    x = x.map((row) => norm(`${block}.norm_out`, clamp(feedForward(`${block}.feed_forward2`, row))));
  }
  const weight = tensor(`${at}.output_proj.weight`, out, hidden);
  const bias = tensor(`${at}.output_proj.bias`, out);
  const project = tensor('model.embed_audio.embedding_projection.weight', textWidth, out);
  return x
    .filter((_, t) => mask[t])
    .map((row) => matVec(project, rmsNorm(matVec(weight, row, bias), new Float32Array(out).fill(1), eps)));
}

/** Two convolutions with their norms, and the projection; some frames are the batch's padding. */
function subsampled(
  tensor: Lookup,
  { channels, hidden, eps }: ReferenceSound,
  frames: ArrayLike<number>,
  mistake?: SoundMistake,
): { x: Vector[]; mask: boolean[] } {
  const at = 'model.audio_tower.subsample_conv_projection';
  const count = frames.length / 128;
  let mask = Array.from({ length: count + 13 }, (_, t) => t < count);
  // Of padding something, so that a mask that isn't applied shows. [time][bin][channel]
  let x = mask.map((isReal, t) =>
    Array.from({ length: 128 }, (_, bin) => Float64Array.of(isReal ? frames[t * 128 + bin]! : Math.sin(t + bin))),
  );
  for (const [layer, own] of channels.entries()) {
    const inputs = layer === 0 ? 1 : channels[0];
    const kernel = tensor(`${at}.layer${layer}.conv.weight`, own, inputs, 3, 3);
    const scale = tensor(`${at}.layer${layer}.norm.weight`, own);
    const isMasked = (t: number): boolean => mistake !== 'no mask' && !mask[t];
    x = Array.from({ length: Math.ceil(x.length / 2) }, (_, t) =>
      Array.from({ length: x[0]!.length / 2 }, (_bin, f) => {
        const y = new Float64Array(own);
        for (let dt = 0; dt < 3; dt++)
          for (let df = 0; df < 3; df++) {
            const [line, column] = [2 * t + dt - 1, 2 * f + df - 1];
            const given = x[line]?.[column];
            if (!given || isMasked(line)) continue;
            for (let c = 0; c < own; c++)
              for (let i = 0; i < inputs; i++) y[c]! += kernel[((c * inputs + i) * 3 + dt) * 3 + df]! * given[i]!;
          }
        const mean = y.reduce((sum, value) => sum + value, 0) / own;
        const variance = y.reduce((sum, value) => sum + (value - mean) ** 2, 0) / own;
        return y.map((value, c) => Math.max(0, ((value - mean) / Math.sqrt(variance + eps)) * scale[c]!));
      }),
    );
    mask = mask.filter((_, t) => t % 2 === 0);
  }
  const project = tensor(`${at}.input_proj_linear.weight`, hidden, 32 * channels[1]);
  const rows = x.map((bins) => {
    const flat = new Float64Array(32 * channels[1]);
    for (const [f, row] of bins.entries())
      for (const [c, value] of row.entries())
        flat[mistake === 'bins before channels' ? c * 32 + f : f * channels[1] + c] = value;
    return matVec(project, flat);
  });
  return { x: rows, mask };
}

/** Chunk by chunk, each with the rows before it, whose scores of places are shifted as transformers does it. */
function chunkAttention(
  tensor: Lookup,
  at: string,
  { hidden, heads, chunk, left, cap }: ReferenceSound,
  [q, k, v]: readonly Vector[][],
  mask: readonly boolean[],
  mistake?: SoundMistake,
): Vector[] {
  const dim = hidden / heads;
  const past = left - 1;
  const context = chunk + past;
  const scale = tensor(`${at}.per_dim_scale`, dim);
  const relative = tensor(`${at}.relative_k_proj.weight`, hidden, hidden);
  const positions = Math.floor(context / 2) + 1;
  const half = hidden / 2;
  const places = Array.from({ length: positions }, (_, index) => {
    const position = mistake === 'places turned round' ? index : positions - 1 - index;
    const row = new Float64Array(hidden);
    for (let i = 0; i < half; i++) {
      const angle = position * Math.exp((-i * Math.log(10000)) / Math.max(half - 1, 1));
      [row[i], row[half + i]] = [Math.sin(angle), Math.cos(angle)];
    }
    return matVec(relative, row);
  });
  const out = zeros(q!.length, hidden);
  for (let first = 0; first < q!.length; first += chunk) {
    for (let head = 0; head < heads; head++) {
      const of = (row: Vector | undefined, d: number): number => row?.[head * dim + d] ?? 0;
      const query = (t: number, d: number): number =>
        (of(q![first + t], d) * (mistake === 'plain scales' ? scale[d]! : softplus(scale[d]!))) /
        (Math.sqrt(dim) * Math.log(2));
      // Padded to context + 1 columns, flattened, cut, and read as rows of `context`.
      const flat: number[] = [];
      for (let t = 0; t < chunk; t++)
        for (let index = 0; index <= context; index++) {
          let sum = 0;
          if (index < positions && mistake !== 'no places')
            for (let d = 0; d < dim; d++) sum += query(t, d) * of(places[index], d);
          flat.push(sum);
        }
      for (let t = 0; t < chunk && first + t < q!.length; t++) {
        const scores = Array.from({ length: context }, (_, s) => {
          const key = first + s - past;
          const distance = first + t - key;
          const isSeen =
            key >= 0 && mask[key] && distance >= 0 && distance < past + (mistake === 'another key' ? 1 : 0);
          if (!isSeen) return -1e9;
          let sum = flat[t * context + s]!;
          for (let d = 0; d < dim; d++) sum += (query(t, d) * of(k![key], d) * Math.log(1 + Math.E)) / Math.log(2);
          return mistake === 'no cap' ? sum : cap * Math.tanh(sum / cap);
        });
        const largest = Math.max(...scores);
        const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
        for (const [s, score] of scores.entries())
          for (let d = 0; d < dim; d++)
            out[first + t]![head * dim + d]! += (Math.exp(score - largest) / total) * of(v![first + s - past], d);
      }
    }
  }
  return out;
}

/** Rows of a Gemma 4 12B's decoder for a recording, in float64, from modeling_gemma4_unified.py: `out` samples each, the last ones with zeros. */
export function gemma4SampleRows(
  weights: WeightMap,
  { out, eps }: Pick<ReferenceSound, 'out' | 'eps'>,
  textWidth: number,
  samples: ArrayLike<number>,
  mistake?: 'no norm' | 'another eps',
): Vector[] {
  const project = lookupIn(weights)('model.embed_audio.embedding_projection.weight', textWidth, out);
  const ones = new Float32Array(out).fill(1);
  return zeros(Math.ceil(samples.length / out), out).map((frame, row) => {
    const x = frame.map((_, i) => samples[row * out + i] ?? 0);
    return matVec(project, mistake === 'no norm' ? x : rmsNorm(x, ones, mistake ? 10 * eps : eps));
  });
}
